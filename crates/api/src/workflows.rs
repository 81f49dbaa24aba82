//! [`Workflows`]: the list of operations on workflow runs, and the dispatch by an operation's name.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::{Code, Problem, Time};

use crate::observed::{Observe, Observed};
use crate::routed::{Elsewhere, Route, Routed, Routing, answer_of, not_everywhere};
use crate::sandboxes::{Ack, Remote, Transport, read, write};
use crate::{Bytes, Caller, Measure, Measurements, Result, SecretValue, Wait};

/// Starts a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Up {
    /// The file that exports the workflow, as an absolute path.
    pub file: PathBuf,
    /// The input of the workflow.
    pub input: Value,
    /// The id of the run: 1 to 128 letters, digits, `-`, `_` and `.`; generated when absent.
    #[serde(default)]
    pub run_id: Option<String>,
    /// The content of `process.env` for the workflow. It is stored with the run.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How many tasks of the run may run concurrently; `None` means only the limits in its file.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    /// The values of the secrets that [`variables::SECRETS`](crate::variables::SECRETS) names. They are
    /// kept in the memory of the engine, and stored nowhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretValue>,
    /// The server that holds the sandboxes that name no runtime; this machine when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerAccess>,
}

/// A server elsewhere that holds the sandboxes of a run, and how it is used. The URL is stored with the
/// run; the rest is kept in the memory of the engine, and stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerAccess {
    /// Its URL: `https://HOST[:PORT]` or `http://HOST[:PORT]`.
    pub url: String,
    /// The API key, if the server wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretValue>,
    /// Authorities that its certificate may be of besides those of the system, in PEM format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
}

/// Starts a run that continues from a step of another one: what had ended when the step started is
/// taken from there, and the step starts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The other run, which is not changed.
    pub source: String,
    /// The step: a task of that run.
    pub task: String,
    /// The iteration of its loop; needed if it has started in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u32>,
    /// The id of the new run; generated when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// An absolute path of a new or empty directory for the files of the project as they were when the
    /// step started. The new run works there. One beside the project when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// The values of the secrets of the other run, which are stored nowhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretValue>,
    /// The server of the other run again, if it has one whose key the engine does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerAccess>,
}

/// The step that a run was forked from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkOrigin {
    /// The other run.
    pub run: String,
    /// The step.
    pub task: String,
    /// The iteration of its loop, else 0.
    pub iteration: u32,
    /// How many ended tasks were taken from there.
    pub tasks: u64,
    /// The directory with the files of the project as they were then; absent if no step of the other
    /// run works on files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

/// One run, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunById {
    /// Its id.
    pub id: String,
}

/// Finds a run by the name that a user gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindRun {
    /// An id, a unique prefix of one, or [`LATEST`].
    pub name: String,
}

/// The name of the last started run, without child runs. No run can have it as its id.
pub const LATEST: &str = "latest";

/// Lists runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// The most runs to return, the latest ones.
    pub limit: u32,
}

/// Follows a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Its id.
    pub id: String,
    /// The number of the first event to return, from 0.
    pub from: i64,
    /// How long to wait for a new event, in milliseconds; at most half a minute.
    #[serde(default)]
    pub wait_ms: u32,
    /// The status that the caller knows. Another one is news, without a new event too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_status: Option<RunStatus>,
}

/// The news of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunUpdate {
    /// The run, as it is after these events or later.
    pub run: Run,
    /// The events, in order: objects with a `type`.
    pub events: Vec<Value>,
    /// The number of the next event to request.
    pub next: i64,
}

/// Resumes a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeRun {
    /// Its id.
    pub id: String,
    /// Whether it continues with the current content of its file if that has changed.
    #[serde(default)]
    pub accept_changes: bool,
    /// Whether it is executed again although it failed because a user denied something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// The values of its secrets, which are stored nowhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretValue>,
    /// Its server again, if the engine does not have the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerAccess>,
}

/// Decides an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// The run.
    pub id: String,
    /// The task that waits for it. A task of a child run, or of a child in a sandbox, is named with
    /// the ids of its outer tasks, as in `BOX/DEPLOY`, or by its own id if that is unique.
    pub task: String,
    /// Whether it is approved.
    pub approved: bool,
    /// A note for it.
    #[serde(default)]
    pub note: Option<String>,
    /// For the changes of a sandbox, only those at or below these paths of the project; all when
    /// empty.
    #[serde(default)]
    pub only: Vec<Bytes>,
    /// Whether those changes to files that host tools execute automatically are accepted.
    #[serde(default)]
    pub allow_executed: bool,
}

/// Sends a signal to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// The run.
    pub id: String,
    /// The name of the signal, for one task with the ids of its outer tasks as a prefix, as in
    /// `BOX/GO`. A child in a sandbox that does not wait yet receives it only by such a name.
    pub name: String,
    /// The correlation id among signals of that name.
    #[serde(default)]
    pub correlation: Option<String>,
    /// Its payload.
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
    /// Its status.
    pub status: RunStatus,
    /// Its input.
    pub input: Value,
    /// Its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Its failure: `code`, `message` and `frames`, and the `task`, if a task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// Identifies the program that it runs.
    pub program: String,
    /// When it was started.
    pub created_at: Time,
    /// When it last changed.
    pub updated_at: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it continues by itself, if it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Time>,
    /// The URL of the server that holds its sandboxes; absent for the machine that executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// A run with its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The run.
    pub run: Run,
    /// Its tasks, in the order of their starts.
    pub tasks: Vec<TaskInfo>,
    /// Its sandboxes, the last attempt of each, in the order of the starts of those.
    #[serde(default)]
    pub sandboxes: Vec<SandboxInfo>,
    /// All its waits, including those of its child runs and of children in sandboxes.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// Why it has stopped without an end, if it has; it continues when that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// The step that it was forked from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkOrigin>,
}

/// One `<Sandbox>` of a run, as in its database row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInfo {
    /// The id of the task.
    pub sandbox_id: String,
    /// The iteration of its loop, else 0.
    pub iteration: u32,
    /// The attempt of the task, from 1.
    pub attempt: u32,
    /// The requested runtime.
    pub runtime: String,
    /// Its request, with the selected runtime, and without secrets.
    pub config: Value,
    /// `pending`, `shipped`, `waiting`, `review`, `finished`, `failed` or `cancelled`.
    pub status: String,
    /// The child's run id, and a provider's ids of its workspace and its container.
    pub remote_run_id: Option<String>,
    /// See `remote_run_id`.
    pub workspace_id: Option<String>,
    /// See `remote_run_id`.
    pub container_id: Option<String>,
    /// When it was started.
    pub created_at: Time,
    /// The time of its last heartbeat.
    pub heartbeat_at: Option<Time>,
    /// When its request had been sent.
    pub shipped_at: Option<Time>,
    /// When it ended.
    pub completed_at: Option<Time>,
    /// The path of its result on the host.
    pub bundle_path: Option<String>,
    /// The bundles with its changes, while they wait for a decision or after it.
    pub bundles: Vec<String>,
    /// The outer sandbox, if it is nested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_sandbox_id: Option<String>,
    /// The number of outer sandboxes.
    #[serde(default)]
    pub depth: u32,
    /// `sandbox-unreachable` if it should be alive but has sent no heartbeat for a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
}

/// One execution of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskInfo {
    /// The id of the task.
    pub id: String,
    /// The iteration of its loop, else 0.
    pub iteration: u32,
    /// Its kind of work.
    pub kind: String,
    /// Its label for people.
    pub label: String,
    /// Its status.
    pub status: TaskStatus,
    /// The number of attempts that were started; an attempt that a crash ended counts once with its
    /// repetition.
    pub attempts: u32,
    /// How often its work was started.
    pub executions: u32,
    /// The table with its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Its last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The metadata from its author.
    pub meta: Value,
    /// The bundle with its changes in the project, which waits for a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// When it continues by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Time>,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// A part of it is running.
    Running,
    /// It waits for a decision, a signal or a time.
    Waiting,
    /// It has succeeded.
    Finished,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl RunStatus {
    const ALL: [Self; 5] =
        [Self::Running, Self::Waiting, Self::Finished, Self::Failed, Self::Cancelled];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it has ended.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Cancelled)
    }
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStatus {
    /// It is running.
    Running,
    /// It failed, and will be retried.
    Retrying,
    /// It waits for a decision.
    WaitingApproval,
    /// It waits for a signal.
    WaitingEvent,
    /// It waits for a time.
    WaitingTimer,
    /// It has succeeded.
    Finished,
    /// It was skipped while the run continued.
    Skipped,
    /// It has failed permanently.
    Failed,
    /// It was cancelled with its run.
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

    /// The stored name.
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

    /// The status with that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it waits for an external event.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::WaitingApproval | Self::WaitingEvent | Self::WaitingTimer)
    }
}

/// Defines the trait, and from the same list its transport over a connection.
macro_rules! operations {
    ($( $(#[$note:meta])* $name:ident($request:ty) -> $answer:ty; )*) => {
        /// The operations on workflow runs. Every operation first checks that the run belongs to
        /// the caller; a run of another owner gets the same response as one that does not exist.
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

        #[async_trait]
        impl<T: Workflows, O: Observe> Workflows for Observed<T, O> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let name = concat!("workflows.", stringify!($name));
                    let value = write(&request)?;
                    let caller = self.before(caller, name, &value).await?;
                    let answer = self.inner.$name(&caller, request).await;
                    let written = |answer: &$answer| write(answer).unwrap_or_default();
                    self.after(&caller, name, &value, (&answer, written)).await;
                    answer
                }
            )*
        }

        #[async_trait]
        impl<T: Workflows, R: Route<Operations: Workflows>> Workflows for Routed<T, R> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let name = concat!("workflows.", stringify!($name));
                    match self.router.route(caller, name, &write(&request)?).await? {
                        Routing::Here => self.inner.$name(caller, request).await,
                        Routing::There(Elsewhere { operations, gone, .. }) => {
                            answer_of(gone, operations.$name(caller, request)).await
                        }
                        Routing::Everywhere { .. } => Err(not_everywhere(name)),
                    }
                }
            )*
        }

        /// Calls an operation by its name, from JSON to JSON; `None` for an unknown name.
        ///
        /// # Errors
        /// The error of the operation; [`Code::InvalidInput`] for an invalid request.
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
    /// Starts a run. Its file is loaded, rendered and checked first, so that no invalid workflow is
    /// started.
    up(Up) -> Run;
    /// Starts a run from a step of another one.
    fork(Fork) -> Run;
    /// Gets a run.
    run(RunById) -> Run;
    /// Finds a run by a name.
    find(FindRun) -> Run;
    /// Lists the latest runs.
    runs(ListRuns) -> Vec<Run>;
    /// Gets a run with its tasks.
    inspect(RunById) -> Inspection;
    /// Waits for news of a run, and returns them.
    follow(Follow) -> RunUpdate;
    /// Resumes a run that has failed or was cancelled: finished tasks do not run again. An active
    /// or finished run is unchanged.
    resume_run(ResumeRun) -> Run;
    /// Cancels a run. One that has ended is unchanged.
    cancel_run(RunById) -> Run;
    /// Decides an approval of a run.
    decide(Decide) -> Ack;
    /// Sends a signal to a run, which receives it when it waits for it.
    signal(SendSignal) -> Ack;
    /// The metrics of the sandboxes of the caller's runs.
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
