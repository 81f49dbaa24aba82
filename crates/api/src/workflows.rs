//! [`Workflows`]: the list of operations on runs of workflows, and the way from an operation's name
//! to it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::{Code, Problem};

use crate::sandboxes::{Done, Remote, Transport, read, write};
use crate::{Bytes, Caller, Measure, Measurements, Result, Wait};

/// A run to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Up {
    /// The file that exports the workflow, as an absolute path.
    pub file: PathBuf,
    /// What the workflow is given.
    pub input: Value,
    /// The id of the run: 1 to 128 letters, digits, `-`, `_` and `.`; a new one when none is given.
    #[serde(default)]
    pub run_id: Option<String>,
    /// What `process.env` holds for the workflow. It is kept with the run.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How many tasks of the run are done at once; `None` is no limit but those in its file.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
}

/// One run, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunById {
    /// Its id.
    pub id: String,
}

/// The name that a person gives to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindRun {
    /// Its id, the beginning of just one run's, or [`LATEST`].
    pub name: String,
}

/// The name of the run that was started last, of those that no other started. No run has it as id.
pub const LATEST: &str = "latest";

/// Which runs are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// At most so many, the latest.
    pub limit: u32,
}

/// A run to be followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Its id.
    pub id: String,
    /// The first event that is not known yet, from 0.
    pub from: i64,
    /// How long to wait for something new, in milliseconds; at most half a minute.
    #[serde(default)]
    pub wait_ms: u32,
}

/// What is new of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The run as it is after these events, or later.
    pub run: Run,
    /// What happened, in order: objects with a `type`.
    pub events: Vec<Value>,
    /// The first event that is not known yet now.
    pub next: i64,
}

/// A run that has ended, to be taken up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeRun {
    /// Its id.
    pub id: String,
    /// Whether it goes on with its file as it is now, where that says something else than before.
    #[serde(default)]
    pub accept_changes: bool,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The run.
    pub id: String,
    /// Its task that waits for it. One of a run below, or of a child in a sandbox, by the ids on the
    /// way, as in `BOX/DEPLOY`, or by its own where no other has that.
    pub task: String,
    /// Yes or no.
    pub approved: bool,
    /// What is said with it.
    #[serde(default)]
    pub note: Option<String>,
    /// Of the changes of a sandbox, only what is at or below these paths of the project; all when
    /// empty.
    #[serde(default)]
    pub only: Vec<Bytes>,
    /// Whether those of them are accepted too that tools of the host run by themselves.
    #[serde(default)]
    pub allow_executed: bool,
}

/// A signal to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// The run.
    pub id: String,
    /// The name of the signal; behind the ids of what the task is in that waits for it, where it is
    /// for that one, as in `BOX/GO`. A child in a sandbox that does not wait yet gets it by that only.
    pub name: String,
    /// Which one of that name.
    #[serde(default)]
    pub correlation: Option<String>,
    /// What it says.
    #[serde(default)]
    pub payload: Value,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub id: String,
    /// The name of its workflow.
    pub name: String,
    /// The file that it was started from.
    pub file: String,
    /// Where it is in its life.
    pub status: RunStatus,
    /// What it was given.
    pub input: Value,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What it failed with: its `code`, `message` and `frames`, and the `task`, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// Names the program that it runs.
    pub program: String,
    /// When it was started, in milliseconds since 1970.
    pub created_at: i64,
    /// When it changed last.
    pub updated_at: i64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<i64>,
    /// When it goes on by itself, where it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<i64>,
}

/// A run with its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The run.
    pub run: Run,
    /// Its tasks, in the order in which they began.
    pub tasks: Vec<TaskInfo>,
    /// Its sandboxes, the last try of each, in the order in which those began.
    #[serde(default)]
    pub sandboxes: Vec<SandboxInfo>,
    /// What it waits for from outside, with what runs below it and children in sandboxes do.
    #[serde(default)]
    pub waits: Vec<Wait>,
}

/// One `<Sandbox>` of a run: what its row has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInfo {
    /// The task.
    pub sandbox_id: String,
    /// The iteration of the loop that it is in, else 0.
    pub iteration: u32,
    /// Which try of the task it is, from 1.
    pub attempt: u32,
    /// The runtime that was asked for.
    pub runtime: String,
    /// What it asked for, with which runtime was selected, and without what is secret.
    pub config: Value,
    /// `pending`, `shipped`, `waiting`, `review`, `finished`, `failed` or `cancelled`.
    pub status: String,
    /// The child's run, and what a provider calls its workspace and its container.
    pub remote_run_id: Option<String>,
    /// See `remote_run_id`.
    pub workspace_id: Option<String>,
    /// See `remote_run_id`.
    pub container_id: Option<String>,
    /// When it was begun, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was last known to live.
    pub heartbeat_at_ms: Option<i64>,
    /// When its request had left.
    pub shipped_at_ms: Option<i64>,
    /// When it ended.
    pub completed_at_ms: Option<i64>,
    /// Where its result is on the host.
    pub bundle_path: Option<String>,
    /// The bundles with its changes, while they wait or after.
    pub bundles: Vec<String>,
    /// The sandbox that it is in, where it is in another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_sandbox_id: Option<String>,
    /// How many sandboxes are around it.
    #[serde(default)]
    pub depth: u32,
    /// `sandbox-unreachable` when it should be alive and nothing was heard of it for a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
}

/// One doing of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskInfo {
    /// The task.
    pub id: String,
    /// The iteration of the loop that it is in, else 0.
    pub iteration: u32,
    /// What kind of work it is.
    pub kind: String,
    /// What it is called for people.
    pub label: String,
    /// Where it is in its life.
    pub status: TaskStatus,
    /// Tries that were begun; one that a crash ended and its repetition are one.
    pub attempts: u32,
    /// How often its work was begun.
    pub executions: u32,
    /// The table that has what it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What it failed with last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// What its author says of it.
    pub meta: Value,
    /// The bundle of what it changed in the project, which waits for a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// When it goes on by itself, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<i64>,
    /// When it began.
    pub started_at: i64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<i64>,
}

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Something of it is being done.
    Running,
    /// It waits for a decision, a signal or a time.
    Waiting,
    /// It is done.
    Finished,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunStatus {
    const ALL: [Self; 5] =
        [Self::Running, Self::Waiting, Self::Finished, Self::Failed, Self::Cancelled];

    /// The word that is kept.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Cancelled)
    }
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStatus {
    /// It is being done.
    Running,
    /// It failed, and is tried again later.
    Retrying,
    /// It waits until somebody decides.
    WaitingApproval,
    /// It waits for a signal.
    WaitingEvent,
    /// It waits for a time.
    WaitingTimer,
    /// It is done.
    Finished,
    /// It was left out while the run went on.
    Skipped,
    /// It has failed for good.
    Failed,
    /// It was ended with its run.
    Cancelled,
}

impl TaskStatus {
    const ALL: [Self; 9] = [
        Self::Running,
        Self::Retrying,
        Self::WaitingApproval,
        Self::WaitingEvent,
        Self::WaitingTimer,
        Self::Finished,
        Self::Skipped,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The word that is kept.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::WaitingApproval => "waiting-approval",
            Self::WaitingEvent => "waiting-event",
            Self::WaitingTimer => "waiting-timer",
            Self::Finished => "finished",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it waits for something from outside.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::WaitingApproval | Self::WaitingEvent | Self::WaitingTimer)
    }
}

/// Writes the trait, and from the same list what carries it over a wire.
macro_rules! operations {
    ($( $(#[$note:meta])* $name:ident($request:ty) -> $answer:ty; )*) => {
        /// What can be done with runs of workflows. Every operation checks first that the run is the
        /// caller's; one that is not, and one that does not exist, get the same answer.
        #[async_trait]
        pub trait Workflows: Debug + Send + Sync {
            $(
                $(#[$note])*
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer>;
            )*
        }

        #[async_trait]
        impl<T: Transport> Workflows for Remote<T> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let operation = concat!("workflows.", stringify!($name));
                    let answer = self.0.call(caller, operation, write(&request)?).await?;
                    serde_json::from_value(answer).map_err(|error| {
                        Problem::new(Code::Io, "the server's response cannot be read")
                            .because(error.to_string())
                    })
                }
            )*
        }

        /// Does an operation by its name, from JSON to JSON; `None` for a name that is none of
        /// these.
        ///
        /// # Errors
        /// What the operation fails with; [`Code::InvalidInput`] for a request that cannot be read.
        pub async fn dispatch_workflows(
            workflows: &dyn Workflows,
            caller: &Caller,
            operation: &str,
            request: &[u8],
        ) -> Option<Result<Value>> {
            let name = operation.strip_prefix("workflows.")?;
            let answer = async {
                match name {
                    $(
                        stringify!($name) => {
                            write(&workflows.$name(caller, read(request)?).await?)
                        }
                    )*
                    unknown => Err(Problem::new(
                        Code::InvalidInput,
                        format!("there is no operation {unknown:?} on workflows"),
                    )),
                }
            };
            Some(answer.await)
        }
    };
}

operations! {
    /// Starts a run. Its file is loaded, rendered and checked first, so that nothing is started
    /// which cannot be done.
    up(Up) -> Run;
    /// A run.
    run(RunById) -> Run;
    /// The run that a name stands for.
    find(FindRun) -> Run;
    /// The latest runs.
    runs(ListRuns) -> Vec<Run>;
    /// A run with its tasks.
    inspect(RunById) -> Inspection;
    /// What is new of a run, waiting for it.
    follow(Follow) -> Followed;
    /// Takes a run up again that has failed or was cancelled: what is finished is not done again.
    /// One that is under way or finished stays as it is.
    resume_run(ResumeRun) -> Run;
    /// Cancels a run. One that has ended stays as it is.
    cancel_run(RunById) -> Run;
    /// Decides what an approval of a run asks for.
    decide(Decide) -> Done;
    /// Sends a signal to a run, which takes it when it comes to wait for it.
    signal(SendSignal) -> Done;
    /// What is measured of the sandboxes of the caller's runs.
    measure(Measure) -> Measurements;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_their_status() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
