//! Tasks whose outputs are cached for other runs: a cached output replaces the execution of a task, and
//! the commit that ends a task also caches its output.

use serde_json::{Value, json};
use stockade_durable::Failure;

use super::start_queue::Lookup;
use super::state::Execution;
use crate::engine::cache_key::KeyContext;
use crate::engine::clock::now_ms;
use crate::engine::commands;
use crate::graph::{Cache, Task, Work};
use crate::schedule::Key;
use crate::store::cached_outputs;
use crate::sync::lock;

impl Execution {
    /// Looks up the cached outputs of queued tasks; returns whether there were any such tasks.
    pub(super) async fn look_up_outputs(&mut self) -> Result<bool, Failure> {
        let tasks = self.queue.take_lookups();
        let has_some = !tasks.is_empty();
        for (key, task) in tasks {
            let Some(cache) = task.cache.clone() else { continue };
            let lookup = match self.cache_key(&task, &cache) {
                Ok(name) => {
                    let (run, lifetime) = (&self.run.id, cache.lifetime);
                    let store = self.state.store();
                    match cached_outputs::find(store, run, &name, lifetime, now_ms()).await? {
                        Some(output) => Lookup::Found(output),
                        None => Lookup::Missing(name, cache),
                    }
                }
                Err(why) => {
                    self.ledger.event(json!({
                        "type": "NodeCacheUnknown", "nodeId": key.node,
                        "iteration": key.iteration, "reason": why,
                    }));
                    Lookup::Uncacheable
                }
            };
            self.queue.set_lookup(key, lookup);
        }
        Ok(has_some)
    }

    /// The key of a task's output, or the reason why it has none.
    fn cache_key(&self, task: &Task, cache: &Cache) -> Result<String, String> {
        let command = match &task.work {
            Work::Command { agent, .. } => {
                let command = commands::resolve(agent, self.state.options.agents.as_deref());
                Some(command.map_err(|problem| problem.message)?)
            }
            _ => None,
        };
        let journal = lock(&self.run.journal);
        let origin = &self.run.origin;
        let context = KeyContext {
            run: &self.run.id,
            workflow: (&origin.file, &self.plan.graph().name),
            program: &origin.program,
            environment: &origin.environment,
            command,
            journal: &journal,
        };
        context.key(task, cache)
    }

    /// Finishes a task with its cached output; returns whether there was one.
    pub(super) fn use_cached_output(&mut self, key: &Key, task: &Task) -> bool {
        let Some(Lookup::Found(cached)) = self.queue.lookup(key) else { return false };
        let output = cached.output.clone();
        let event = json!({
            "type": "NodeCached", "nodeId": key.node, "iteration": key.iteration,
            "label": task.name(), "cachedBy": cached.run, "cachedAtMs": cached.created_at,
        });
        self.tasks.start(key, task);
        self.ledger.event(event);
        self.finish(key, task, output);
        true
    }

    /// Caches the output of a task in the commit of its end; returns whether the output came from the
    /// cache.
    pub(super) fn cache_output(&mut self, key: &Key, output: Option<&Value>) -> bool {
        match (self.queue.remove_lookup(key), output) {
            (Some(Lookup::Missing(name, cache)), Some(output)) => {
                let (task, lifetime) = ((self.run.id.as_str(), key.node.as_str()), cache.lifetime);
                let upsert = cached_outputs::upsert(task, &name, lifetime, now_ms(), output);
                self.ledger.extend(upsert);
                false
            }
            (lookup, _) => matches!(lookup, Some(Lookup::Found(_))),
        }
    }
}
