//! The arguments and results of calls of the user's code.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::models::ModelHost;
use crate::graph::{Graph, Task};
use crate::schedule::Key;

/// The time limit of a rendering, and of each other call that does not execute a task.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The current state of a workflow.
#[derive(Debug)]
pub(crate) struct Rendering {
    /// The graph. It is the same value as in the last rendering if nothing has changed.
    pub(crate) graph: Arc<Graph>,
    /// The tables that it depends on.
    pub(crate) read: BTreeSet<String>,
}

impl Rendering {
    /// Whether all later renderings are the same, because the workflow depends on no values that
    /// change.
    pub(crate) fn is_settled(&self) -> bool {
        self.read.is_empty() && !self.graph.has_loops() && !self.graph.has_boundaries()
    }
}

/// The properties of a workflow that are known before it is rendered.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    /// The JSON Schema of its input.
    pub(crate) input: Option<Value>,
    /// The table that holds its result.
    pub(crate) output: Option<String>,
}

/// The task that a function is called for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskCall<'a> {
    pub(crate) run: &'a str,
    pub(crate) key: &'a Key,
    pub(crate) task: &'a Arc<Task>,
    /// What the answer of an agent must be, which follows its prompt.
    pub(crate) demand: &'a str,
    /// The models that it may ask, if it may ask any.
    pub(crate) models: Option<&'a dyn ModelHost>,
}
