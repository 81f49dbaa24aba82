//! The sandboxes of the agents of a run, by the attempts that have executed a command.

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

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
    pub(super) decided: Vec<String>,
    /// The sandboxes that are being ended.
    pub(super) endings: JoinSet<()>,
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
