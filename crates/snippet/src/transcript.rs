//! The result of a snippet. The first six fields are those of the reference.

use serde_json::{Map, Value};

/// The transcript of a snippet.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    /// Lines of the console, `[level] text`.
    pub logs: Vec<String>,
    /// The facts of the snippet's systems when it ended.
    pub facts: Map<String, Value>,
    /// The values of their derivations.
    pub derived: Map<String, Value>,
    /// What went wrong, in order; empty when nothing did.
    pub errors: Vec<String>,
    /// How long the run took, in milliseconds; 0 if it did not run.
    pub duration_ms: u64,
    /// Whether it timed out.
    pub timed_out: bool,
    /// The phase that it reached.
    pub phase: Phase,
    /// The kind of the first failure, if there was one.
    pub error_code: Option<ErrorCode>,
    /// Warnings for the user that are not failures.
    pub warnings: Vec<String>,
    /// The packages that the files import.
    #[serde(default)]
    pub libraries: Vec<UsedLibrary>,
}

/// A package that a snippet imports.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsedLibrary {
    /// Its name.
    pub name: String,
    /// Its version; `None` for the small built-in implementation.
    pub version: Option<String>,
    /// Whether it is built in.
    pub built_in: bool,
}

/// A phase of a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The request is validated.
    Input,
    /// The files are checked.
    Validate,
    /// Imports are resolved.
    Bundle,
    /// The snippet runs.
    Run,
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request breaks a limit.
    InputInvalid,
    /// A file contains code that is not allowed in a snippet.
    ValidationFailed,
    /// An import cannot be resolved.
    BundleFailed,
    /// The snippet threw, or left a rejection unhandled.
    RuntimeError,
    /// The snippet waits for a promise that cannot settle.
    NeverSettles,
    /// Its code and the library set are larger than a realm accepts.
    CodeTooLarge,
    /// It timed out.
    Timeout,
    /// It used more memory than a realm has.
    OutOfMemory,
    /// The caller cancelled it.
    Aborted,
    /// The runner failed.
    WorkerError,
}

impl Transcript {
    /// The transcript of a snippet that was refused before it ran.
    pub(crate) fn refused(phase: Phase, code: ErrorCode, errors: Vec<String>) -> Self {
        Self {
            logs: Vec::new(),
            facts: Map::new(),
            derived: Map::new(),
            errors,
            duration_ms: 0,
            timed_out: false,
            phase,
            error_code: Some(code),
            warnings: Vec::new(),
            libraries: Vec::new(),
        }
    }

    /// The transcript of a run in which the runner failed.
    pub(crate) fn failed(error: String) -> Self {
        Self::refused(Phase::Run, ErrorCode::WorkerError, vec![error])
    }

    /// Whether there was no failure.
    pub const fn is_clean(&self) -> bool {
        self.errors.is_empty() && !self.timed_out
    }
}
