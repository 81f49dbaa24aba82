//! What a sandbox sees and may use: turns a [`SandboxSpec`](stockade_core::SandboxSpec) into a
//! [`JailSpec`](stockade_jail::JailSpec), for `stockade run` and for persistent sandboxes.
//!
//! Reading order: `host_path` (which paths of the host may be visible), `account` and `environment`
//! (the users of commands), `limits`, `access`, then `request` (a checked request) with its two
//! results `one_shot` and `persistent`. `programs`, `skeleton`, `expected_programs` and `layers` are the
//! file systems of persistent sandboxes; `image` unpacks archives; `isolation` reports what is in force.
//!
//! Launches nothing and keeps no state between two sandboxes, except for the cache of `programs`.

pub mod access;
pub mod account;
mod authority_files;
pub mod ending;
pub mod environment;
mod error;
mod etc;
mod expected_programs;
pub mod host_path;
pub mod image;
pub mod image_root;
mod inside_path;
mod isolation;
pub mod layers;
pub mod limits;
mod one_shot;
pub mod owners;
mod persistent;
pub mod private_base;
mod programs;
mod request;
pub mod skeleton;
pub mod ssh_agent;
pub mod wipe;

pub use account::Users;
pub use authority_files::AuthorityFiles;
pub use error::{Error, single_user};
pub use expected_programs::search_path;
pub use host_path::{HostPath, HostPaths, PROGRAMS};
pub use isolation::{JailStatus, isolation};
pub use one_shot::{OneShotInput, View};
pub use persistent::{LEASE, PersistentInput, TRUSTED_FILE};
pub use programs::Programs;
pub use request::{HOSTNAME, Request, check_command};
pub use skeleton::GIT_CONFIGURATION;
pub use stockade_volume::{Error as VolumeError, VOLUMES};
