//! The sandbox that encloses a nested one.

use serde::Serialize;

use super::grant::Grant;
use crate::schedule::Key;

/// The sandbox that encloses a nested one.
#[derive(Debug, Clone)]
pub(crate) struct EnclosingSandbox {
    /// What it grants to sandboxes nested in it.
    pub(crate) grant: Grant,
    pub(crate) lineage: Lineage,
}

/// The origin of a nested sandbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lineage {
    /// The root run of the run's ancestors.
    pub(crate) root_run_id: String,
    /// The enclosing sandbox.
    pub(crate) parent_sandbox_id: String,
    /// How many sandboxes enclose it.
    pub(crate) depth: u32,
    /// The task of the run whose sandbox is the outermost one.
    #[serde(skip)]
    pub(crate) task: Option<Key>,
}

impl Lineage {
    /// The name of the attempt of the enclosing sandbox, and how many sandboxes enclose this one.
    pub(crate) fn parent(&self) -> (&str, u32) {
        let id = self.parent_sandbox_id.as_str();
        (id.strip_prefix("run-").unwrap_or(id), self.depth)
    }
}
