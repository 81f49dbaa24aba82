//! The interface of sandbox backends: [`Runtime`], which lists all operations on a sandbox, the
//! suite that each backend must pass, and a fake backend. The real backends are separate crates.
//!
//! It knows no owner, no policy, no database and no wire format of a server: the caller has decided
//! that a call is allowed. Ids come from the caller and are idempotency keys.
//!
//! Reading order: `runtime` (the trait), `exec` (a command and its events), `files` (files inside),
//! `error`; then a backend.

mod capability;
mod changes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod egress;
mod error;
mod exec;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod files;
mod runtime;
mod state;
mod tree;
mod usage;

pub use capability::{Capability, Unsupported};
pub use changes::{ChangesInPlace, WorkspaceChanges};
pub use egress::EgressListeners;
pub use error::{Error, Result};
pub use exec::{
    Command, Ending, Event, EventSource, Events, Exec, ExecStatus, Input, Offsets, StandardInput,
    Stream, WHOLE_INPUT_BYTES, WindowSize,
};
pub use files::{Content, FileInfo, FileKind, ReadRange, SandboxPath, WriteOptions};
pub use runtime::{Connection, EndCause, Runtime, SnapshotInfo, Status, Target};
pub use state::State;
pub use tree::{
    PackedTree, Record, SkipReason, TREE_DEPTH, TreeProgress, TreeReader, TreeSize, TreeWriter,
    stays_inside,
};
pub use usage::Usage;
