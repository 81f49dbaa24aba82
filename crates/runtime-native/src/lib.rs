//! The native backend: sandboxes that are jails of this machine, held by a keeper.
//!
//! The keeper is a small process with a single thread, one for each data directory. It starts
//! jails, is found again by every client, and outlives them all. `wire` is what the two say to
//! each other.

mod client;
mod directory;
mod failure;
pub mod files;
mod given;
pub mod keeper;
mod socket;
pub mod wire;

pub use client::{Native, Options};
