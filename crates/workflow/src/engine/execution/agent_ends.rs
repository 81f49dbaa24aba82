//! How the workspaces of agents are ended, and how bundles are discarded that later ones have replaced.

use std::sync::Arc;

use stockade_core::OwnerId;

use super::state::Execution;
use crate::engine::commands::Executor;

impl Execution {
    /// Discards the bundles that were replaced by the last commit.
    pub(super) async fn discard_replaced_bundles(&mut self) {
        let replaced = std::mem::take(&mut self.agents.replaced);
        let Some((executor, owner)) = self.executor() else { return };
        for bundle in replaced {
            executor.discard_bundle(&owner, &bundle).await;
        }
    }

    /// Ends the workspaces of a run that has ended. Child runs share those of their root.
    pub(super) async fn end_agent_workspaces(&mut self) {
        if self.children.siblings.is_some() {
            return;
        }
        if let Some((executor, owner)) = self.executor() {
            executor.end_run(&owner, &self.run.id).await;
        }
    }

    fn executor(&self) -> Option<(Arc<dyn Executor>, OwnerId)> {
        let owner = OwnerId::new(self.run.origin.owner.as_str()).ok()?;
        Some((self.state.executor.clone()?, owner))
    }
}
