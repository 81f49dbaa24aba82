//! Why an operation of a runtime failed, the same for every backend.

use std::io;

use stockade_core::id::InvalidId;
use stockade_core::sandbox::LimitName;
use stockade_core::{ExecId, SandboxId, SnapshotId};

use crate::capability::Capability;
use crate::state::State;

/// The result type of operations of a runtime.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Nothing is partly done unless the variant states it.
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
    /// An image is damaged, or cannot be used.
    #[error("the image cannot be used: {0}")]
    Image(String),
    /// The id is in use for a different request.
    #[error("{0} already exists, and was requested with other parameters")]
    Conflict(String),
    /// The sandbox is in a state in which this operation is not possible.
    #[error("the sandbox {id} is {state}, so it cannot {operation}")]
    WrongState {
        /// The sandbox.
        id: SandboxId,
        /// Its state.
        state: State,
        /// The requested operation, as a verb.
        operation: &'static str,
    },
    /// This backend, or this host, does not support that.
    #[error("{capability}: not supported here: {reason}")]
    Unsupported {
        /// What is missing.
        capability: Capability,
        /// The reason.
        reason: String,
        /// How to make it possible.
        remedy: Option<String>,
    },
    /// A requested limit cannot be enforced here, and was not left to best effort.
    #[error("the limit `{limit}` cannot be enforced here: {reason}")]
    Limit {
        /// The limit.
        limit: LimitName,
        /// The reason.
        reason: String,
        /// How to make it possible.
        remedy: String,
    },
    /// The sandbox exceeds this limit, so no command is started in it.
    #[error("the sandbox exceeds its limit `{limit}`: {reason}")]
    Exceeded {
        /// The limit.
        limit: LimitName,
        /// The reason.
        reason: String,
        /// How to fix it.
        remedy: String,
    },
    /// A wall cannot be enabled here; nothing was started.
    #[error("the wall `{wall}` is not available: {reason}")]
    Wall {
        /// Its stable name.
        wall: String,
        /// The reason.
        reason: String,
    },
    /// The request names a path of the host that is never visible in a sandbox.
    #[error("{0}")]
    PathRefused(String),
    /// A part of the request can never be granted.
    #[error("{0}")]
    Invalid(String),
    /// A resource of this host is exhausted: file descriptors, processes, ids, disk.
    #[error("{0}")]
    Exhausted(String),
    /// A file operation inside failed.
    #[error("cannot {operation} {path}")]
    File {
        /// The operation, as a verb.
        operation: &'static str,
        /// The path inside, printable.
        path: String,
        /// The cause: `NotFound`, `PermissionDenied`, `IsADirectory` and so on.
        #[source]
        source: io::Error,
    },
    /// Nothing accepts connections there.
    #[error("cannot connect to {target} inside")]
    Connect {
        /// The port or socket.
        target: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of the host that the request names is unusable.
    #[error("cannot use {path} of the host")]
    Host {
        /// The file, printable.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The operation may or may not have happened, and its result is lost. It is never executed a
    /// second time under the same id.
    #[error("it is unknown whether {0} happened")]
    OutcomeUnknown(String),
    /// The process or service that holds the sandboxes is unreachable.
    #[error("cannot reach {what}")]
    Unreachable {
        /// The process or service.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The engine that runs the sandboxes is unreachable, and this may make it reachable.
    #[error("cannot reach {what}: {reason}")]
    Unavailable {
        /// The engine.
        what: String,
        /// The reason.
        reason: String,
        /// How to fix it: a command that can be pasted.
        remedy: String,
    },
    /// The runtime has no image of that name.
    #[error("there is no image `{image}`")]
    NoImage {
        /// Its name.
        image: String,
        /// How to get it: a command that can be pasted.
        remedy: String,
    },
    /// No response came in time.
    #[error("it took too long to {0}")]
    Deadline(&'static str),
}

impl From<InvalidId> for Error {
    fn from(invalid: InvalidId) -> Self {
        Self::Invalid(invalid.to_string())
    }
}
