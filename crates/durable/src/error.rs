//! The errors of the engine and its store.

use std::path::PathBuf;

use crate::{Failure, InvalidId, Status, WorkflowId};

/// The result of an operation of the engine or its store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the engine or its store failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The workflow failed.
    #[error(transparent)]
    Failed(Failure),
    /// The workflow was cancelled by a caller or by its timeout.
    #[error("workflow {id} {}", if *timed_out { "timed out" } else { "was cancelled" })]
    Cancelled {
        /// The workflow.
        id: WorkflowId,
        /// Whether its timeout expired.
        timed_out: bool,
    },
    /// The workflow was taken over too often without recording anything.
    #[error(
        "workflow {id} was abandoned: each of its attempts ended with its executor; resume it after removing the cause"
    )]
    AttemptsExceeded {
        /// The workflow.
        id: WorkflowId,
    },
    /// This process stopped running the workflow; it continues when this or another executor takes
    /// it over.
    #[error("workflow {id} was interrupted: {why}")]
    Interrupted {
        /// The workflow.
        id: WorkflowId,
        /// Why it stopped.
        why: String,
    },
    /// Another execution of the workflow holds the lease, or the workflow has ended.
    #[error("this executor no longer runs workflow {id}")]
    LeaseLost {
        /// The workflow.
        id: WorkflowId,
        /// The current status of the workflow, where it is known.
        status: Option<Status>,
    },
    /// An earlier change excludes this one; nothing of it was committed.
    #[error("conflict: {what}")]
    Conflict {
        /// The conflicting fact.
        what: String,
    },
    /// A workflow with that deduplication id waits or runs in the queue.
    #[error("{id} holds the deduplication id {deduplication_id:?} in queue {queue:?}")]
    Deduplicated {
        /// The workflow that has it.
        id: WorkflowId,
        /// The queue.
        queue: String,
        /// The common deduplication id.
        deduplication_id: String,
    },
    /// No workflow has that id.
    #[error("there is no workflow {id}")]
    NotFound {
        /// The requested id.
        id: WorkflowId,
    },
    /// A text is not a valid id.
    #[error(transparent)]
    InvalidId(#[from] InvalidId),
    /// The call contradicts itself or the configuration of the engine.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// A value cannot be recorded, or a record does not have the expected type.
    #[error("a value cannot be recorded or read back: {message}")]
    Json {
        /// The message of the encoder or decoder.
        message: String,
    },
    /// The engine takes no more work.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// There is no space for the record; nothing was lost, and the store works again when there is.
    #[error("the disk with the database is full; free space on it")]
    StorageFull,
    /// The store cannot read or write.
    #[error("the database failed: {message}")]
    Storage {
        /// Its message.
        message: String,
    },
    /// Another process uses the database.
    #[error("{} is in use{}; end that process or use another data directory", path.display(), holder.map_or_else(String::new, |pid| format!(" by process {pid}")))]
    Locked {
        /// The database.
        path: PathBuf,
        /// The process that uses it, where it is known.
        holder: Option<u32>,
    },
    /// The database was written by a later version.
    #[error("{} was written by a later version (its schema is {found}; this version supports {known}); use that version, or another data directory", path.display())]
    NewerDatabase {
        /// The database.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The latest schema version of this program.
        known: u32,
    },
    /// The file is not a database of this engine.
    #[error("{} is not a database of this program ({why}); move it away, or use another data directory", path.display())]
    ForeignDatabase {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The database is damaged.
    #[error("{} is damaged ({detail}); restore it from a backup, or move it away to start empty", path.display())]
    CorruptDatabase {
        /// The database.
        path: PathBuf,
        /// The damage.
        detail: String,
    },
    /// The file cannot be opened, created or locked.
    #[error("{operation} {}: {message}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The message of the system.
        message: String,
    },
}

impl Error {
    /// A stable code for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Failed(failure) => &failure.code,
            Self::Cancelled { timed_out: true, .. } => "timed_out",
            Self::Cancelled { .. } => "cancelled",
            Self::AttemptsExceeded { .. } => "attempts_exceeded",
            Self::Interrupted { .. } => "interrupted",
            Self::LeaseLost { .. } => "lease_lost",
            Self::Conflict { .. } => "conflict",
            Self::Deduplicated { .. } => "deduplicated",
            Self::NotFound { .. } => "not_found",
            Self::InvalidId(_) | Self::Invalid { .. } => "invalid",
            Self::Json { .. } => "invalid_value",
            Self::ShuttingDown => "shutting_down",
            Self::Closed => "closed",
            Self::StorageFull => "storage_full",
            Self::Storage { .. } | Self::File { .. } => "storage",
            Self::Locked { .. } => "database_locked",
            Self::NewerDatabase { .. } => "database_newer",
            Self::ForeignDatabase { .. } => "database_foreign",
            Self::CorruptDatabase { .. } => "database_corrupt",
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed(failure) => failure.retryable,
            Self::Conflict { .. }
            | Self::Interrupted { .. }
            | Self::ShuttingDown
            | Self::StorageFull
            | Self::Storage { .. } => true,
            _ => false,
        }
    }

    /// Whether the store works but rejects its input: the workflow that submitted the input
    /// receives the error and continues.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Conflict { .. }
                | Self::Deduplicated { .. }
                | Self::NotFound { .. }
                | Self::Invalid { .. }
        )
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Json { message: error.to_string() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(failure) => failure,
            error => {
                let mut failure = Self::new(error.code(), error.to_string());
                failure.retryable = error.is_retryable();
                failure
            }
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Error::from(error).into()
    }
}
