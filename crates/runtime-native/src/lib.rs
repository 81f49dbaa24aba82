//! The native backend: sandboxes are jails on this machine, supervised by a keeper.
//!
//! The keeper is a small single-threaded process, one for each data directory. It starts jails,
//! accepts connections from every client, and outlives all clients. `wire` defines the protocol
//! between clients and keeper.

pub mod bubblewrap;
mod client;
mod directory;
mod failure;
pub mod files;
mod images;
mod input_file;
pub mod keeper;
mod socket;
pub mod subordinate;
pub mod wire;
mod workspace_layer;

pub use client::{Native, NewContainer, Options, StagedContainer};
pub use failure::plan_error;
pub use images::images_in_use;
