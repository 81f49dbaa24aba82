//! How the sandboxes of agents are ended. That of an attempt is ended after the result of the attempt is
//! stored, because nothing but the sandbox has the output of its command.

use std::sync::Arc;

use stockade_core::OwnerId;

use super::agent_task::root;
use super::state::Execution;
use crate::engine::commands::Executor;

impl Execution {
    /// Ends the sandboxes of the attempts whose results were stored by the last commit.
    pub(super) fn end_agent_sandboxes(&mut self) {
        while self.agents.endings.try_join_next().is_some() {}
        let names = std::mem::take(&mut self.agents.decided);
        let Some((executor, owner)) = self.executor() else { return };
        for name in names {
            let (executor, owner) = (Arc::clone(&executor), owner.clone());
            self.agents.endings.spawn(async move { executor.end_attempt(&owner, &name).await });
        }
    }

    /// Waits until the sandboxes are ended.
    pub(super) async fn wait_for_agent_sandboxes(&mut self) {
        while self.agents.endings.join_next().await.is_some() {}
    }

    /// Ends the sandboxes of the attempts whose results another process has stored.
    pub(super) fn end_left_agent_sandboxes(&mut self) {
        let Some((executor, owner)) = self.executor() else { return };
        let attempts: Vec<(String, bool)> = self
            .tasks
            .ended_attempts()
            .map(|(key, attempt, finished)| (self.run.attempt_name(key, attempt), finished))
            .collect();
        if !attempts.is_empty() {
            let run = root(&self.run.id).to_owned();
            let end = async move { executor.end_left(&owner, &run, &attempts).await };
            self.agents.endings.spawn(end);
        }
    }

    fn executor(&self) -> Option<(Arc<dyn Executor>, OwnerId)> {
        let owner = OwnerId::new(self.run.origin.owner.as_str()).ok()?;
        Some((self.state.executor.clone()?, owner))
    }
}
