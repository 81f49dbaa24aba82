//! The workspaces of the agents of a run, and the bundles of their changes.

use std::collections::HashMap;

/// The workspaces of the agents of a run.
#[derive(Default)]
pub(super) struct AgentSandboxes {
    /// The last bundle of each workspace, which a later one replaces.
    bundles: HashMap<String, String>,
    /// The bundles that were replaced by the last commit.
    pub(super) replaced: Vec<String>,
}

impl AgentSandboxes {
    /// Handles the bundle of an attempt; returns the one that it replaces.
    pub(super) fn take_bundle(&mut self, workspace: &str, bundle: &str) -> Option<String> {
        let before = self.bundles.insert(workspace.to_owned(), bundle.to_owned());
        let before = before.filter(|before| before != bundle);
        self.replaced.extend(before.clone());
        before
    }
}
