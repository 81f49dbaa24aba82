//! Why an operation of a runtime failed, the same for every backend.

use std::io;

use stockade_core::id::InvalidId;
use stockade_core::sandbox::LimitName;
use stockade_core::{ExecId, SandboxId, SnapshotId};

use crate::capability::Capability;
use crate::runtime::State;

/// What operations of a runtime return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Nothing is half done unless the variant says so.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no sandbox with that id.
    #[error("there is no sandbox {0}")]
    NoSandbox(SandboxId),
    /// No command was started under that id, or its result was acknowledged.
    #[error("the sandbox {sandbox} has no command {exec}")]
    NoExec {
        /// The sandbox.
        sandbox: SandboxId,
        /// The command.
        exec: ExecId,
    },
    /// There is no snapshot with that id.
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// The id is in use for something that was asked for in other words.
    #[error("{0} already exists, and was requested with other parameters")]
    Conflict(String),
    /// The sandbox is in a state in which this cannot be done.
    #[error("the sandbox {id} is {state}, so it cannot {operation}")]
    WrongState {
        /// The sandbox.
        id: SandboxId,
        /// Its state.
        state: State,
        /// What was asked for, as a verb.
        operation: &'static str,
    },
    /// This backend, or this host, cannot do that.
    #[error("{capability}: not supported here: {reason}")]
    Unsupported {
        /// What is missing.
        capability: Capability,
        /// Why.
        reason: String,
        /// What would make it possible.
        remedy: Option<String>,
    },
    /// A requested limit cannot be enforced here, and was not left to best effort.
    #[error("the limit `{limit}` cannot be enforced here: {reason}")]
    Limit {
        /// Which.
        limit: LimitName,
        /// Why not.
        reason: String,
        /// What would make it possible.
        remedy: String,
    },
    /// The sandbox uses more than this limit of it, and no command is started in it.
    #[error("the sandbox exceeds its limit `{limit}`: {reason}")]
    Exceeded {
        /// Which.
        limit: LimitName,
        /// Why.
        reason: String,
        /// What would help.
        remedy: String,
    },
    /// A wall cannot be raised here; nothing was started.
    #[error("the wall `{wall}` is not available: {reason}")]
    Wall {
        /// Its stable name.
        wall: String,
        /// Why not.
        reason: String,
    },
    /// The request names a path of the host that is never shown in a sandbox.
    #[error("{0}")]
    PathRefused(String),
    /// A part of the request can never be granted.
    #[error("{0}")]
    Invalid(String),
    /// What is needed has run out on this host: descriptors, processes, ids, disk.
    #[error("{0}")]
    Exhausted(String),
    /// A file operation inside failed.
    #[error("cannot {operation} {path}")]
    File {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The path inside, printable.
        path: String,
        /// Why: `NotFound`, `PermissionDenied`, `IsADirectory` and so on.
        #[source]
        source: io::Error,
    },
    /// Nothing takes connections there.
    #[error("cannot connect to {target} inside")]
    Connect {
        /// The port or socket.
        target: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of the host that the request names cannot be used.
    #[error("cannot use {path} of the host")]
    Host {
        /// The file, printable.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It may have happened or not, and nobody is left who knows. It is never done a second time
    /// under the same id.
    #[error("it is unknown whether {0} happened")]
    OutcomeUnknown(String),
    /// The process or service that holds the sandboxes cannot be reached.
    #[error("cannot reach {what}")]
    Unreachable {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No answer came in time.
    #[error("it took too long to {0}")]
    Deadline(&'static str),
}

impl From<InvalidId> for Error {
    fn from(invalid: InvalidId) -> Self {
        Self::Invalid(invalid.to_string())
    }
}
