//! The nouns and rules of Stockade: ids, limits, sizes, what isolation was
//! raised, and the catalogue of errors.
//!
//! Pure: no I/O, no clock, no async, no panics. Every other room may use this
//! one; it uses none.

mod error;
pub mod id;
mod isolation;
mod limits;
mod parse;
pub mod sandbox;

pub use error::{Code, Problem};
pub use id::{ExecId, SandboxId, SnapshotId};
pub use isolation::{Enforcement, Isolation, Level, LimitReport, WallReport};
pub use limits::BundleLimits;
pub use parse::{ParseError, parse_bytes, parse_cpus, parse_duration};
pub use sandbox::SandboxSpec;
