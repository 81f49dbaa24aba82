//! The Docker backend: sandboxes are containers of a Docker Engine on this machine.
//!
//! The engine makes and limits a container (`container`, `request`), `stockade-init` is its process 1,
//! and the keeper of `stockade-runtime-native` serves it from then on: commands, streams, files,
//! leases and adoption after a crash are the same code as for jails. The engine is asked again only
//! to remove a container, to keep the image of a snapshot, and to find what was left behind.
//!
//! Reading order: `docker` (the operations), `engine` (the connection), `image`, `request` (what a
//! container is made from), `container` (its life), `labels` and `leftovers` (what belongs to us).

mod address;
mod container;
mod docker;
mod engine;
mod image;
mod init;
mod labels;
mod leftovers;
mod own_file;
mod programs;
mod request;
mod seccomp;

pub use address::{Address, AddressError};
pub use docker::{Docker, Options};
pub use engine::DEADLINE;
pub use programs::{LIBRARIES, Portable};
