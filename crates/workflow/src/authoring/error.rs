//! Failures of the communication between the host and a realm.

use std::time::Duration;

use stockade_script::realm::Failure;

use crate::graph::Fault;

/// Why a call of a realm failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The process could not be started or not be jailed.
    #[error("the process for workflow files failed to start: {0}")]
    Start(String),
    /// The program has errors.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// The code of the workflow threw.
    #[error("{0}")]
    Threw(Box<Failure>),
    /// The process has ended.
    #[error("the process of the workflow file exited: {0}")]
    Ended(String),
    /// The realm did not answer in time.
    #[error("the workflow file did not {what} within {} s", limit.as_secs())]
    Timeout {
        /// The operation that was too slow.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The answer is invalid.
    #[error("the process of the workflow file sent an invalid answer: {0}")]
    Answer(String),
}
