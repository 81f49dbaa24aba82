//! Keeps the files of the project whenever a step starts that works on them, so that a run can be forked
//! from there.

use std::path::Path;
use std::sync::Arc;

use super::state::Execution;
use crate::engine::project_files;
use crate::graph::Work;
use crate::schedule::Key;

/// Whether a work may change files of the project, or depends on them.
const fn works_on_files(work: &Work) -> bool {
    matches!(work, Work::Command { .. } | Work::Sandbox(_) | Work::Subflow { .. })
}

impl Execution {
    /// Keeps the files for the steps that are about to start. The first time, also if none of them works
    /// on files, but a later one does.
    pub(super) async fn keep_files(&mut self) {
        let starts: Vec<Key> = self
            .queue
            .starts()
            .filter(|(key, task)| works_on_files(&task.work) && self.tasks.attempts(key) <= 1)
            .map(|(key, _)| key.clone())
            .collect();
        let is_first = !self.kept_files.has_start && self.has_step_with_files();
        if starts.is_empty() && !is_first {
            return;
        }
        (self.kept_files.is_wanted, self.kept_files.has_start) = (true, true);
        self.keep_files_of(starts).await;
    }

    /// Whether the rendering has a step that works on files. Each rendering is searched once.
    fn has_step_with_files(&mut self) -> bool {
        let graph = self.plan.graph();
        if self.kept_files.searched.as_ref().is_some_and(|searched| Arc::ptr_eq(searched, graph)) {
            return false;
        }
        self.kept_files.searched = Some(Arc::clone(graph));
        graph.tasks().iter().any(|task| works_on_files(&task.work))
    }

    /// Keeps the files that the run leaves.
    pub(super) async fn keep_last_files(&mut self) {
        if self.kept_files.is_wanted {
            self.keep_files_of(Vec::new()).await;
        }
    }

    async fn keep_files_of(&self, steps: Vec<Key>) {
        // The steps of a child run are no steps of its root.
        let Some(data) = self.state.options.data.clone().filter(|_| !self.is_child()) else {
            return;
        };
        let project = self.state.options.project_of(Path::new(&self.run.origin.file));
        let (run, event) = (self.run.id.clone(), self.ledger.next_event());
        let kept = tokio::task::spawn_blocking(move || {
            project_files::keep(&data, &project, &run, event, &steps);
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, "the files of the project were not kept");
        }
    }

    fn is_child(&self) -> bool {
        self.children.siblings.is_some()
    }
}
