//! The runs that the provider of a `<Sandbox>` has below the run of its sandbox. Their ids follow
//! from that run, the task and the name that the provider gives them: whatever is asked for again,
//! also after a crash, is found again, and no finished task of it is done twice.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_durable::{Failure, Statement};

use super::subflow::{Child, Children};
use super::{Drive, End, now_ms};
use crate::authoring::ChildRequest;
use crate::engine::attempt::Trouble;
use crate::engine::author::provide::ChildAnswer;
use crate::engine::author::{Definition, lock};
use crate::engine::tables;
use crate::schedule::Key;

/// The runs below one try of a `<Sandbox>`.
pub(crate) struct Offspring {
    child: Child,
    /// What the id of each begins with.
    id: String,
    under_way: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for Offspring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offspring").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drive {
    /// Those of a task.
    pub(crate) fn offspring(&self, key: &Key) -> Offspring {
        let child = self.child();
        // A run that waits below a provider keeps its realm: the provider is in it.
        let child = Child { siblings: Arc::<Children>::default(), ..child };
        let id = child.id(key);
        Offspring { child, id, under_way: Mutex::default() }
    }
}

impl Offspring {
    /// Does a run, or what is left of it.
    pub(crate) async fn run(
        &self,
        workflow: Definition,
        request: ChildRequest,
    ) -> Result<ChildAnswer, Trouble> {
        let ChildRequest { name, input } = request;
        let id = match name {
            Some(name) => format!("{}:{name}", self.id),
            None => self.id.clone(),
        };
        lock(&self.under_way).insert(id.clone());
        let end = self.child.clone().end(&id, workflow, input).await?;
        lock(&self.under_way).remove(&id);
        let (status, output, error) = match end {
            End::Finished(output) => ("finished", output, None),
            End::Failed(error) => ("failed", Value::Null, Some(error)),
        };
        Ok(ChildAnswer { run_id: id, status, output, error })
    }

    /// Cancels what the provider left under way when it ended. A later try goes on with it.
    pub(crate) async fn cancel_rest(&self) -> Result<(), Failure> {
        let left = std::mem::take(&mut *lock(&self.under_way));
        let statements: Vec<Statement> =
            left.iter().flat_map(|id| tables::give_up_run(id, now_ms())).collect();
        if statements.is_empty() { Ok(()) } else { self.child.context.write(statements).await }
    }
}
