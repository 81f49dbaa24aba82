//! The outcomes of attempts and runs.

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::engine::sandbox::AttemptOutcome;
use crate::engine::task_error::TaskError;
use crate::schedule::Key;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// Its output.
    Finished(Value),
    /// Its error.
    Failed(Value),
}

/// How one attempt of a task ended.
pub(super) type Outcome = (Key, Result<AttemptOutcome, TaskError>);

/// A running attempt.
pub(super) type Attempt = BoxFuture<'static, Outcome>;
