//! Why an archive could not be written or read.

use std::io;

use stockade_bundle::{RelativePath, beneath};
use stockade_core::{Code, Problem};

/// Why an archive could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive itself could not be written.
    #[error("cannot write the backup")]
    Write(#[source] io::Error),
    /// The archive could not be read: it is no tar file, or it ends early.
    #[error("the backup cannot be read")]
    Read(#[source] io::Error),
    /// The archive is not one of this program, or was changed.
    #[error("the backup is not valid: {0}")]
    Invalid(String),
    /// It has a form that this version does not know.
    #[error("the backup has the form {found}; this version reads {known}")]
    NewerForm {
        /// The form of the archive.
        found: u32,
        /// The newest form that this version reads.
        known: u32,
    },
    /// A file of the data directory cannot be read.
    #[error("cannot read {} of the data directory", path.quoted())]
    File {
        /// The file.
        path: RelativePath,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A directory of the data directory cannot be read.
    #[error("cannot read the data directory")]
    Directory(#[source] beneath::Error),
    /// A file has changed while it was read.
    #[error("{} was changed while it was read", path.quoted())]
    Changed {
        /// The file.
        path: RelativePath,
    },
    /// A file cannot be stored in an archive.
    #[error("{} cannot be in a backup: {reason}", path.quoted())]
    Unsupported {
        /// The file.
        path: RelativePath,
        /// Why.
        reason: &'static str,
    },
    /// A file cannot be created with its owner, mode and attributes.
    #[error("cannot create {}", path.quoted())]
    Create {
        /// The file.
        path: RelativePath,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn file(path: &RelativePath, source: impl Into<io::Error>) -> Self {
        Self::File { path: path.clone(), source: source.into() }
    }

    pub(crate) fn create(path: &RelativePath, source: impl Into<io::Error>) -> Self {
        Self::Create { path: path.clone(), source: source.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let is_full = |source: &io::Error| source.kind() == io::ErrorKind::StorageFull;
        let is_denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        match &error {
            Error::Write(source) | Error::Create { source, .. } if is_full(source) => {
                Self::caused(Code::StorageFull, &error)
            }
            Error::Create { source, .. } if is_denied(source) => Self::caused(Code::Io, &error)
                .remedied_by("restore it as root: the files belong to several users"),
            Error::File { source, .. } if is_denied(source) => Self::caused(Code::Io, &error)
                .remedied_by("make the backup as root, who can read the files of all users"),
            Error::Changed { .. } => Self::caused(Code::Busy, &error)
                .remedied_by("end the commands that use the data directory, and retry"),
            Error::Read(_) | Error::Invalid(_) | Error::NewerForm { .. } => {
                Self::caused(Code::DatabaseInvalid, &error)
            }
            _ => Self::caused(Code::Io, &error),
        }
    }
}

/// The kernel's error, which the variants of this crate name with the path.
pub(crate) fn io_error(error: beneath::Error) -> io::Error {
    match error {
        beneath::Error::Io { source, .. } => source,
        error => io::Error::other(error),
    }
}
