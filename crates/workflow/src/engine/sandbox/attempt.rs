//! The data and the outcome of one attempt of a `<Sandbox>`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use stockade_api::Sandboxes;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::sandbox::SandboxBundle;
use tokio::sync::Semaphore;

use super::child_runs::ChildRuns;
use super::directory::SandboxDirectory;
use super::enclosing::EnclosingSandbox;
use super::handle::SandboxHandle;
use super::recorder::Recorder;
use super::remote::RemoteIds;
use crate::engine::accept::accept;
use crate::engine::state::EngineState;
use crate::engine::task_error::TaskError;
use crate::engine::tool_limits;
use crate::engine::user_code::UserCode;
use crate::graph::{Sandbox, Task, ToolLimits};
use crate::schedule::Key;
use crate::store::sandboxes::{self, Pause, SandboxRow};

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AttemptOutcome {
    /// The outputs of the task.
    Value(Value),
    /// The outputs of a task whose changes were applied.
    Changed(Value),
    /// The changes wait for a decision, again if the last one could not be applied.
    Review(Option<TaskError>),
    /// The child waits for answers.
    Waits(Pause),
    /// Only the host can create the sandbox. It was requested under this name.
    HostRequest(String),
}

/// The data that one attempt needs.
#[derive(Debug)]
pub(crate) struct SandboxAttempt {
    pub(crate) state: Arc<EngineState>,
    pub(crate) user_code: Arc<UserCode>,
    pub(crate) run: String,
    /// Identifies this attempt.
    pub(crate) name: String,
    pub(crate) owner: String,
    /// The project's directory.
    pub(crate) root: PathBuf,
    /// The `process.env` of the run.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) key: Key,
    pub(crate) task: Arc<Task>,
    pub(crate) recorder: Recorder,
    /// The slots of the run for sandboxes.
    pub(crate) slots: Arc<Semaphore>,
    /// The runs that a provider requests.
    pub(crate) child_runs: Arc<dyn ChildRuns>,
    /// The sandbox that encloses it, if it is nested.
    pub(crate) enclosing: Option<EnclosingSandbox>,
    /// The source of a sandbox that a child requested; `None` for a sandbox of the run's own workflow.
    pub(crate) nested_source: Option<NestedSource>,
}

/// The source of a sandbox that a child requested, which replaces the run's program and project.
#[derive(Debug)]
pub(crate) struct NestedSource {
    /// The program of its child.
    pub(crate) program: BTreeMap<String, Vec<u8>>,
    /// A copy of the enclosing workspace, with which its own workspace starts.
    pub(crate) workspace: PathBuf,
    /// The name of its attempt.
    pub(super) name: String,
}

/// A result on the host, and its origin.
#[derive(Debug)]
pub(super) struct CollectedResult {
    pub(super) into: Dir,
    /// The path of that directory.
    pub(super) path: PathBuf,
    pub(super) bundle: SandboxBundle,
    /// The files in it that are not synced yet.
    pub(super) unsynced: Vec<RelativePath>,
    /// When the attempt started, and the commit of the project at that time.
    pub(super) started_at: i64,
    pub(super) base_ref: Option<String>,
    pub(super) remote: RemoteIds,
}

impl SandboxAttempt {
    /// The row of this attempt; `None` if it has not started.
    pub(super) async fn row(&self) -> Result<Option<SandboxRow>, TaskError> {
        let row = sandboxes::find(self.state.store(), &self.run, &self.key).await;
        let row = row.map_err(|error| failed(error.to_string()).retryable())?;
        let is_same =
            |row: &SandboxRow| row.attempt == self.recorder.attempt && row.name == self.name;
        Ok(row.filter(is_same))
    }

    pub(super) fn sandboxes(&self) -> Result<Arc<dyn Sandboxes>, TaskError> {
        let sandboxes = self.state.options.sandboxes.clone();
        sandboxes.ok_or_else(|| TaskError::new("INVALID_INPUT", "no sandbox can be created here"))
    }

    /// The sandbox of this attempt.
    pub(super) fn handle(&self) -> Result<SandboxHandle, TaskError> {
        SandboxHandle::of(self.sandboxes()?, &self.owner, &self.name)
    }

    /// The directory of its files on the host.
    pub(super) fn directory(&self) -> Result<SandboxDirectory, TaskError> {
        match &self.nested_source {
            Some(_) => SandboxDirectory::open_nested(&self.root, &self.run, &self.key),
            None => SandboxDirectory::open(&self.root, &self.run, &self.key),
        }
    }

    /// The row of its outputs, as the author's schema makes it. A nested sandbox has none: its result
    /// becomes a row of the child that requested it.
    pub(super) async fn accept(&self, outputs: Value) -> Result<Value, TaskError> {
        if self.nested_source.is_some() {
            return Ok(outputs);
        }
        accept(&self.state.schemas, &self.user_code, &self.run, &self.task, outputs).await
    }

    /// The limits of the tools in it.
    pub(super) fn tools(&self, sandbox: &Sandbox) -> ToolLimits {
        tool_limits::limits(&self.environment).narrowed(sandbox.tools)
    }

    /// The root run of the run's ancestors.
    pub(super) fn root_run(&self) -> &str {
        self.run.split(":child:").next().unwrap_or(&self.run)
    }

    /// The host directory of which it sees a view, and to which its changes are applied.
    pub(super) fn project(&self) -> &Path {
        self.nested_source.as_ref().map_or(self.root.as_path(), |source| source.workspace.as_path())
    }
}

/// Whether an attempt ended because its run has stopped. It continues when the run continues.
pub(super) fn is_stopped<T>(done: &Result<T, TaskError>) -> bool {
    done.as_ref().is_err_and(TaskError::is_interruption)
}

pub(super) fn failed(message: impl Into<String>) -> TaskError {
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}
