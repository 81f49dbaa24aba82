//! The jail.
#![expect(unsafe_code, reason = "the one room that talks to the kernel directly")]

pub mod capabilities;
pub mod cgroup;
pub mod landlock;
pub mod rlimits;
pub mod seccomp;
#[cfg(test)]
mod testing;
