//! Why audit records cannot be written or read.

use std::io;

use rustix::io::Errno;

/// Why audit records cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file with the records, or its directory, cannot be used.
    #[error("the audit records cannot be {operation}")]
    Log {
        /// What was done: `opened`, `read`, `written`.
        operation: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The key or the checkpoint cannot be used.
    #[error("the {what} of the audit records cannot be {operation}")]
    Key {
        /// `key` or `checkpoint`.
        what: &'static str,
        /// What was done.
        operation: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The key is not one.
    #[error("the key of the audit records is damaged")]
    InvalidKey,
    /// The directory of the key, or what lies in it, belongs to another user, or others may change it.
    #[error("the key of the audit records belongs to another user, or others can use it")]
    ForeignKey,
    /// Another process has locked the file for a long time.
    #[error("another process has been writing audit records for too long")]
    Locked,
    /// A record cannot be written as JSON.
    #[error("the audit record cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

impl Error {
    pub(crate) fn log(operation: &'static str, errno: Errno) -> Self {
        Self::Log { operation, source: errno.into() }
    }

    pub(crate) fn key(what: &'static str, operation: &'static str, errno: Errno) -> Self {
        Self::Key { what, operation, source: errno.into() }
    }

    /// Whether there is no space for the record.
    pub fn is_full(&self) -> bool {
        let (Self::Log { source, .. } | Self::Key { source, .. }) = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
