//! What requests to the API server fail with, and what errors of the trait they are.

use std::io;
use std::time::Duration;

use stockade_runtime::Error;

/// What is unreachable in messages.
pub(crate) const CLUSTER: &str = "the API server of the cluster";
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What helps if the server refuses this client.
const RIGHTS: &str = "kubectl auth can-i create pods --all-namespaces";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server refused it.
    #[error("the API server answered {code} {reason}: {message}")]
    Refused {
        code: u16,
        reason: String,
        message: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    /// The connection failed; whether the request had an effect is unknown.
    #[error("{0}")]
    Lost(String),
    /// No answer came in time.
    #[error("no answer came in time")]
    TimedOut,
    /// The answer is not what it should be.
    #[error("the answer of the API server is invalid: {0}")]
    Odd(String),
}

impl Failure {
    /// The status of the answer, if there was one.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Lost(_) | Self::TimedOut | Self::Odd(_) => None,
        }
    }

    /// Whether the same request may succeed a moment later, and after what pause at least.
    pub(crate) fn retry(&self) -> Option<Duration> {
        match self {
            Self::Refused { code: 429 | 500 | 502 | 503 | 504, retry_after, .. } => {
                Some(retry_after.unwrap_or_default().min(LONGEST_PAUSE))
            }
            Self::Lost(_) | Self::TimedOut => Some(Duration::ZERO),
            Self::Refused { .. } | Self::Odd(_) => None,
        }
    }

    /// The error of an operation; `verb` is what was attempted.
    pub(crate) fn into_error(self, verb: &'static str) -> Error {
        let text = self.to_string();
        match self {
            Self::Refused { code: 401 | 403, .. } => Error::Unavailable {
                what: CLUSTER.to_owned(),
                reason: text,
                remedy: RIGHTS.to_owned(),
            },
            Self::Refused { code: 400 | 422, .. } => Error::Invalid(text),
            Self::Refused { code: 409, .. } => Error::Conflict(text),
            Self::Refused { code: 429, .. } => Error::Exhausted(text),
            Self::TimedOut => Error::Deadline(verb),
            Self::Refused { .. } | Self::Lost(_) | Self::Odd(_) => {
                Error::Unreachable { what: CLUSTER.to_owned(), source: io::Error::other(text) }
            }
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let seconds =
                    status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self::Refused {
                    code: status.code,
                    reason: status.reason.clone(),
                    message: status.message.clone(),
                    retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
                }
            }
            kube::Error::SerdeError(error) => Self::Odd(error.to_string()),
            kube::Error::UpgradeConnection(error) => upgrade(&error),
            other => Self::Lost(chain(&other)),
        }
    }
}

/// The failure of an exec that did not become a WebSocket.
fn upgrade(error: &kube::client::UpgradeConnectionError) -> Failure {
    match error {
        kube::client::UpgradeConnectionError::ProtocolSwitch(status) => Failure::Refused {
            code: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default().to_owned(),
            message: "the request for exec was refused".to_owned(),
            retry_after: None,
        },
        other => Failure::Lost(chain(other)),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> Failure {
        let (reason, message) = (String::new(), String::new());
        Failure::Refused { code, reason, message, retry_after: None }
    }

    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_not() {
        for code in [429, 500, 502, 503, 504] {
            assert!(refused(code).retry().is_some(), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 410, 422] {
            assert!(refused(code).retry().is_none(), "{code}");
        }
        assert!(Failure::TimedOut.retry().is_some());
        let long = Failure::Refused {
            code: 429,
            reason: String::new(),
            message: String::new(),
            retry_after: Some(Duration::from_secs(3600)),
        };
        assert_eq!(long.retry(), Some(LONGEST_PAUSE));
    }

    #[test]
    fn each_answer_has_an_error_of_its_kind() {
        assert!(matches!(refused(403).into_error("x"), Error::Unavailable { .. }));
        assert!(matches!(refused(422).into_error("x"), Error::Invalid(_)));
        assert!(matches!(refused(429).into_error("x"), Error::Exhausted(_)));
        assert!(matches!(refused(500).into_error("x"), Error::Unreachable { .. }));
        assert!(matches!(Failure::TimedOut.into_error("x"), Error::Deadline("x")));
    }
}
