//! Why a request failed, and what an answer means for an operation of a runtime.

use std::io;

use serde::Deserialize;
use stockade_core::SandboxId;
use stockade_runtime::Error;

/// A service, as errors name it.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Its name.
    pub name: &'static str,
    /// How to give another key: a command that can be pasted.
    pub key_remedy: &'static str,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The service could not be reached: it has not seen the request.
    #[error("cannot connect to {0}")]
    Connect(String, #[source] io::Error),
    /// The connection ended before the answer: the service may have seen the request.
    #[error("the connection to {0} ended: {1}")]
    Lost(String, String),
    /// No answer came in time: the service may have seen the request.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// The service refused.
    #[error("the answer was {status}: {code} {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The code of the error, if the answer has one.
        code: String,
        /// Its text.
        message: String,
        /// How long the service asks to wait, in seconds.
        retry_after: Option<u64>,
    },
    /// The answer cannot be understood.
    #[error("{0} answered something else than expected: {1}")]
    Answer(String, String),
}

/// The body of an error.
#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The longest text of an error that is passed on.
const MESSAGE_CHARACTERS: usize = 1000;

impl Failure {
    /// The refusal in an answer.
    pub fn refused(status: u16, retry_after: Option<u64>, body: &[u8]) -> Self {
        let Body { code, message } = serde_json::from_slice(body).unwrap_or_else(|_| Body {
            code: String::new(),
            message: String::from_utf8_lossy(body).into_owned(),
        });
        let shorten = |text: String| -> String {
            text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARACTERS).collect()
        };
        Self::Refused { status, code: shorten(code), message: shorten(message), retry_after }
    }

    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the service has certainly done nothing, so that any request may be repeated.
    pub fn is_unseen(&self) -> bool {
        matches!(self, Self::Connect(..)) || matches!(self.status(), Some(429 | 503))
    }

    /// Whether a request that may be repeated can succeed later.
    pub fn is_transient(&self) -> bool {
        self.is_unseen()
            || matches!(self, Self::Lost(..) | Self::TimedOut(_))
            || matches!(self.status(), Some(500 | 502 | 504))
    }

    /// The error of an operation on a sandbox. `operation` is what may have happened.
    pub fn of_sandbox(self, service: Service, id: &SandboxId, operation: &str) -> Error {
        match &self {
            Self::Lost(..) | Self::TimedOut(_) | Self::Answer(..) => {
                Error::OutcomeUnknown(format!("{operation} of {id} ({self})"))
            }
            Self::Refused { status, code, message, retry_after } => match status {
                404 | 410 => Error::NoSandbox(id.clone()),
                429 => {
                    let wait =
                        retry_after.map_or_else(String::new, |s| format!("; retry in {s} s"));
                    let name = service.name;
                    Error::Exhausted(format!("{name} has a limit on requests: {message}{wait}"))
                }
                401 | 403 => Error::Unavailable {
                    what: service.name.to_owned(),
                    reason: format!("it refused the key: {code} {message}"),
                    remedy: service.key_remedy.to_owned(),
                },
                400 | 409 | 413 | 422 | 501 => {
                    Error::Invalid(format!("{} refused {operation}: {message}", service.name))
                }
                _ => self.unreachable(service),
            },
            Self::Connect(..) => self.unreachable(service),
        }
    }

    /// The error of an operation that changes nothing.
    pub fn of_reading(self, service: Service, id: &SandboxId) -> Error {
        match self {
            Self::Lost(..) | Self::TimedOut(_) | Self::Answer(..) => self.unreachable(service),
            other => other.of_sandbox(service, id, "the request"),
        }
    }

    /// The error of a service that does not do its work.
    pub fn unreachable(self, service: Service) -> Error {
        match self {
            Self::Connect(place, source) => Error::Unreachable { what: place, source },
            other => Error::Unreachable {
                what: service.name.to_owned(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service { name: "a service", key_remedy: "export KEY=K" };

    #[test]
    fn each_answer_has_its_error() {
        let id = SandboxId::new("box").unwrap();
        let refused = |status| Failure::refused(status, Some(7), br#"{"code":"C","message":"m"}"#);
        let error = |status| refused(status).of_sandbox(SERVICE, &id, "the creation");
        assert!(matches!(error(404), Error::NoSandbox(_)));
        assert!(matches!(error(429), Error::Exhausted(text) if text.contains("retry in 7 s")));
        assert!(matches!(error(401), Error::Unavailable { .. }));
        assert!(matches!(error(400), Error::Invalid(text) if text.ends_with(": m")));
        assert!(matches!(error(500), Error::Unreachable { .. }));
        assert!(matches!(error(503), Error::Unreachable { .. }));
        let late = || Failure::TimedOut("http://a".to_owned());
        assert!(matches!(late().of_sandbox(SERVICE, &id, "it"), Error::OutcomeUnknown(_)));
        assert!(matches!(late().of_reading(SERVICE, &id), Error::Unreachable { .. }));
        assert!(refused(429).is_unseen() && refused(503).is_unseen());
        assert!(refused(500).is_transient() && !refused(500).is_unseen());
        assert!(!refused(400).is_transient());
        let odd = Failure::refused(500, None, b"<html>\x1b[31m");
        assert!(!odd.to_string().contains('\x1b'), "{odd}");
    }
}
