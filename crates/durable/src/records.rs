//! What the engine and a store exchange. Values are JSON text where the engine does not read them;
//! times are milliseconds since 1970.

use std::time::Duration;

use crate::{Error, Failure, Json, Result, Statement, Status, WorkflowId};

/// One process that executes workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    /// Its name, the same after a restart.
    pub id: String,
    /// The number of its current start; later ones are greater.
    pub incarnation: i64,
    /// The version of its workflows; it takes over only workflows of the same version.
    pub application_version: String,
    /// The names of the workflows that it has registered; it takes no others.
    pub names: Vec<String>,
    /// The place whose workflows it runs, besides those of no place; it takes none of another place.
    pub place: Option<String>,
}

/// The right to write for a workflow: its row must be PENDING, of this executor, with this epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The workflow.
    pub id: WorkflowId,
    /// The executor that runs it.
    pub executor: String,
    /// The number of the run; each take-over adds one.
    pub epoch: i64,
}

/// A workflow that this executor must run now.
#[derive(Debug, Clone)]
pub struct ClaimedWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: String,
    /// Its owner.
    pub owner: Option<String>,
    /// The number of this run; the first is 1.
    pub epoch: i64,
    /// When its timeout expires.
    pub deadline: Option<i64>,
}

/// A workflow that is to be recorded.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: String,
    /// Its owner.
    pub owner: Option<String>,
    /// The executor that runs it immediately, with its incarnation; else it waits in its queue.
    pub executor: Option<(String, i64)>,
    /// The version that starts it.
    pub application_version: String,
    /// The place that it belongs to; see [`Executor::place`].
    pub place: Option<String>,
    /// The queue that it waits in.
    pub queue: Option<String>,
    /// A queue accepts no second waiting or running workflow with the same one.
    pub deduplication_id: Option<String>,
    /// Workflows with lower values leave the queue first.
    pub priority: i32,
    /// After how many milliseconds it may begin, by the clock of the store.
    pub delay_ms: Option<i64>,
    /// How long it may run.
    pub timeout_ms: Option<i64>,
    /// The workflow that started it.
    pub parent: Option<WorkflowId>,
    /// Statements that are committed together with it; not when it exists already.
    pub statements: Vec<Statement>,
}

/// The result of recording a workflow.
#[derive(Debug, Clone)]
pub enum CreateOutcome {
    /// It is new. The deadline is set where it runs immediately and has a timeout.
    New {
        /// See [`ClaimedWorkflow::deadline`].
        deadline: Option<i64>,
    },
    /// The same workflow was recorded before.
    Existing,
}

impl NewWorkflow {
    /// Fails with [`Error::Conflict`] unless the existing workflow with the id was started with the
    /// same name and input.
    pub fn check_same(&self, known: &WorkflowInfo) -> Result<()> {
        let input: Json = serde_json::from_str(&self.input)?;
        let other = if known.name != self.name {
            "another name"
        } else if known.input != input {
            "another input"
        } else {
            return Ok(());
        };
        Err(Error::Conflict {
            what: format!("workflow {} was started before with {other}", self.id),
        })
    }
}

/// The stored state of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowInfo {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// Its input.
    pub input: Json,
    /// Its result.
    pub output: Option<Json>,
    /// Its failure, or why it was cancelled.
    pub failure: Option<Failure>,
    /// Its owner.
    pub owner: Option<String>,
    /// Its queue.
    pub queue: Option<String>,
    /// Its deduplication id, while it waits or runs.
    pub deduplication_id: Option<String>,
    /// Workflows with lower values leave the queue first.
    pub priority: i32,
    /// The executor that runs it or ran it last.
    pub executor_id: Option<String>,
    /// The version that started it.
    pub application_version: String,
    /// The place that it belongs to; see [`Executor::place`].
    pub place: Option<String>,
    /// How many runs of it were started.
    pub recovery_attempts: i64,
    /// The workflow that started it.
    pub parent: Option<WorkflowId>,
    /// When it was recorded.
    pub created_at: i64,
    /// When its status changed last.
    pub updated_at: i64,
    /// When it first ran.
    pub started_at: Option<i64>,
    /// When it ended.
    pub completed_at: Option<i64>,
    /// When its timeout expires.
    pub deadline: Option<i64>,
}

/// Selects workflows; a field that is `None` selects all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those with that name.
    pub name: Option<String>,
    /// Those in that status.
    pub status: Option<Status>,
    /// Those in that queue.
    pub queue: Option<String>,
    /// Those of that owner.
    pub owner: Option<String>,
    /// Those that this workflow started.
    pub parent: Option<WorkflowId>,
    /// Those recorded before that time.
    pub before: Option<i64>,
    /// Those recorded at that time or later.
    pub after: Option<i64>,
    /// At most this many, the oldest first.
    pub limit: Option<u32>,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The value that it returned.
    Output(String),
    /// What it failed with.
    Failure(Failure),
}

/// A step that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Its position in the workflow, from 0.
    pub function_id: u32,
    /// Its name; another name on replay is a failure.
    pub name: String,
    /// Its result.
    pub outcome: StepOutcome,
    /// The workflow that it started.
    pub child: Option<WorkflowId>,
    /// When it started.
    pub started_at: i64,
    /// When it ended.
    pub completed_at: i64,
}

/// A row of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRow {
    /// The name of the stream.
    pub key: String,
    /// The value; `None` closes the stream. Later rows are dropped.
    pub value: Option<String>,
    /// The step that wrote it, where one did.
    pub function_id: Option<u32>,
}

/// An event that is set; it replaces an earlier one with that key.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// The name of the event.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A message to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// A second message with the same id is dropped.
    pub id: String,
    /// The receiving workflow.
    pub destination: WorkflowId,
    /// Its topic; empty where none was named.
    pub topic: String,
    /// Its content.
    pub body: String,
}

/// The records that a workflow writes to the store besides its own row.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Steps that have ended.
    pub steps: Vec<StepRecord>,
    /// Rows that are appended to streams.
    pub stream: Vec<StreamRow>,
    /// Events that are set.
    pub events: Vec<EventRecord>,
    /// Messages that are sent.
    pub messages: Vec<Message>,
    /// Ids of messages that were received.
    pub consumed: Vec<String>,
    /// Workflows that are started.
    pub children: Vec<NewWorkflow>,
}

impl Records {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
            && self.stream.is_empty()
            && self.events.is_empty()
            && self.messages.is_empty()
            && self.consumed.is_empty()
            && self.children.is_empty()
    }
}

/// How a workflow ended without being cancelled.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The value that it returned.
    Success(String),
    /// What it failed with.
    Failure(Failure),
}

/// One write of a workflow: all or nothing, and only under its claim.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The claim.
    pub claim: Claim,
    /// Records of earlier steps; they are committed even when the rest meets a conflict.
    pub earlier: Records,
    /// Records that are committed only together with all that follows.
    pub records: Records,
    /// Rows of the application.
    pub statements: Vec<Statement>,
    /// The end of the workflow.
    pub outcome: Option<Outcome>,
}

/// The result of a commit.
#[derive(Debug, Clone, Default)]
pub struct CommitResult {
    /// The result for each child, in order.
    pub children: Vec<CreateOutcome>,
}

/// A request to take over workflows.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// The executor that takes them over.
    pub executor: Executor,
    /// How long an executor may miss heartbeats before it is considered dead.
    pub silence_ms: i64,
    /// How many take-overs without a record are allowed.
    pub max_attempts: u32,
    /// Workflows that this executor has claimed and does not run, with their epochs.
    pub strays: Vec<OwnedWorkflow>,
}

/// When an executor was last heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long ago it renewed its lease, or released it.
    pub silent_ms: i64,
    /// Whether it released its lease when it ended.
    pub is_released: bool,
}

/// A place whose workflows end without being run, because no executor of it is alive.
#[derive(Debug, Clone)]
pub struct Abandonment {
    /// The place. The executor with this id keeps its lease.
    pub place: String,
    /// How long that executor must have been silent, or have ended.
    pub silence_ms: i64,
    /// The names of the workflows that end. Others stay as they are.
    pub names: Vec<String>,
    /// What they fail with.
    pub failure: Failure,
    /// Statements that are committed together with that.
    pub statements: Vec<Statement>,
}

/// A workflow that an executor has claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedWorkflow {
    /// The workflow.
    pub id: WorkflowId,
    /// Its run.
    pub epoch: i64,
}

/// The workflows that left the queues.
#[derive(Debug, Clone, Default)]
pub struct QueueBatch {
    /// Workflows to run now.
    pub workflows: Vec<ClaimedWorkflow>,
    /// When more may be ready without another commit.
    pub next_at: Option<i64>,
    /// Whether a workflow waits for a slot that another process has.
    pub waits_for_slot: bool,
}

/// Rows of a stream, and the status of the workflow in the same snapshot.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// Rows with their offsets; `None` closes the stream.
    pub rows: Vec<(u64, Option<Json>)>,
    /// The status of the workflow at that moment.
    pub status: Status,
}

/// A message that waits for its workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedMessage {
    /// Its id.
    pub id: String,
    /// Its content.
    pub body: String,
}

/// A queue and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: &'static str,
    /// How many of its workflows may run at a time.
    pub concurrency: Option<u32>,
    /// How many of its workflows may run at a time in one executor.
    pub worker_concurrency: Option<u32>,
    /// How many of its workflows may start within such a period.
    pub rate_limit: Option<(u32, Duration)>,
}
