//! A workflow in a workflow: a run of its own, done by the one that has it. Its id follows from that
//! run and the task, so that it is found again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_api::RunStatus;
use stockade_durable::{Context, Failure, Statement};
use tokio::sync::Notify;

use super::{Drive, End};
use crate::engine::clock::now_ms;
use crate::engine::sandbox::EnclosingSandbox;
use crate::engine::state::EngineState;
use crate::engine::trouble::{INTERRUPTED, Trouble};
use crate::engine::user_code::UserCode;
use crate::graph::Function;
use crate::journal::{Journal, WorkflowRef, child_input};
use crate::schedule::Key;
use crate::store::{run_state, runs};

/// The runs that a run has under way below itself.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// How many of them wait for others.
    waiting: AtomicUsize,
    /// Told when that changes.
    pub(super) changed: Notify,
}

impl Children {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// One of them begins to wait, or ends to.
    pub(super) fn count(&self, waits: bool) {
        if waits {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }
}

/// All that a run below another needs.
#[derive(Clone)]
pub(super) struct Child {
    pub(super) state: Arc<EngineState>,
    pub(super) context: Context,
    pub(super) user_code: Arc<UserCode>,
    pub(super) parent: String,
    pub(super) siblings: Arc<Children>,
    /// What its run finds in its environment, as JSON.
    pub(super) environment: String,
    pub(super) max_concurrency: Option<u32>,
    /// The sandbox that it is in, where a provider does it.
    pub(super) enclosing: Option<EnclosingSandbox>,
}

impl Child {
    /// The id of the run that a task has.
    pub(super) fn id(&self, key: &Key) -> String {
        format!("{}:child:{}:{}", self.parent, key.node, key.iteration)
    }

    /// Does the run of a task, or what is left of it; what it gives.
    pub(super) async fn run(
        self,
        key: &Key,
        workflow: Function,
        input: Value,
    ) -> Result<Value, Trouble> {
        let id = self.id(key);
        match self.end(&id, WorkflowRef::Rendered(workflow), input).await? {
            End::Finished(output) => Ok(output),
            End::Failed(error) => {
                let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
                let message = match error["task"].as_str() {
                    Some(task) => format!("task \"{task}\" of it failed: {}", text("message")),
                    None => text("message"),
                };
                let frames = error["frames"].as_array().cloned().unwrap_or_default();
                let frames = frames.iter().filter_map(|frame| frame.as_str().map(str::to_owned));
                let trouble = Trouble::new(&text("code"), message);
                // Its tasks were tried again already, each as often as it may be.
                Err(Trouble { frames: frames.collect(), ..trouble })
            }
        }
    }

    /// Does a run, or what is left of it; how it ends. One that is known keeps its input.
    pub(super) async fn end(
        self,
        id: &str,
        workflow: WorkflowRef,
        input: Value,
    ) -> Result<End, Trouble> {
        let stopped = |failure: Failure| Trouble::new(INTERRUPTED, failure.message).retryable();
        let known = runs::find(self.state.store(), id).await;
        let known = known.map_err(|error| stopped(error.into()))?.map(|row| row.run);
        let (statements, input) = match known {
            Some(run) if run.status == RunStatus::Finished => {
                return Ok(End::Finished(run.output.unwrap_or_default()));
            }
            // What is finished of it is not done again.
            Some(run) if run.status.is_terminal() => (again(id), run.input),
            Some(run) => (Vec::new(), run.input),
            None => {
                let input = child_input(input);
                (vec![self.begun(id, &input)], input)
            }
        };
        let journal = Arc::new(Mutex::new(Journal {
            within: Some((self.parent.clone(), workflow)),
            ..Journal::new(id, input)
        }));
        let about = self.user_code.open(&journal).await?;
        let Self { state, context, user_code, siblings, max_concurrency, enclosing, .. } = self;
        if !statements.is_empty() {
            context.write(statements).await.map_err(stopped)?;
        }
        let drive = Drive::new(state, context.clone(), user_code, journal, about, max_concurrency);
        let drive = drive.await.map_err(stopped)?.below(siblings, enclosing);
        let (end, statements) = drive.go().await.map_err(stopped)?;
        context.write(statements).await.map_err(stopped)?;
        Ok(end)
    }

    fn begun(&self, id: &str, input: &Value) -> Statement {
        runs::insert_child(id, &self.parent, input, &self.environment, now_ms())
    }
}

/// Lets a run that has failed begin again where it was.
fn again(id: &str) -> Vec<Statement> {
    let mut statements = vec![runs::restart_child(id, now_ms())];
    statements.extend(run_state::reset_unfinished(id));
    statements
}

impl Drive {
    /// What a run below this one needs.
    pub(super) fn child(&self) -> Child {
        Child {
            state: Arc::clone(&self.state),
            context: self.context.clone(),
            user_code: Arc::clone(&self.user_code),
            parent: self.run.clone(),
            siblings: Arc::clone(&self.children),
            environment: self.origin.environment.clone(),
            max_concurrency: self.max_concurrency,
            enclosing: self.enclosing.clone(),
        }
    }

    /// The same as one below another, which learns when it waits.
    fn below(mut self, siblings: Arc<Children>, enclosing: Option<EnclosingSandbox>) -> Self {
        self.enclosing = enclosing;
        if self.status == RunStatus::Waiting {
            self.status = RunStatus::Running;
        }
        self.siblings = Some(siblings);
        self
    }
}
