//! The number of tokens that the agents of a run have used.

use std::collections::HashMap;

use serde_json::Value;

use crate::schedule::Key;

/// The type of the event that tells how many tokens an attempt has used.
pub(super) const USAGE: &str = "TokenUsageReported";

/// The tokens that the agents of a run have used.
#[derive(Debug, Default)]
pub(super) struct TokenCount {
    total: u64,
    tasks: HashMap<Key, u64>,
}

impl TokenCount {
    /// Adds what an event tells.
    pub(super) fn add(&mut self, event: &Value) {
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let used = number("inputTokens").saturating_add(number("outputTokens"));
        let iteration = u32::try_from(number("iteration")).unwrap_or_default();
        let key = Key { node: event["nodeId"].as_str().unwrap_or_default().to_owned(), iteration };
        self.total = self.total.saturating_add(used);
        let task = self.tasks.entry(key).or_default();
        *task = task.saturating_add(used);
    }

    /// Those of all agents.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Those of a task, if they are known.
    pub(super) fn of(&self, key: &Key) -> Option<u64> {
        self.tasks.get(key).copied()
    }
}
