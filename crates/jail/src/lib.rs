//! Turns a complete [`JailSpec`] into one confined process tree, and holds the
//! small init that is pid 1 in it.
//!
//! The only room with `unsafe`. Knows no sandbox, bundle, HTTP or database, and
//! uses no other room. It fails closed: a wall that cannot be raised ends the
//! launch with the wall's name, and nothing of the command has run.
//!
//! Reading order: `spec` (what is asked), `launch` (the outer half), `inside`
//! (the inner half), `init` (pid 1, of one command or of many), `command` (up to
//! the exec). Around a jail of one command, `supervise` relays, waits and ends;
//! a jail that is held is spoken to through `control`, one that forks workers
//! through `zygote`.

#![expect(unsafe_code, reason = "the one room that talks to the kernel directly")]

mod access_mounts;
mod address_space;
pub mod capabilities;
pub mod cgroup;
mod channel;
mod command;
pub mod confined;
pub mod control;
mod deferred;
mod file_user;
mod fixtures;
pub mod identity;
mod init;
mod init_allocator;
mod inside;
pub mod landlock;
mod launch;
mod mounts;
pub mod network;
pub mod patience;
mod pty;
mod raw;
mod relay;
pub mod rlimits;
pub mod seccomp;
mod spec;
mod supervise;
mod sys;
pub mod system;
#[cfg(test)]
mod testing;
mod vm_helper;
mod walls;
pub mod watch;
pub mod zygote;

/// Lets no program that is started from now on inherit a descriptor beyond the three standard
/// streams, whoever opened it.
///
/// # Errors
/// Why the kernel does not (`close_range(2)`).
pub fn inherit_nothing() -> std::io::Result<()> {
    sys::close_on_exec_from(3)
}

pub use file_user::{as_file_user, with_caller_rights};
pub use identity::{Identity, Range};
pub use init_allocator::InitAllocator;
pub use launch::{Error, Held, Jail, Launching, begin, launch};
pub use relay::{Captured, Sink};
pub use spec::{
    Access, Area, Areas, Command, HostTree, JailSpec, Mount, Network, Overlay, Owners, Payload,
    Reach, Scratch, Source, Streams, Task, WindowSize,
};
pub use supervise::{Ending, Outcome, Signals, Supervision, Teardown, Watch, supervise};
pub use walls::Wall;
