//! Errors of the trait, as they travel: what is a constant text on one side is set again on the other one.

use std::io;

use serde::{Deserialize, Serialize};
use stockade_core::sandbox::LimitName;
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Capability, Error, State};

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The pod has no sandbox yet.
    NoSandbox,
    /// There is no such command.
    NoExec(ExecId),
    /// The sandbox was started differently.
    Conflict,
    /// The sandbox is in a state in which this is not possible.
    WrongState(State),
    /// A pod does not support it.
    Unsupported {
        /// The name of the capability.
        capability: String,
        /// The reason.
        reason: String,
        /// What helps.
        remedy: Option<String>,
    },
    /// A limit cannot be enforced.
    Limit {
        /// The limit.
        limit: LimitName,
        /// The reason.
        reason: String,
        /// What helps.
        remedy: String,
    },
    /// A limit is exceeded.
    Exceeded {
        /// The limit.
        limit: LimitName,
        /// The reason.
        reason: String,
        /// What helps.
        remedy: String,
    },
    /// A request that can never be granted.
    Invalid(String),
    /// A wall is not available.
    Wall {
        /// Its name.
        wall: String,
        /// The reason.
        reason: String,
    },
    /// Something is exhausted, or fails in the pod.
    Exhausted(String),
    /// A file operation failed.
    File {
        /// The path.
        path: String,
        /// The error number.
        errno: Option<i32>,
        /// The text, where there is no number.
        text: String,
    },
    /// Nothing accepts connections there.
    Connect {
        /// The target.
        target: String,
        /// The error number.
        errno: Option<i32>,
        /// The text, where there is no number.
        text: String,
    },
    /// It is unknown whether it happened.
    OutcomeUnknown(String),
    /// It took too long.
    Deadline,
}

/// Error kinds that are made without a number, with the number that means the same.
const KINDS: [(io::ErrorKind, i32); 12] = [
    (io::ErrorKind::NotFound, 2),
    (io::ErrorKind::PermissionDenied, 13),
    (io::ErrorKind::AlreadyExists, 17),
    (io::ErrorKind::NotADirectory, 20),
    (io::ErrorKind::IsADirectory, 21),
    (io::ErrorKind::InvalidInput, 22),
    (io::ErrorKind::StorageFull, 28),
    (io::ErrorKind::ReadOnlyFilesystem, 30),
    (io::ErrorKind::InvalidFilename, 36),
    (io::ErrorKind::DirectoryNotEmpty, 39),
    (io::ErrorKind::ConnectionRefused, 111),
    (io::ErrorKind::TimedOut, 110),
];

fn number(error: &io::Error) -> Option<i32> {
    let of_kind = || KINDS.iter().find(|(kind, _)| *kind == error.kind());
    error.raw_os_error().or_else(|| of_kind().map(|(_, number)| *number))
}

fn cause(errno: Option<i32>, text: String) -> io::Error {
    errno.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error)
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSandbox(_) => Self::NoSandbox,
            Error::NoExec { exec, .. } => Self::NoExec(exec),
            Error::Conflict(_) => Self::Conflict,
            Error::WrongState { state, .. } => Self::WrongState(state),
            Error::Unsupported { capability, reason, remedy } => {
                Self::Unsupported { capability: capability.to_string(), reason, remedy }
            }
            Error::Limit { limit, reason, remedy } => Self::Limit { limit, reason, remedy },
            Error::Exceeded { limit, reason, remedy } => Self::Exceeded { limit, reason, remedy },
            Error::Invalid(text) | Error::PathRefused(text) => Self::Invalid(text),
            Error::Wall { wall, reason } => Self::Wall { wall, reason },
            Error::File { path, source, .. } => {
                Self::File { path, errno: number(&source), text: source.to_string() }
            }
            Error::Connect { target, source } => {
                Self::Connect { target, errno: number(&source), text: source.to_string() }
            }
            Error::OutcomeUnknown(text) => Self::OutcomeUnknown(text),
            Error::Deadline(_) => Self::Deadline,
            other => Self::Exhausted(chain(&other)),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl Fault {
    /// The error of an operation on a sandbox.
    #[must_use]
    pub fn into_error(self, id: &SandboxId, operation: &'static str) -> Error {
        match self {
            Self::NoSandbox => Error::NoSandbox(id.clone()),
            Self::NoExec(exec) => Error::NoExec { sandbox: id.clone(), exec },
            Self::Conflict => Error::Conflict(format!("the sandbox {id}")),
            Self::WrongState(state) => Error::WrongState { id: id.clone(), state, operation },
            Self::Unsupported { capability, reason, remedy } => {
                match Capability::ALL.into_iter().find(|known| known.as_str() == capability) {
                    Some(capability) => Error::Unsupported { capability, reason, remedy },
                    None => Error::Invalid(format!("{capability}: not supported: {reason}")),
                }
            }
            Self::Limit { limit, reason, remedy } => Error::Limit { limit, reason, remedy },
            Self::Exceeded { limit, reason, remedy } => Error::Exceeded { limit, reason, remedy },
            Self::Invalid(text) => Error::Invalid(text),
            Self::Wall { wall, reason } => Error::Wall { wall, reason },
            Self::Exhausted(text) => Error::Exhausted(text),
            Self::File { path, errno, text } => {
                Error::File { operation, path, source: cause(errno, text) }
            }
            Self::Connect { target, errno, text } => {
                Error::Connect { target, source: cause(errno, text) }
            }
            Self::OutcomeUnknown(text) => Error::OutcomeUnknown(text),
            Self::Deadline => Error::Deadline(operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_files_keep_their_kind() {
        let id = SandboxId::new("box").unwrap();
        for (kind, _) in KINDS {
            let error =
                Error::File { operation: "read", path: "/x".to_owned(), source: kind.into() };
            let text = serde_json::to_string(&Fault::from(error)).unwrap();
            let fault: Fault = serde_json::from_str(&text).unwrap();
            match fault.into_error(&id, "read") {
                Error::File { source, path, .. } => {
                    assert_eq!((source.kind(), path.as_str()), (kind, "/x"));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_error_is_about_the_sandbox_that_the_caller_knows() {
        let (inside, outside) = (SandboxId::new("in").unwrap(), SandboxId::new("out").unwrap());
        let fault = Fault::from(Error::NoSandbox(inside));
        assert_eq!(fault.into_error(&outside, "pause").to_string(), "there is no sandbox out");
        let error =
            Error::Unreachable { what: "the keeper".to_owned(), source: io::Error::other("gone") };
        assert_eq!(
            Fault::from(error),
            Fault::Exhausted("cannot reach the keeper: gone".to_owned())
        );
    }
}
