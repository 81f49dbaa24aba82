//! The catalogue of errors: each stable code with its exit code, HTTP status and remedy.
//!
//! Libraries return their own `Error` enums; the edge maps each to a [`Problem`]
//! through this list. Each code has a page under `docs/errors/`.

use serde::Serialize;

/// A stable error code. The text of a code never changes once released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// An argument or value could not be understood.
    InvalidInput,
    /// There is no bundle with that id, or the prefix names several.
    BundleNotFound,
    /// The stored bundle does not match its content hash or its own rules.
    BundleInvalid,
    /// The changes exceed a limit of the bundle; the view is kept.
    BundleTooLarge,
    /// The host's files changed since the view was taken.
    BundleConflict,
    /// A path was asked for that may never be applied.
    PathRefused,
    /// A change to a file that host tools execute was not accepted by name.
    ExecutedFile,
    /// The directory may not be used as a project.
    ProjectRefused,
    /// A wall that was asked for cannot be raised on this host.
    WallUnavailable,
    /// A limit that was asked for cannot be held on this host.
    LimitUnavailable,
    /// The sandbox failed while it was being set up.
    LaunchFailed,
    /// The command was ended by its time limit.
    TimedOut,
    /// The command was ended because it used more memory than allowed.
    OutOfMemory,
    /// The command was ended because it used more disk than allowed.
    DiskExceeded,
    /// The command was ended because it wrote more output than allowed.
    OutputExceeded,
    /// A file or system operation of Stockade's own failed.
    Io,
}

impl Code {
    /// Every code, in the order of the documents.
    pub const ALL: &'static [Self] = &[
        Self::InvalidInput,
        Self::BundleNotFound,
        Self::BundleInvalid,
        Self::BundleTooLarge,
        Self::BundleConflict,
        Self::PathRefused,
        Self::ExecutedFile,
        Self::ProjectRefused,
        Self::WallUnavailable,
        Self::LimitUnavailable,
        Self::LaunchFailed,
        Self::TimedOut,
        Self::OutOfMemory,
        Self::DiskExceeded,
        Self::OutputExceeded,
        Self::Io,
    ];

    /// The code as it is printed and as its page is named.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "INVALID_INPUT",
            Self::BundleNotFound => "BUNDLE_NOT_FOUND",
            Self::BundleInvalid => "BUNDLE_INVALID",
            Self::BundleTooLarge => "BUNDLE_TOO_LARGE",
            Self::BundleConflict => "BUNDLE_CONFLICT",
            Self::PathRefused => "PATH_REFUSED",
            Self::ExecutedFile => "EXECUTED_FILE",
            Self::ProjectRefused => "PROJECT_REFUSED",
            Self::WallUnavailable => "WALL_UNAVAILABLE",
            Self::LimitUnavailable => "LIMIT_UNAVAILABLE",
            Self::LaunchFailed => "LAUNCH_FAILED",
            Self::TimedOut => "TIMED_OUT",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::DiskExceeded => "DISK_EXCEEDED",
            Self::OutputExceeded => "OUTPUT_EXCEEDED",
            Self::Io => "IO",
        }
    }

    /// The exit code of a command that ends with this error: 124 for a time-out, 137 for a
    /// command that a limit killed, 125 for everything else (as `docker run` and `env` do).
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::TimedOut => 124,
            Self::OutOfMemory | Self::DiskExceeded | Self::OutputExceeded => 137,
            Self::InvalidInput => 2,
            Self::BundleNotFound
            | Self::BundleInvalid
            | Self::BundleTooLarge
            | Self::BundleConflict
            | Self::PathRefused
            | Self::ExecutedFile => 1,
            Self::ProjectRefused
            | Self::WallUnavailable
            | Self::LimitUnavailable
            | Self::LaunchFailed
            | Self::Io => 125,
        }
    }

    /// The HTTP status that carries this code.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidInput | Self::ProjectRefused => 400,
            Self::PathRefused | Self::ExecutedFile => 403,
            Self::BundleNotFound => 404,
            Self::TimedOut => 408,
            Self::BundleConflict => 409,
            Self::BundleTooLarge => 413,
            Self::BundleInvalid => 422,
            Self::WallUnavailable | Self::LimitUnavailable => 501,
            Self::LaunchFailed | Self::Io => 500,
            Self::OutOfMemory | Self::DiskExceeded | Self::OutputExceeded => 507,
        }
    }

    /// Whether the same call may succeed later without any change.
    pub const fn retryable(self) -> bool {
        matches!(self, Self::LaunchFailed | Self::Io)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as it leaves Stockade, the same on every edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The stable code.
    #[serde(serialize_with = "as_text")]
    pub code: Code,
    /// What failed, in one sentence.
    pub message: String,
    /// Why, where that is known.
    pub cause: Option<String>,
    /// What to do about it: a command that can be pasted where there is one.
    pub remediation: Option<String>,
    /// Whether the same call may succeed later without any change.
    pub retryable: bool,
}

impl Problem {
    /// A problem with no cause and no remedy.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            cause: None,
            remediation: None,
            retryable: code.retryable(),
        }
    }

    /// The same problem with its cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The same problem with its remedy.
    #[must_use]
    pub fn remedied_by(mut self, remediation: impl Into<String>) -> Self {
        self.remediation = Some(remediation.into());
        self
    }
}

fn as_text<S: serde::Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_fail() {
        let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_ne!(code.exit_code(), 0, "{code}");
            assert!((400..600).contains(&code.http_status()), "{code}");
        }
    }

    #[test]
    fn a_problem_is_printed_with_its_five_fields() {
        let problem = Problem::new(Code::BundleConflict, "2 files changed on the host")
            .because("src/a.rs")
            .remedied_by("stockade diff latest");
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "code": "BUNDLE_CONFLICT",
                "message": "2 files changed on the host",
                "cause": "src/a.rs",
                "remediation": "stockade diff latest",
                "retryable": false
            })
        );
    }
}
