//! What goes wrong between the host and a realm.

use std::time::Duration;

use stockade_script::realm::Failure;

use crate::graph::Fault;

/// Why a realm did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Its process could not be started, or jailed.
    #[error("the process for workflow files cannot be started: {0}")]
    Start(String),
    /// The program's files are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// The author's code threw.
    #[error("{0}")]
    Threw(Box<Failure>),
    /// Its process has ended, killed or by itself.
    #[error("the process of the workflow file has ended: {0}")]
    Ended(String),
    /// It did not answer in time.
    #[error("the workflow file did not {what} within {} s", limit.as_secs())]
    Late {
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// What it answered is not what was asked for.
    #[error("the process of the workflow file answered with something else: {0}")]
    Answer(String),
}
