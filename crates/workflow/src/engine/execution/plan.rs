//! The last rendering of a run, and the progress of its plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::task_table::TaskTable;
use crate::engine::user_code::Rendering;
use crate::graph::{Graph, Task};
use crate::schedule::{self, Index, Key, Plan, Progress};

/// The last rendering of a run.
pub(super) struct RunPlan {
    graph: Arc<Graph>,
    index: Index,
    progress: Progress,
    /// The tables that the rendering depends on.
    read: BTreeSet<String>,
    /// Whether data has changed that the rendering depends on.
    is_stale: bool,
}

impl RunPlan {
    /// The state before the first rendering.
    pub(super) fn new() -> Self {
        Self {
            graph: Arc::default(),
            index: Index::default(),
            progress: Progress::default(),
            read: BTreeSet::new(),
            is_stale: true,
        }
    }

    pub(super) const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    pub(super) const fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether it was stale. Clears the flag.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    pub(super) const fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Records that a row was added to a table.
    pub(super) fn table_changed(&mut self, table: &str) {
        self.is_stale |= self.read.contains(table);
    }

    /// Replaces the rendering. The progress is retained if the nodes have the same order.
    pub(super) fn update(&mut self, rendering: Rendering) {
        let Rendering { graph, read } = rendering;
        self.read = read;
        if Arc::ptr_eq(&graph, &self.graph) {
            return;
        }
        if !self.index.follow(&self.graph, &graph) {
            (self.index, self.progress) = (Index::new(&graph), Progress::default());
        }
        self.graph = graph;
    }

    /// Plans the next steps. `graph` is the last rendering.
    pub(super) fn next<'a>(
        &mut self,
        graph: &'a Graph,
        tasks: &TaskTable,
        limit: Option<u32>,
    ) -> Plan<'a> {
        let (phases, loops) = (tasks.phases(), tasks.loops());
        schedule::plan(graph, &self.index, &mut self.progress, phases, loops, limit)
    }

    /// A task in the last rendering.
    pub(super) fn task(&self, key: &Key) -> Option<Arc<Task>> {
        let id = key.node.split("@@").next().unwrap_or(&key.node);
        self.index.task(id).cloned()
    }
}
