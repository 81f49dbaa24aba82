//! What a sandbox backend is: [`Runtime`], the one list of what can be done to a sandbox, the suite
//! that each backend must pass, and a fake one. The backends are crates of their own.
//!
//! Knows no owner, no policy, no database and no wire format of a server: whoever calls it has
//! decided that the call is allowed. Ids come from the caller and are idempotency keys.
//!
//! Reading order: `runtime` (the trait), `exec` (a command and its events), `files` (what is read
//! and written inside), `error`; then a backend.

mod capability;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod egress;
mod error;
mod exec;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod files;
mod runtime;
mod usage;

pub use capability::{Capability, Unsupported};
pub use egress::EgressListeners;
pub use error::{Error, Result};
pub use exec::{
    Command, Ending, Event, EventSource, Events, Exec, ExecStatus, Input, Offsets, StandardInput,
    Stream, WHOLE_INPUT_BYTES, WindowSize,
};
pub use files::{Content, FileInfo, FileKind, ReadRange, SandboxPath, WriteOptions};
pub use runtime::{Connection, Runtime, SnapshotInfo, State, Status, Target};
pub use usage::Usage;
