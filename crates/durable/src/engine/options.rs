//! The options for starting a workflow.

use std::time::Duration;

use crate::{Statement, WorkflowId};

/// How a workflow is started.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// Its id; by default a unique one. An existing id joins the workflow that has it.
    pub id: Option<WorkflowId>,
    /// The queue that it waits in; without one it starts immediately in this process.
    pub queue: Option<&'static str>,
    /// A queue accepts no second waiting or running workflow with the same one.
    pub deduplication_id: Option<String>,
    /// Workflows with lower values leave the queue first.
    pub priority: i32,
    /// How long it is held back from its queue.
    pub delay: Option<Duration>,
    /// How long it may run, counted from its first run; then it is cancelled with its descendants.
    pub timeout: Option<Duration>,
    /// Its owner.
    pub owner: Option<String>,
    /// Statements that are committed together with the workflow's row; not when an existing
    /// workflow is joined.
    pub statements: Vec<Statement>,
}
