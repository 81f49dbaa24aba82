//! What can go wrong between a caller, the engine and its store.

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
    /// The workflow was cancelled, by someone or by its time-out.
    #[error("workflow {id} {}", if *timed_out { "timed out" } else { "was cancelled" })]
    Cancelled {
        /// Which one.
        id: WorkflowId,
        /// Whether its time-out did it.
        timed_out: bool,
    },
    /// The workflow was taken over too often without recording anything.
    #[error(
        "workflow {id} was abandoned: each of its attempts ended with its executor; resume it after removing the cause"
    )]
    AttemptsExceeded {
        /// Which one.
        id: WorkflowId,
    },
    /// This process stopped running the workflow; it goes on when its executor or another takes
    /// it over.
    #[error("workflow {id} was interrupted: {why}")]
    Interrupted {
        /// Which one.
        id: WorkflowId,
        /// What stopped it here.
        why: String,
    },
    /// Another execution of the workflow holds the lease, or the workflow has ended.
    #[error("this executor no longer runs workflow {id}")]
    LeaseLost {
        /// Which one.
        id: WorkflowId,
        /// What the workflow is now, where it is known.
        status: Option<Status>,
    },
    /// A change was made that rules this one out; nothing of it was committed.
    #[error("conflict: {what}")]
    Conflict {
        /// What stands against it.
        what: String,
    },
    /// A workflow with that deduplication id waits or runs in the queue.
    #[error("{id} holds the deduplication id {deduplication_id:?} in queue {queue:?}")]
    Deduplicated {
        /// The one that holds it.
        id: WorkflowId,
        /// The queue.
        queue: String,
        /// What both have in common.
        deduplication_id: String,
    },
    /// No workflow has that id.
    #[error("there is no workflow {id}")]
    NotFound {
        /// Which one was asked for.
        id: WorkflowId,
    },
    /// An id cannot be one.
    #[error(transparent)]
    InvalidId(#[from] InvalidId),
    /// The call contradicts itself or what the engine was built with.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// A value cannot be recorded, or a record is no such value.
    #[error("a value cannot be recorded or read back: {message}")]
    Json {
        /// What the encoder says.
        message: String,
    },
    /// The engine takes no more work.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// There is no room for the record; nothing was lost, and the store goes on when there is.
    #[error("the disk with the database is full; free space on it")]
    StorageFull,
    /// The store cannot read or write.
    #[error("the database failed: {message}")]
    Storage {
        /// What it says.
        message: String,
    },
    /// Another process has the database.
    #[error("{} is in use{}; end that process or use another data directory", path.display(), holder.map_or_else(String::new, |pid| format!(" by process {pid}")))]
    Locked {
        /// The database.
        path: PathBuf,
        /// The process that has it, where it is known.
        holder: Option<u32>,
    },
    /// The database was written by a later version.
    #[error("{} was written by a later version (its schema is {found}; this version supports {known}); use that version, or another data directory", path.display())]
    NewerDatabase {
        /// The database.
        path: PathBuf,
        /// The schema that it has.
        found: u32,
        /// The latest schema that this program knows.
        known: u32,
    },
    /// The file is no database of this engine.
    #[error("{} is not a database of this program ({why}); move it away, or use another data directory", path.display())]
    ForeignDatabase {
        /// The file.
        path: PathBuf,
        /// How that was seen.
        why: String,
    },
    /// The database is damaged.
    #[error("{} is damaged ({detail}); restore it from a backup, or move it away to start empty", path.display())]
    CorruptDatabase {
        /// The database.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The file cannot be opened, made or locked.
    #[error("{operation} {}: {message}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        message: String,
    },
}

impl Error {
    /// A stable word for programs.
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

    /// Whether the same may succeed later.
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

    /// Whether the store works and what it was given cannot be: the workflow that gave it learns
    /// of it and goes on.
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
