//! The catalogue of errors: each stable code with its exit code, HTTP status and remedy.
//!
//! Libraries return their own `Error` enums; the outermost layer maps each to a [`Problem`] through
//! this list. Each code has a page under `docs/errors/`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

names! {
    /// A stable error code. The text of a code never changes once released.
    pub enum Code: "error code" {
        /// An argument or value is invalid.
        InvalidInput = "INVALID_INPUT",
        /// An access rule has an invalid form, or the stored rules have.
        RuleInvalid = "RULE_INVALID",
        /// A path inside a sandbox is not absolute, or cannot be used.
        PathInvalid = "PATH_INVALID",
        /// There is no such sandbox, snapshot, command or operation, or it belongs to another
        /// owner.
        NotFound = "NOT_FOUND",
        /// There is no such file or directory in the sandbox.
        FileNotFound = "FILE_NOT_FOUND",
        /// No tool is registered under that name.
        ToolUnknown = "TOOL_UNKNOWN",
        /// The packages that snippets import are not available at the configured location.
        LibraryUnavailable = "LIBRARY_UNAVAILABLE",
        /// The sandbox is in a state that does not allow the operation.
        InvalidState = "INVALID_STATE",
        /// The sandbox has ended permanently.
        SandboxTerminated = "SANDBOX_TERMINATED",
        /// The sandbox's access rules deny that use of a path.
        AccessDenied = "ACCESS_DENIED",
        /// The request names no API key where one is required, or one that is unknown, revoked or
        /// expired.
        Unauthenticated = "UNAUTHENTICATED",
        /// The caller may not request the operation, or the request comes from another web site.
        Forbidden = "FORBIDDEN",
        /// The sandbox's network policy does not allow that host, port or address.
        EgressDenied = "EGRESS_DENIED",
        /// A host resolves to an address of the local machine or of a private network.
        EgressInternal = "EGRESS_INTERNAL",
        /// The traffic names another host than the one that the connection is to.
        EgressMismatch = "EGRESS_MISMATCH",
        /// An allowed host cannot be resolved or reached.
        EgressUnreachable = "EGRESS_UNREACHABLE",
        /// A response to a request with a secret cannot be redacted.
        EgressUnreadable = "EGRESS_UNREADABLE",
        /// A request contains the placeholder of a secret whose value the egress process does not
        /// have.
        SecretMissing = "SECRET_MISSING",
        /// There is no secret of that id or name in the vault, or it belongs to another owner.
        SecretNotFound = "SECRET_NOT_FOUND",
        /// The secret belongs to another owner than the one on whose behalf it is used.
        SecretForbidden = "SECRET_FORBIDDEN",
        /// There is no file with that reference to a secret.
        SecretRefNotFound = "SECRET_REF_NOT_FOUND",
        /// A file is no reference to a secret.
        SecretRefInvalid = "SECRET_REF_INVALID",
        /// The secret has no such field, or several and none was named.
        SecretFieldNotFound = "SECRET_FIELD_NOT_FOUND",
        /// The value of a secret cannot be delivered in this way.
        SecretValueInvalid = "SECRET_VALUE_INVALID",
        /// The vault does not answer, or has no key.
        SecretBackendUnavailable = "SECRET_BACKEND_UNAVAILABLE",
        /// Two secrets are for one variable.
        DuplicateEnv = "DUPLICATE_ENV",
        /// A sealed secret has an invalid form.
        InvalidEnvelope = "INVALID_ENVELOPE",
        /// A key has an invalid form.
        InvalidKey = "INVALID_KEY",
        /// A sealed secret was sealed for another key or use, or was changed.
        DecryptFailed = "DECRYPT_FAILED",
        /// It conflicts with existing state: the name is taken, or the object exists with other
        /// properties.
        Conflict = "CONFLICT",
        /// Another process listens on that port of the host.
        PortInUse = "PORT_IN_USE",
        /// The owner has reached a quota.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// The caller has sent too many requests, or too much data, in a short time.
        RateLimited = "RATE_LIMITED",
        /// The operation was cancelled before it ended.
        Cancelled = "CANCELLED",
        /// There is no bundle with that id, or the prefix matches several.
        BundleNotFound = "BUNDLE_NOT_FOUND",
        /// There is no image of that name in the store, or in its registry.
        ImageNotFound = "IMAGE_NOT_FOUND",
        /// The image is damaged, is of a kind that is not supported, or contains what no image may
        /// contain.
        ImageInvalid = "IMAGE_INVALID",
        /// The stored bundle does not match its content hash or its own rules.
        BundleInvalid = "BUNDLE_INVALID",
        /// The changes exceed a limit of the bundle; the view is kept.
        BundleTooLarge = "BUNDLE_TOO_LARGE",
        /// The host's files changed since the view was taken.
        BundleConflict = "BUNDLE_CONFLICT",
        /// Another command is deciding about the same bundle or project.
        Busy = "BUSY",
        /// The image does not exist for the platform.
        ImagePlatformMissing = "IMAGE_PLATFORM_MISSING",
        /// The image is larger than allowed.
        ImageTooLarge = "IMAGE_TOO_LARGE",
        /// Sandboxes or runs use the image.
        ImageInUse = "IMAGE_IN_USE",
        /// The registry refuses access.
        RegistryUnauthorized = "REGISTRY_UNAUTHORIZED",
        /// The registry limits the rate of requests.
        RegistryRateLimited = "REGISTRY_RATE_LIMITED",
        /// The registry cannot be reached, or fails.
        RegistryUnreachable = "REGISTRY_UNREACHABLE",
        /// The caller may not use that directory outside of the sandbox for a synchronization.
        VfsForbidden = "VFS_FORBIDDEN",
        /// Both sides of a synchronization have changed the same files.
        SyncConflict = "SYNC_CONFLICT",
        /// A synchronization would copy more than allowed.
        SyncTooLarge = "SYNC_TOO_LARGE",
        /// A requested path may never be applied.
        PathRefused = "PATH_REFUSED",
        /// A change to a file that host tools execute was not accepted by name.
        ExecutedFile = "EXECUTED_FILE",
        /// A new content that its diff does not show was not accepted.
        UnseenContent = "UNSEEN_CONTENT",
        /// The directory may not be used as a project.
        ProjectRefused = "PROJECT_REFUSED",
        /// A requested wall is unavailable on this host.
        WallUnavailable = "WALL_UNAVAILABLE",
        /// A requested limit is unavailable on this host.
        LimitUnavailable = "LIMIT_UNAVAILABLE",
        /// Setting up the sandbox failed.
        LaunchFailed = "LAUNCH_FAILED",
        /// The command was ended by its time limit.
        TimedOut = "TIMED_OUT",
        /// The command was ended because it used more memory than allowed.
        OutOfMemory = "OUT_OF_MEMORY",
        /// The command was ended because it used more disk than allowed.
        DiskExceeded = "DISK_EXCEEDED",
        /// The command was ended because it wrote more output than allowed.
        OutputExceeded = "OUTPUT_EXCEEDED",
        /// The sandbox's runtime, or this host, does not support the operation.
        Unsupported = "UNSUPPORTED",
        /// The server, or the process that holds the sandboxes, does not answer.
        Unreachable = "UNREACHABLE",
        /// It is unknown whether the operation happened, and no process knows.
        OutcomeUnknown = "OUTCOME_UNKNOWN",
        /// The database is damaged, or was written by a newer version.
        DatabaseInvalid = "DATABASE_INVALID",
        /// There is no disk space for data that Stockade has to write.
        StorageFull = "STORAGE_FULL",
        /// A file or system operation of Stockade itself failed.
        Io = "IO",
    }
}

impl Code {
    /// The exit code of a command that ends with this error: 124 for a timeout, 137 for a command
    /// that a limit killed, 2 for invalid input, 1 for a negative answer, 125 for a failure of
    /// Stockade (as `docker run` and `env` do).
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::TimedOut => 124,
            Self::OutOfMemory | Self::DiskExceeded | Self::OutputExceeded => 137,
            Self::InvalidInput
            | Self::RuleInvalid
            | Self::PathInvalid
            | Self::DuplicateEnv
            | Self::InvalidEnvelope
            | Self::InvalidKey => 2,
            Self::NotFound
            | Self::FileNotFound
            | Self::ToolUnknown
            | Self::LibraryUnavailable
            | Self::InvalidState
            | Self::SandboxTerminated
            | Self::AccessDenied
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::EgressDenied
            | Self::EgressInternal
            | Self::EgressMismatch
            | Self::EgressUnreachable
            | Self::EgressUnreadable
            | Self::SecretMissing
            | Self::SecretNotFound
            | Self::SecretForbidden
            | Self::SecretRefNotFound
            | Self::SecretRefInvalid
            | Self::SecretFieldNotFound
            | Self::SecretValueInvalid
            | Self::SecretBackendUnavailable
            | Self::DecryptFailed
            | Self::Conflict
            | Self::PortInUse
            | Self::QuotaExceeded
            | Self::RateLimited
            | Self::Cancelled
            | Self::BundleNotFound
            | Self::ImageNotFound
            | Self::ImageInvalid
            | Self::BundleInvalid
            | Self::BundleTooLarge
            | Self::BundleConflict
            | Self::Busy
            | Self::ImagePlatformMissing
            | Self::ImageTooLarge
            | Self::ImageInUse
            | Self::RegistryUnauthorized
            | Self::RegistryRateLimited
            | Self::RegistryUnreachable
            | Self::VfsForbidden
            | Self::SyncConflict
            | Self::SyncTooLarge
            | Self::PathRefused
            | Self::ExecutedFile
            | Self::UnseenContent => 1,
            Self::ProjectRefused
            | Self::WallUnavailable
            | Self::LimitUnavailable
            | Self::LaunchFailed
            | Self::Unsupported
            | Self::Unreachable
            | Self::OutcomeUnknown
            | Self::DatabaseInvalid
            | Self::StorageFull
            | Self::Io => 125,
        }
    }

    /// The HTTP status that carries this code.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidInput
            | Self::RuleInvalid
            | Self::PathInvalid
            | Self::ProjectRefused
            | Self::DuplicateEnv
            | Self::InvalidEnvelope
            | Self::InvalidKey => 400,
            Self::Unauthenticated => 401,
            Self::AccessDenied
            | Self::Forbidden
            | Self::SecretForbidden
            | Self::EgressDenied
            | Self::EgressInternal
            | Self::EgressMismatch
            | Self::RegistryUnauthorized
            | Self::VfsForbidden
            | Self::PathRefused
            | Self::ExecutedFile
            | Self::UnseenContent => 403,
            Self::NotFound
            | Self::FileNotFound
            | Self::ToolUnknown
            | Self::LibraryUnavailable
            | Self::ImageNotFound
            | Self::ImagePlatformMissing
            | Self::SecretNotFound
            | Self::SecretRefNotFound
            | Self::SecretFieldNotFound
            | Self::BundleNotFound => 404,
            Self::TimedOut => 408,
            Self::InvalidState
            | Self::Conflict
            | Self::Cancelled
            | Self::BundleConflict
            | Self::SyncConflict
            | Self::PortInUse
            | Self::ImageInUse
            | Self::Busy => 409,
            Self::SandboxTerminated => 410,
            Self::BundleTooLarge | Self::ImageTooLarge | Self::SyncTooLarge => 413,
            Self::BundleInvalid
            | Self::ImageInvalid
            | Self::SecretRefInvalid
            | Self::SecretValueInvalid
            | Self::DecryptFailed => 422,
            Self::QuotaExceeded | Self::RateLimited | Self::RegistryRateLimited => 429,
            Self::LaunchFailed | Self::OutcomeUnknown | Self::DatabaseInvalid | Self::Io => 500,
            Self::WallUnavailable | Self::LimitUnavailable | Self::Unsupported => 501,
            Self::EgressUnreachable | Self::EgressUnreadable | Self::RegistryUnreachable => 502,
            Self::Unreachable | Self::SecretMissing | Self::SecretBackendUnavailable => 503,
            Self::OutOfMemory | Self::DiskExceeded | Self::OutputExceeded | Self::StorageFull => {
                507
            }
        }
    }

    /// Whether the same call may succeed later without a change.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::LaunchFailed
                | Self::Busy
                | Self::EgressUnreachable
                | Self::RateLimited
                | Self::RegistryRateLimited
                | Self::RegistryUnreachable
                | Self::SecretBackendUnavailable
                | Self::Unreachable
                | Self::StorageFull
                | Self::Io
        )
    }
}

/// An error as Stockade reports it, the same in every interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// What failed, in one sentence.
    pub message: String,
    /// Why, if that is known.
    pub cause: Option<String>,
    /// What to do about it: a command to paste, if there is one.
    pub remediation: Option<String>,
    /// Whether the same call may succeed later without a change.
    pub retryable: bool,
}

impl Problem {
    /// A problem without a cause and remedy.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            cause: None,
            remediation: None,
            retryable: code.retryable(),
        }
    }

    /// The problem of a limit that this host cannot enforce; its remedy is to run without it.
    pub fn limit_unavailable(limit: &str, reason: &str) -> Self {
        let message = format!(
            "the limit `{limit}` cannot be enforced on this host, so nothing was run (--best-effort \
             {limit} runs without it)"
        );
        Self::new(Code::LimitUnavailable, message).because(reason)
    }

    /// The problem for an error, with the sources of the error as its cause.
    pub fn caused(code: Code, error: &dyn std::error::Error) -> Self {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        let problem = Self::new(code, error.to_string());
        if causes.is_empty() { problem } else { problem.because(causes.join(": ")) }
    }

    /// The same problem with a cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The same problem with a remedy.
    #[must_use]
    pub fn remedied_by(mut self, remediation: impl Into<String>) -> Self {
        self.remediation = Some(remediation.into());
        self
    }
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
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    }

    #[test]
    fn the_errors_behind_an_error_are_its_cause() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Chain(&'static str, #[source] Option<Box<Self>>);
        let inner = Chain("b", Some(Box::new(Chain("c", None))));
        let problem = Problem::caused(Code::Io, &Chain("a", Some(Box::new(inner))));
        assert_eq!(problem, Problem::new(Code::Io, "a").because("b: c"));
        assert_eq!(Problem::caused(Code::Io, &Chain("a", None)), Problem::new(Code::Io, "a"));
    }
}
