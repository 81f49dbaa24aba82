//! The sandboxes of agents. That of an attempt is ended after the result of the attempt is stored,
//! because nothing but the sandbox has the output of its command.

use std::sync::{Arc, Mutex};

use stockade_core::OwnerId;
use tokio::task::JoinSet;

use super::agent_task::root;
use super::state::Execution;
use crate::engine::commands::Executor;
use crate::schedule::Key;
use crate::sync::lock;

/// The names of the attempts that have executed a command, with their tasks.
pub(super) type CommandAttempts = Arc<Mutex<Vec<(Key, String)>>>;

/// The sandboxes of the agents of a run.
#[derive(Default)]
pub(super) struct AgentSandboxes {
    /// Attempts whose commands have ended.
    pub(super) attempts: CommandAttempts,
    /// Attempts whose results are in the next commit.
    decided: Vec<String>,
    endings: JoinSet<()>,
}

impl AgentSandboxes {
    /// Handles the outcome of an attempt of a task, which the next commit stores.
    pub(super) fn take_outcome(&mut self, key: &Key) {
        let mut attempts = lock(&self.attempts);
        let decided = attempts.extract_if(.., |(task, _)| task == key);
        self.decided.extend(decided.map(|(_, name)| name));
    }

    pub(super) const fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }
}

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
