//! Why there is no agent for a sandbox.

use std::io;

use stockade_core::{Code, Problem};

/// Why there is no agent for a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A fingerprint has another form.
    #[error("{0:?} is no fingerprint of a key")]
    Fingerprint(String),
    /// The key of a host has another form.
    #[error("{0:?} is neither a public key nor the fingerprint of one")]
    HostKey(String),
    /// A permission permits nothing, or contradicts itself.
    #[error("permission {index} is invalid: {why}")]
    Permission {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A private key cannot be used.
    #[error("the private key cannot be used: {0}")]
    PrivateKey(&'static str),
    /// The caller's own agent does not answer.
    #[error("cannot use the ssh agent at {path}")]
    CallersAgent {
        /// Its socket.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A key of the policy is in no agent.
    #[error("there is no key {0}")]
    NoKey(String),
    /// The socket cannot be made.
    #[error("cannot make the socket of the ssh agent")]
    Socket(#[source] io::Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let code = match &error {
            Error::Fingerprint(_) | Error::HostKey(_) | Error::Permission { .. } => {
                Code::RuleInvalid
            }
            Error::PrivateKey(_) | Error::NoKey(_) => Code::InvalidInput,
            Error::CallersAgent { .. } => Code::Unreachable,
            Error::Socket(_) => Code::Io,
        };
        let problem = Self::new(code, error.to_string());
        let problem = match cause {
            Some(cause) => problem.because(cause),
            None => problem,
        };
        match error {
            Error::Fingerprint(_) | Error::NoKey(_) => problem.remedied_by("ssh-add -l"),
            Error::HostKey(_) => problem.remedied_by("ssh-keyscan HOST"),
            Error::CallersAgent { .. } => problem.remedied_by("eval $(ssh-agent) && ssh-add"),
            Error::Permission { .. } | Error::PrivateKey(_) | Error::Socket(_) => problem,
        }
    }
}
