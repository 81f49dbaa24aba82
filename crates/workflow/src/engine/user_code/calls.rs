//! What the user's code is called with, and what it gives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::graph::{Graph, Task};
use crate::schedule::Key;

/// How long a rendering may take, and each other call that executes no task.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A workflow as it is to be executed now.
#[derive(Debug)]
pub(crate) struct Rendering {
    /// The same value as in the rendering before, where nothing has changed.
    pub(crate) graph: Arc<Graph>,
    /// The tables that it depends on.
    pub(crate) read: BTreeSet<String>,
}

impl Rendering {
    /// Whether all later renderings are the same: it depends on nothing that changes.
    pub(crate) fn is_settled(&self) -> bool {
        self.read.is_empty() && !self.graph.has_loops()
    }
}

/// What is known of a workflow before it is rendered.
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
}
