//! What backends share whose sandboxes are on other machines: requests over HTTP, records of what may
//! exist elsewhere, archives and copies of directories, and the script with which a command runs. It knows no service by name.
//!
//! An answer and an archive from elsewhere are not trusted. A key is sent in headers only, and is in no
//! error and no log.

mod archive;
mod copied_directory;
mod copies;
mod failure;
mod http;
mod records;
mod repeat;
pub mod script;
mod upload;

pub use archive::{HEADER_BYTES, pack, unnamed_file, unpack};
pub use copied_directory::remove_all;
pub use copies::{Copies, blocking, pack_mount, remove_base, target};
pub use failure::{Failure, Service};
pub use http::{Answer, Download, Place, Protocol, Sent};
pub use records::{Lock, Record, Records, host_error, now_ms};
pub use repeat::Repeat;
