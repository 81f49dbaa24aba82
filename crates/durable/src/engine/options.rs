//! What is said when a workflow is started.

use std::time::Duration;

use crate::{Statement, WorkflowId};

/// How a workflow is started.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// Its id; a unique one when none is given. A known id joins the workflow that has it.
    pub id: Option<WorkflowId>,
    /// The queue that it waits in; without one it begins at once in this process.
    pub queue: Option<&'static str>,
    /// No two workflows that wait or run in the queue have the same.
    pub deduplication_id: Option<String>,
    /// Lower ones leave the queue first.
    pub priority: i32,
    /// How long it stays out of its queue.
    pub delay: Option<Duration>,
    /// How long it may run, counted from its first run; then it is cancelled with all that it
    /// started.
    pub timeout: Option<Duration>,
    /// Whose it is.
    pub owner: Option<String>,
    /// Committed together with the workflow's row; not when a known id is joined.
    pub with: Vec<Statement>,
}
