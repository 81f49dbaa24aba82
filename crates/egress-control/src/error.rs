//! Why a request to the egress process was not carried out.

use stockade_core::{Code, Problem};

/// Why a request to the egress process was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process cannot be started.
    #[error("the egress process cannot be started: {0}")]
    Start(String),
    /// The process has ended, or did not answer and was killed. Another one is started.
    #[error("the egress process exited: {0}")]
    Ended(String),
    /// The request does not fit into one message.
    #[error("the policy or the credentials are too long for one message")]
    TooLong,
    /// The source does not know the sandbox any more.
    #[error("the sandbox is no longer served")]
    Withdrawn,
    /// The source cannot provide values for the credentials.
    #[error("the credentials cannot be read: {}", .0.message)]
    Credentials(Problem),
    /// This host has no certificate authorities, which are needed to verify the hosts of
    /// credentials.
    #[error("the certificate authorities of this host cannot be read: {0}")]
    Authorities(String),
    /// The process refused the request.
    #[error("{}", in_one_line(.0))]
    Refused(Problem),
}

impl Error {
    /// The problem of a sandbox that is not served for this reason.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self {
            Self::Ended(cause) => {
                Problem::new(Code::Unreachable, "the egress process exited").because(cause)
            }
            Self::Authorities(cause) => {
                let message = "--secret needs this host's CA certificates";
                Problem::new(Code::Unsupported, message)
                    .because(cause)
                    .remedied_by("sudo apt-get install ca-certificates")
            }
            Self::Credentials(problem) => problem.clone(),
            error => not_served(error.to_string()),
        }
    }
}

/// The problem of a sandbox that the egress process does not serve.
#[must_use]
pub fn not_served(cause: impl Into<String>) -> Problem {
    Problem::new(Code::WallUnavailable, "the egress process does not serve the sandbox")
        .because(cause)
        .remedied_by("stockade doctor")
}

/// A problem in one line.
fn in_one_line(problem: &Problem) -> String {
    match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    }
}
