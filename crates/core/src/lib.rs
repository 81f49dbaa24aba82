//! The nouns and rules of Stockade: ids, limits, sizes, the lifecycle of a sandbox, access rules,
//! the network policy and the classes of addresses, events, the isolation in force, and the
//! catalogue of errors.
//!
//! Pure: no I/O, no clock, no async, no panics. Every other crate may use this one; it uses none.

pub mod access;
pub mod address;
pub mod bytes;
pub mod cache;
pub mod caller;
mod door;
pub mod ending;
mod error;
pub mod event;
pub mod id;
mod isolation;
pub mod lifecycle;
mod limits;
mod names;
pub mod network;
mod parse;
pub mod printable;
pub mod runtime;
pub mod sandbox;
mod schema;
pub mod smithers_egress;
mod stored_image;
mod time;
mod ttl;

pub use bytes::Bytes;
pub use door::Door;
pub use ending::Ending;
pub use error::{Code, Problem};
pub use id::{ExecId, ExecutionId, OwnerId, SandboxId, SnapshotId, VolumeName};
pub use isolation::{Enforcement, Isolation, Level, LimitReport, WallReport};
pub use lifecycle::{CannotTransition, Operation, State};
pub use limits::BundleLimits;
pub use names::UnknownName;
pub use parse::{
    OrNone, ParseError, parse_bytes, parse_bytes_or_none, parse_count_or_none, parse_cpus,
    parse_cpus_or_none, parse_duration, parse_duration_or_none,
};
pub use sandbox::SandboxSpec;
#[doc(hidden)]
pub use schema::{names as schema_of_names, schemars};
pub use stored_image::StoredImage;
pub use time::Time;
pub use ttl::{InvalidTtl, Ttl};
