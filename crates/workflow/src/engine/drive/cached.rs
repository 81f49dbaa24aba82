//! Tasks whose answers are kept for other runs: an answer that is there is taken instead of doing
//! the task, and one that a task gave is kept with the task's own end.

use std::sync::Arc;

use serde_json::{Value, json};
use stockade_durable::Failure;

use super::Drive;
use crate::engine::cache_key::KeyContext;
use crate::engine::clock::now_ms;
use crate::engine::commands;
use crate::graph::{Cache, Task, Work};
use crate::schedule::Key;
use crate::store::cached_outputs::{self, CachedOutput};
use crate::sync::lock;

/// What is known of the answer to a task that is about to begin.
#[derive(Debug)]
pub(super) enum Lookup {
    /// It is there.
    Kept(CachedOutput),
    /// It is not, and is kept under this key once it is.
    Missing(String, Cache),
    /// It is not to be kept.
    Unknown,
}

impl Drive {
    /// Whether a task must not begin before it is known whether its answer is there; it will be.
    pub(super) fn looks_up(&mut self, key: &Key, task: &Arc<Task>) -> bool {
        let is_new = task.cache.is_some() && !self.lookups.contains_key(key);
        if is_new {
            self.to_look_up.push((key.clone(), Arc::clone(task)));
        }
        is_new
    }

    /// Looks for the answers of those tasks; whether there were any.
    pub(super) async fn look_up(&mut self) -> Result<bool, Failure> {
        let tasks = std::mem::take(&mut self.to_look_up);
        let has_some = !tasks.is_empty();
        for (key, task) in tasks {
            let Some(cache) = task.cache.clone() else { continue };
            let name = self.answer_key(&task, &cache);
            let lookup = match name {
                Ok(name) => {
                    let store = self.state.store();
                    let (run, lifetime) = (&self.run, cache.lifetime);
                    match cached_outputs::find(store, run, &name, lifetime, now_ms()).await? {
                        Some(kept) => Lookup::Kept(kept),
                        None => Lookup::Missing(name, cache),
                    }
                }
                Err(why) => {
                    self.event(json!({
                        "type": "NodeCacheUnknown", "nodeId": key.node,
                        "iteration": key.iteration, "reason": why,
                    }));
                    Lookup::Unknown
                }
            };
            self.lookups.insert(key, lookup);
        }
        Ok(has_some)
    }

    /// The key of what a task gives; an error is why there is none.
    fn answer_key(&self, task: &Task, cache: &Cache) -> Result<String, String> {
        let command = match &task.work {
            Work::Command { agent, .. } => {
                let ready = commands::resolve(agent, self.state.options.agents.as_deref());
                Some(ready.map_err(|problem| problem.message)?)
            }
            _ => None,
        };
        let journal = lock(&self.journal);
        let asker = KeyContext {
            run: &self.run,
            workflow: (&self.origin.file, &self.graph.name),
            program: &self.origin.program,
            environment: &self.origin.environment,
            command,
            journal: &journal,
        };
        asker.key(task, cache)
    }

    /// Takes the answer of a task that is there; whether it was.
    pub(super) fn take_kept(&mut self, key: &Key, task: &Task) -> bool {
        let Some(Lookup::Kept(kept)) = self.lookups.get(key) else { return false };
        let output = kept.output.clone();
        let event = json!({
            "type": "NodeCached", "nodeId": key.node, "iteration": key.iteration,
            "label": task.name(), "cachedBy": kept.run, "cachedAtMs": kept.created_at,
        });
        self.row(key, task);
        self.event(event);
        self.finish(key, task, output);
        true
    }

    /// Keeps what a task gave, with the commit of its end; whether it was there already.
    pub(super) fn keep_answer(&mut self, key: &Key, output: Option<&Value>) -> bool {
        match (self.lookups.remove(key), output) {
            (Some(Lookup::Missing(name, cache)), Some(output)) => {
                let (task, lifetime) = ((self.run.as_str(), key.node.as_str()), cache.lifetime);
                let kept = cached_outputs::upsert(task, &name, lifetime, now_ms(), output);
                self.gathered.extend(kept);
                false
            }
            (lookup, _) => matches!(lookup, Some(Lookup::Kept(_))),
        }
    }
}
