//! A child workflow: a separate run, which the process of its parent executes. Its id is derived from
//! the parent and the task, so that it is found again after a crash.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_api::RunStatus;
use stockade_durable::{Context, Failure, Statement};

use super::child_count::WaitingChildren;
use super::outcome::End;
use super::state::Execution;
use crate::engine::clock::now_ms;
use crate::engine::redaction::Redaction;
use crate::engine::sandbox::EnclosingSandbox;
use crate::engine::state::EngineState;
use crate::engine::task_error::{INTERRUPTED, TaskError};
use crate::engine::user_code::UserCode;
use crate::graph::Function;
use crate::journal::{Journal, WorkflowRef, child_input};
use crate::schedule::Key;
use crate::store::{run_state, runs};

/// The data that a child run needs.
#[derive(Clone)]
pub(super) struct ChildRun {
    pub(super) state: Arc<EngineState>,
    pub(super) context: Context,
    pub(super) user_code: Arc<UserCode>,
    pub(super) parent: String,
    pub(super) siblings: Arc<WaitingChildren>,
    /// The `process.env` of its workflow, as JSON.
    pub(super) environment: String,
    pub(super) max_concurrency: Option<u32>,
    /// The sandbox that encloses it, if a provider executes it.
    pub(super) enclosing: Option<EnclosingSandbox>,
    /// The values that no record of the parent contains.
    pub(super) redaction: Redaction,
}

impl ChildRun {
    /// The id of the child run of a task.
    pub(super) fn id(&self, key: &Key) -> String {
        format!("{}:child:{}:{}", self.parent, key.node, key.iteration)
    }

    /// Executes the child run of a task, or the rest of it; returns its output.
    pub(super) async fn execute(
        self,
        key: &Key,
        workflow: Function,
        input: Value,
    ) -> Result<Value, TaskError> {
        let id = self.id(key);
        match self.run_to_end(&id, WorkflowRef::Rendered(workflow), input).await? {
            End::Finished(output) => Ok(output),
            End::Failed(error) => {
                let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
                let message = match error["task"].as_str() {
                    Some(task) => format!("task \"{task}\" of it failed: {}", text("message")),
                    None => text("message"),
                };
                let frames = error["frames"].as_array().cloned().unwrap_or_default();
                let frames = frames.iter().filter_map(|frame| frame.as_str().map(str::to_owned));
                let task_error = TaskError::new(&text("code"), message);
                // Its tasks were already retried as often as allowed.
                Err(TaskError { frames: frames.collect(), ..task_error })
            }
        }
    }

    /// Executes a run, or the rest of it; returns how it ends. An existing run keeps its input.
    pub(super) async fn run_to_end(
        self,
        id: &str,
        workflow: WorkflowRef,
        input: Value,
    ) -> Result<End, TaskError> {
        let stopped = |failure: Failure| TaskError::new(INTERRUPTED, failure.message).retryable();
        let known = runs::find(self.state.store(), id).await;
        let known = known.map_err(|error| stopped(error.into()))?.map(|row| row.run);
        let (statements, input) = match known {
            Some(run) if run.status == RunStatus::Finished => {
                return Ok(End::Finished(run.output.unwrap_or_default()));
            }
            // Its finished tasks are not executed again.
            Some(run) if run.status.is_terminal() => (restart(id), run.input),
            Some(run) => (Vec::new(), run.input),
            None => {
                let input = child_input(input);
                let environment = &self.environment;
                let insert = runs::insert_child(id, &self.parent, &input, environment, now_ms());
                (vec![insert], input)
            }
        };
        let journal = Arc::new(Mutex::new(Journal {
            parent: Some((self.parent.clone(), workflow)),
            ..Journal::new(id, input)
        }));
        let interface = self.user_code.open(&journal).await?;
        let Self {
            state, context, user_code, siblings, max_concurrency, enclosing, redaction, ..
        } = self;
        if !statements.is_empty() {
            context.write(statements).await.map_err(stopped)?;
        }
        let child = context.clone();
        let execution =
            Execution::new(state, child, user_code, journal, interface, max_concurrency);
        let execution =
            execution.await.map_err(stopped)?.into_child(siblings, enclosing, redaction);
        let (end, statements) = execution.run_to_end().await.map_err(stopped)?;
        context.write(statements).await.map_err(stopped)?;
        Ok(end)
    }
}

/// Statements that start an ended child run again.
fn restart(id: &str) -> Vec<Statement> {
    let mut statements = vec![runs::restart_child(id, now_ms())];
    statements.extend(run_state::reset_unfinished(id));
    statements
}

impl Execution {
    /// The data for a child of this run.
    pub(super) fn child(&self) -> ChildRun {
        ChildRun {
            state: Arc::clone(&self.state),
            context: self.context.clone(),
            user_code: Arc::clone(&self.user_code),
            parent: self.run.id.clone(),
            siblings: Arc::clone(&self.children.children),
            environment: self.run.origin.environment.clone(),
            max_concurrency: self.run.max_concurrency,
            enclosing: self.sandboxes.enclosing.clone(),
            redaction: self.ledger.redaction.clone(),
        }
    }

    /// Turns this into the execution of a child run. `siblings` counts it while it waits.
    fn into_child(
        mut self,
        siblings: Arc<WaitingChildren>,
        enclosing: Option<EnclosingSandbox>,
        redaction: Redaction,
    ) -> Self {
        // What a child reports, its parent reports too.
        redaction.add_environment(&self.run.environment());
        self.ledger.redaction = redaction;
        self.sandboxes.enclosing = enclosing;
        if self.status == RunStatus::Waiting {
            self.status = RunStatus::Running;
        }
        self.children.siblings = Some(siblings);
        self
    }
}
