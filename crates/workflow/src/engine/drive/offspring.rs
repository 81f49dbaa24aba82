//! The runs that the provider of a `<Sandbox>` has below the run of its sandbox. Their ids follow
//! from that run, the task and the name that the provider gives them: whatever is asked for again,
//! also after a crash, is found again, and no finished task of it is done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use stockade_durable::{Failure, Statement};

use super::subflow::{Child, Children};
use super::{Drive, End, now_ms};
use crate::authoring::ChildRequest;
use crate::engine::attempt::Trouble;
use crate::engine::author::provide::ChildAnswer;
use crate::engine::sandbox::nested::{Around, Grant, Lineage};
use crate::engine::{sandbox, tools};
use crate::graph::{Task, ToolLimits, Work};
use crate::journal::WorkflowRef;
use crate::schedule::Key;
use crate::store::cancel;
use crate::sync::lock;

/// The runs below one try of a `<Sandbox>`.
pub(crate) struct Offspring {
    child: Child,
    /// What the id of each begins with.
    id: String,
    /// Those that have not ended, whether the provider waits for them or not.
    open: Mutex<BTreeSet<String>>,
    /// Those that the provider waits for, and whether they wait for others.
    awaited: Mutex<BTreeMap<String, bool>>,
    /// Whether the try counts as one that waits: all that it waits for do.
    waits: AtomicBool,
    siblings: Arc<Children>,
}

impl std::fmt::Debug for Offspring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offspring").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Offspring {
    fn drop(&mut self) {
        lock(&self.awaited).clear();
        self.say_whether_it_waits();
    }
}

impl Drive {
    /// Those of a task, whose tools have these limits besides those of its run. What they come to is
    /// within the sandbox that it is.
    pub(crate) fn offspring(&self, key: &Key, task: &Task, tools: ToolLimits) -> Offspring {
        let mut child = self.child();
        child.environment = tools::below(&child.environment, tools);
        child.around = self.within(key, task);
        let id = child.id(key);
        Offspring {
            siblings: Arc::clone(&child.siblings),
            child,
            id,
            open: Mutex::default(),
            awaited: Mutex::default(),
            waits: AtomicBool::default(),
        }
    }
}

/// A run that the provider waits for, until this is dropped.
struct Awaited<'a> {
    offspring: &'a Offspring,
    id: &'a str,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(&self.offspring.awaited).remove(self.id);
        self.offspring.say_whether_it_waits();
    }
}

impl Drive {
    /// What is around whatever is in the sandbox that a task is.
    fn within(&self, key: &Key, task: &Task) -> Option<Around> {
        let Work::Sandbox(sandbox) = &task.work else { return None };
        let depth = self.around.as_ref().map_or(0, |around| around.lineage.depth);
        // What cannot be read of it, it is refused with before anything is in it.
        let grant = Grant::of(sandbox, task.timeout, sandbox.tools, depth).ok()?;
        let attempt = self.tasks.get(key).map_or(1, |row| row.attempts);
        let name = self.origin.name_of_try(&self.run, key, attempt);
        let lineage = Lineage {
            root_run_id: self.run.split(":child:").next().unwrap_or(&self.run).to_owned(),
            parent_sandbox_id: format!("run-{name}"),
            depth: depth + 1,
            task: None,
        };
        Some(Around { grant, lineage })
    }
}

impl Offspring {
    /// Does a run, or what is left of it.
    pub(crate) async fn run(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildAnswer, Trouble> {
        let ChildRequest { name, input, max_output_bytes, tool_timeout_ms } = request;
        let timeout = tool_timeout_ms.map(Duration::from_millis);
        let narrower = ToolLimits { output_bytes: max_output_bytes, timeout };
        let environment = tools::below(&self.child.environment, narrower);
        let id = match name {
            Some(name) => format!("{}:{name}", self.id),
            None => self.id.clone(),
        };
        lock(&self.open).insert(id.clone());
        let end = self.end(&id, workflow, (input, environment)).await?;
        lock(&self.open).remove(&id);
        let (status, output, error) = match end {
            End::Finished(output) => ("finished", output, None),
            End::Failed(error) => ("failed", Value::Null, Some(error)),
        };
        Ok(ChildAnswer { run_id: id, status, output, error })
    }

    async fn end(
        &self,
        id: &str,
        workflow: WorkflowRef,
        (input, environment): (Value, String),
    ) -> Result<End, Trouble> {
        // Whether it waits is told to nobody but this.
        let siblings = Arc::<Children>::default();
        let child = Child { siblings: Arc::clone(&siblings), environment, ..self.child.clone() };
        lock(&self.awaited).insert(id.to_owned(), false);
        self.say_whether_it_waits();
        let _awaited = Awaited { offspring: self, id };
        let mut end = std::pin::pin!(child.end(id, workflow, input));
        loop {
            tokio::select! {
                end = &mut end => return end,
                () = siblings.changed.notified() => {
                    lock(&self.awaited).insert(id.to_owned(), siblings.waiting() > 0);
                    self.say_whether_it_waits();
                }
            }
        }
    }

    fn say_whether_it_waits(&self) {
        let waits = {
            let awaited = lock(&self.awaited);
            !awaited.is_empty() && awaited.values().all(|waits| *waits)
        };
        if self.waits.swap(waits, Ordering::Relaxed) != waits {
            self.siblings.count(waits);
        }
    }

    /// Cancels what the provider left under way when it ended, in the name of an owner. A later try
    /// goes on with it.
    pub(crate) async fn cancel_rest(&self, owner: &str) -> Result<(), Failure> {
        let left = std::mem::take(&mut *lock(&self.open));
        let statements: Vec<Statement> =
            left.iter().flat_map(|id| cancel::cancel_tree(id, now_ms())).collect();
        if statements.is_empty() {
            return Ok(());
        }
        self.child.context.write(statements).await?;
        for id in &left {
            sandbox::end_all(&self.child.inner, owner, id).await?;
        }
        Ok(())
    }
}
