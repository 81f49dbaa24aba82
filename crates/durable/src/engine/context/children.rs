//! Workflows that a workflow starts.

use serde::Serialize;

use super::Context;
use super::steps::replay;
use crate::sync::now_ms;
use crate::{
    Error, Failure, Handle, NewWorkflow, Records, Result, StartOptions, StepOutcome, WorkflowId,
};

impl Context {
    /// Starts a workflow as a child of this one, once: its row and the record of this step are
    /// committed together. Its id is `{parent}-{function_id}` unless one is given; it is cancelled
    /// with this workflow.
    pub fn child<'c, I: Serialize + Sync + ?Sized>(
        &'c self,
        name: &str,
        input: &I,
        mut options: StartOptions,
    ) -> impl Future<Output = Result<Handle, Failure>> + Send + use<'c, I> {
        let function_id = self.next_function();
        let name = name.to_owned();
        let input = serde_json::to_string(input);
        async move {
            if let Some(record) = self.recorded(function_id, &name)? {
                let Some(id) = record.child.clone() else {
                    return replay::<()>(record).and_then(|()| Err(no_child(&name)));
                };
                return Ok(self.run.engine.handle(&id).waited_on_by(self.run.waits.clone()));
            }
            if options.id.is_none() {
                let id = WorkflowId::new(format!("{}-{function_id}", self.id()));
                options.id = Some(id.map_err(Error::from)?);
            }
            if options.owner.is_none() {
                options.owner = self.run.owner.clone();
            }
            let parent = Some(self.id().clone());
            let new = self.run.engine.prepare(&name, input?, options, parent);
            let started = match new {
                Ok(new) => self.start_child(function_id, &name, new).await,
                Err(error) => Err(error),
            };
            match started {
                Ok(handle) => Ok(handle.waited_on_by(self.run.waits.clone())),
                Err(error) if error.is_refusal() => {
                    self.child_error(function_id, &name, error).await
                }
                Err(error) => Err(error.into()),
            }
        }
    }

    async fn start_child(&self, function_id: u32, name: &str, new: NewWorkflow) -> Result<Handle> {
        let output = StepOutcome::Output("null".to_owned());
        let mut step = self.record(function_id, name, output, now_ms());
        step.child = Some(new.id.clone());
        let records =
            Records { steps: vec![step], children: vec![new.clone()], ..Records::default() };
        let context = self.clone();
        // A separate task: a recorded child also runs when the caller stops waiting.
        let started = tokio::spawn(async move {
            let committed = context.commit(records, Vec::new(), None).await?;
            let created = committed.children.into_iter().next().ok_or(Error::Closed)?;
            Ok(context.run.engine.start_recorded(&new, created))
        });
        started.await.map_err(|_| Error::Closed)?
    }

    /// Records the failure of a step that the store refused.
    pub(super) async fn child_error<T>(
        &self,
        function_id: u32,
        name: &str,
        error: Error,
    ) -> Result<T, Failure> {
        let failure = Failure::from(error);
        let outcome = StepOutcome::Failure(failure.clone());
        let steps = vec![self.record(function_id, name, outcome, now_ms())];
        self.commit(Records { steps, ..Records::default() }, Vec::new(), None).await?;
        Err(failure)
    }
}

fn no_child(name: &str) -> Failure {
    Failure::new("unexpected_step", format!("step {name:?} started no workflow before"))
}
