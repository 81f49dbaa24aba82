//! The runs that the provider of a `<Sandbox>` requests, as children of the run of its sandbox. Their
//! ids are derived from that run, the task and the name that the provider chooses. A run that is
//! requested again, also after a crash, is found again, and none of its finished tasks is executed
//! twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use stockade_durable::{Failure, Statement};

use super::child_count::WaitingChildren;
use super::child_workflow::ChildRun;
use super::outcome::End;
use super::state::Execution;
use crate::authoring::ChildRequest;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::ChildRuns;
use crate::engine::sandbox::{EnclosingSandbox, Grant, Lineage};
use crate::engine::task_error::TaskError;
use crate::engine::user_code::ChildResult;
use crate::engine::{sandbox, tool_limits};
use crate::graph::{Task, ToolLimits, Work};
use crate::journal::WorkflowRef;
use crate::schedule::Key;
use crate::store::cancel;
use crate::sync::lock;

/// The runs that the provider requests in one attempt.
pub(super) struct ProviderChildren {
    child: ChildRun,
    /// The prefix of their ids.
    id: String,
    /// The unfinished runs, whether the provider waits for them or not.
    open: Mutex<BTreeSet<String>>,
    /// The runs that the provider waits for, and whether each of them is waiting itself.
    awaited: Mutex<BTreeMap<String, bool>>,
    /// Whether the attempt counts as waiting, because all runs that the provider waits for do.
    waits: AtomicBool,
    siblings: Arc<WaitingChildren>,
}

impl std::fmt::Debug for ProviderChildren {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderChildren").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for ProviderChildren {
    fn drop(&mut self) {
        lock(&self.awaited).clear();
        self.update_waits();
    }
}

/// The provider waits for a run while this guard lives.
struct AwaitGuard<'a> {
    children: &'a ProviderChildren,
    id: &'a str,
}

impl Drop for AwaitGuard<'_> {
    fn drop(&mut self) {
        lock(&self.children.awaited).remove(self.id);
        self.children.update_waits();
    }
}

impl Execution {
    /// The child runs of an attempt of a task. Their tools have these limits in addition to those of
    /// the run. Sandboxes in them count as nested in the sandbox of the task.
    pub(super) fn provider_children(
        &self,
        key: &Key,
        task: &Task,
        tools: ToolLimits,
    ) -> ProviderChildren {
        let mut child = self.child();
        child.environment = tool_limits::narrow(&child.environment, tools);
        child.enclosing = self.enclosing_sandbox(key, task);
        let id = child.id(key);
        ProviderChildren {
            siblings: Arc::clone(&child.siblings),
            child,
            id,
            open: Mutex::default(),
            awaited: Mutex::default(),
            waits: AtomicBool::default(),
        }
    }

    /// The enclosing sandbox for sandboxes that are nested in the sandbox of a task.
    fn enclosing_sandbox(&self, key: &Key, task: &Task) -> Option<EnclosingSandbox> {
        let Work::Sandbox(sandbox) = &task.work else { return None };
        let enclosing = self.sandboxes.enclosing.as_ref();
        let depth = enclosing.map_or(0, |enclosing| enclosing.lineage.depth);
        // A configuration that cannot be read is rejected before the sandbox contains anything.
        let grant = Grant::of(sandbox, task.timeout, sandbox.tools, depth).ok()?;
        let name = self.run.attempt_name(key, self.tasks.current_attempt(key));
        let lineage = Lineage {
            root_run_id: self.run.id.split(":child:").next().unwrap_or(&self.run.id).to_owned(),
            parent_sandbox_id: format!("run-{name}"),
            depth: depth + 1,
            task: None,
        };
        Some(EnclosingSandbox { grant, lineage })
    }
}

#[async_trait]
impl ChildRuns for ProviderChildren {
    async fn run(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError> {
        let ChildRequest { name, input, max_output_bytes, tool_timeout_ms } = request;
        let timeout = tool_timeout_ms.map(Duration::from_millis);
        let narrower = ToolLimits { output_bytes: max_output_bytes, timeout };
        let environment = tool_limits::narrow(&self.child.environment, narrower);
        let id = match name {
            Some(name) => format!("{}:{name}", self.id),
            None => self.id.clone(),
        };
        lock(&self.open).insert(id.clone());
        let end = self.run_to_end(&id, workflow, (input, environment)).await?;
        lock(&self.open).remove(&id);
        let (status, output, error) = match end {
            End::Finished(output) => ("finished", output, None),
            End::Failed(error) => ("failed", Value::Null, Some(error)),
        };
        Ok(ChildResult { run_id: id, status, output, error })
    }

    async fn cancel_rest(&self, owner: &str) -> Result<(), Failure> {
        let left = std::mem::take(&mut *lock(&self.open));
        let statements: Vec<Statement> =
            left.iter().flat_map(|id| cancel::cancel_tree(id, now_ms())).collect();
        if statements.is_empty() {
            return Ok(());
        }
        self.child.context.write(statements).await?;
        for id in &left {
            sandbox::end_all(&self.child.state, owner, id).await?;
        }
        Ok(())
    }
}

impl ProviderChildren {
    /// Executes a run; returns how it ends.
    async fn run_to_end(
        &self,
        id: &str,
        workflow: WorkflowRef,
        (input, environment): (Value, String),
    ) -> Result<End, TaskError> {
        // A waiting run is counted here, and not among the children of the task's run.
        let siblings = Arc::<WaitingChildren>::default();
        let child = ChildRun { siblings: Arc::clone(&siblings), environment, ..self.child.clone() };
        lock(&self.awaited).insert(id.to_owned(), false);
        self.update_waits();
        let _guard = AwaitGuard { children: self, id };
        let mut end = std::pin::pin!(child.run_to_end(id, workflow, input));
        loop {
            tokio::select! {
                end = &mut end => return end,
                () = siblings.changed.notified() => {
                    lock(&self.awaited).insert(id.to_owned(), siblings.waiting() > 0);
                    self.update_waits();
                }
            }
        }
    }

    fn update_waits(&self) {
        let waits = {
            let awaited = lock(&self.awaited);
            !awaited.is_empty() && awaited.values().all(|waits| *waits)
        };
        if self.waits.swap(waits, Ordering::Relaxed) != waits {
            self.siblings.count(waits);
        }
    }
}
