//! What a run has kept of the files of its project.

use std::sync::Arc;

use crate::graph::Graph;

/// What a run has kept so far.
#[derive(Default)]
pub(super) struct KeptFiles {
    /// Whether the files at the start of the execution, and thus at its end, are wanted.
    pub(super) is_wanted: bool,
    /// Whether those of the start were kept.
    pub(super) has_start: bool,
    /// The rendering that was last searched for steps that work on files.
    pub(super) searched: Option<Arc<Graph>>,
}
