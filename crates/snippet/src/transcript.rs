//! What is answered to whoever runs a snippet. The first six fields are those of the reference.

use serde_json::{Map, Value};

/// What happened.
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
    /// How long the run took, in milliseconds; 0 when there was none.
    pub duration_ms: u64,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// How far it came.
    pub phase: Phase,
    /// What kind of thing went wrong first, if anything did.
    pub error_code: Option<ErrorCode>,
    /// What the user should know although nothing went wrong.
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
    /// Its version; `None` when it is not the package, but the small implementation of it that is
    /// built in.
    pub version: Option<String>,
    /// Whether it is built in.
    pub built_in: bool,
}

/// A part of the way of a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The request was looked at.
    Input,
    /// The files were checked.
    Validate,
    /// Imports were resolved.
    Bundle,
    /// The snippet ran.
    Run,
}

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request breaks a limit.
    InputInvalid,
    /// A file says what a snippet may not say.
    ValidationFailed,
    /// An import means nothing.
    BundleFailed,
    /// The snippet threw, or left a rejection unhandled.
    RuntimeError,
    /// The snippet waits for something that cannot happen.
    NeverSettles,
    /// Its code, with that of the library set, is more than a realm takes.
    CodeTooLarge,
    /// Its time was over.
    Timeout,
    /// Whoever asked has taken it back.
    Aborted,
    /// What runs snippets failed.
    WorkerError,
}

impl Transcript {
    /// A transcript of something that ended before it ran.
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

    /// The transcript of a run that what runs snippets has failed.
    pub(crate) fn failed(error: String) -> Self {
        Self::refused(Phase::Run, ErrorCode::WorkerError, vec![error])
    }

    /// Whether everything went well.
    pub const fn is_clean(&self) -> bool {
        self.errors.is_empty() && !self.timed_out
    }
}
