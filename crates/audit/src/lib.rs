//! The audit records of a data directory: who requested what, through which door, how it was decided,
//! and why.
//!
//! The records are lines of one file. The hash of each record covers the record before it, and each is
//! signed with a key outside of the data directory, where the number and the hash of the newest record
//! are also stored (the *checkpoint*). So a record that was changed, removed, moved or added without the
//! key is found, and so are missing records at the end.
//!
//! Every process that changes something appends its own records, under a lock of the file: the local
//! server, and each command that works without it.
//!
//! Reading order: `entry` (what a record says), `line` (how it is stored), `keys`, `checkpoint`, `log`
//! (appending), `verify`, `ocsf` (the form for other programs), `redact`.

mod checkpoint;
mod entry;
mod error;
mod hex;
mod keys;
mod line;
mod log;
mod ocsf;
pub mod redact;
mod tail;
mod verify;

pub use entry::{Actor, Decision, Entry, MAX_ENTRY_BYTES, Phase, Reason};
pub use error::Error;
pub use keys::{KeyDirectory, PublicKey};
pub use line::{Record, Records};
pub use log::{Log, set_aside};
pub use ocsf::api_activity;
pub use stockade_core::Door;
pub use verify::{Finding, Kind, Report, verify};
