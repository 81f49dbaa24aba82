//! Tasks whose outputs are cached for other runs: a cached output replaces the execution of a task, and
//! the commit that ends a task also caches its output.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stockade_durable::Failure;

use super::start_queue::Lookup;
use super::state::Execution;
use crate::engine::cache_key::{KeyContext, sees_project};
use crate::engine::clock::now_ms;
use crate::engine::{commands, project_state};
use crate::graph::{Cache, Depends, Task, Work};
use crate::schedule::Key;
use crate::store::cached_outputs;
use crate::sync::lock;

impl Execution {
    /// Looks up the cached outputs of queued tasks; returns whether there were any such tasks.
    pub(super) async fn look_up_outputs(&mut self) -> Result<bool, Failure> {
        let tasks = self.queue.take_lookups();
        let has_some = !tasks.is_empty();
        let depends_on_files = |(_, task): &(Key, Arc<Task>)| {
            let cache = task.cache.as_ref();
            sees_project(&task.work)
                && cache.is_some_and(|cache| matches!(cache.depends, Depends::Everything))
        };
        let project = match tasks.iter().any(depends_on_files) {
            true => Some(self.project_state().await),
            false => None,
        };
        for (key, task) in tasks {
            let Some(cache) = task.cache.clone() else { continue };
            let state = match &project {
                Some(Err(why)) if sees_project(&task.work) => Err(why.clone()),
                Some(Ok(state)) => Ok(Some(state.as_str())),
                _ => Ok(None),
            };
            let lookup = match state.and_then(|state| self.cache_key(&task, &cache, state)) {
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

    /// The state of the files of the project, or the reason why it is not known.
    async fn project_state(&self) -> Result<String, String> {
        let root = self.state.options.project_of(Path::new(&self.run.origin.file));
        let state = tokio::task::spawn_blocking(move || project_state::hash(&root)).await;
        state.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    /// The key of a task's output, or the reason why it has none.
    fn cache_key(
        &self,
        task: &Task,
        cache: &Cache,
        project: Option<&str>,
    ) -> Result<String, String> {
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
            project,
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
        // A cached output would not make the changes again.
        let has_changes =
            self.tasks.get(key).is_some_and(|row| row.bundle.is_some()) || self.changed.remove(key);
        match (self.queue.remove_lookup(key), output) {
            (Some(Lookup::Missing(..)), _) if has_changes => false,
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
