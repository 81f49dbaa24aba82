//! What the engine gives to a store and gets from it. Values are JSON text where the engine
//! only carries them, and times are milliseconds since 1970.

use std::time::Duration;

use crate::{Error, Failure, Json, Result, Statement, Status, WorkflowId};

/// One process that executes workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    /// Its name, the same after a restart.
    pub id: String,
    /// Which start of it this is; later ones are greater.
    pub incarnation: i64,
    /// What it runs; it takes over only what was started by the same.
    pub application_version: String,
    /// The workflows that it knows; it takes no others.
    pub names: Vec<String>,
}

/// The right to write for a workflow: its row must be PENDING, of this executor, in this run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The workflow.
    pub id: WorkflowId,
    /// Who runs it.
    pub executor: String,
    /// Which run it is; each take-over adds one.
    pub epoch: i64,
}

/// A workflow that this executor shall run now.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// Which run this is; the first is 1.
    pub epoch: i64,
    /// When it runs out of time.
    pub deadline: Option<i64>,
}

/// A workflow to be recorded.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Its input.
    pub input: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// Who runs it at once, with its incarnation; else it waits in its queue.
    pub executor: Option<(String, i64)>,
    /// What started it.
    pub application_version: String,
    /// The queue that it waits in.
    pub queue: Option<String>,
    /// No two that wait or run in one queue have the same.
    pub deduplication_id: Option<String>,
    /// Lower ones leave the queue first.
    pub priority: i32,
    /// When it is put into its queue.
    pub delay_until: Option<i64>,
    /// How long it may run.
    pub timeout_ms: Option<i64>,
    /// The workflow that started it.
    pub parent: Option<WorkflowId>,
    /// Committed together with it; not when it is known already.
    pub with: Vec<Statement>,
}

/// What came of recording a workflow.
#[derive(Debug, Clone)]
pub enum Created {
    /// It is recorded now; when it runs out of time, where it runs at once and may.
    New {
        /// See [`Claimed::deadline`].
        deadline: Option<i64>,
    },
    /// The same was recorded before.
    Existing,
}

impl NewWorkflow {
    /// Whether a workflow that has the id was started with the same name and input; else this is
    /// an [`Error::Conflict`].
    pub fn joins(&self, known: &WorkflowInfo) -> Result<()> {
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

/// What is known of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowInfo {
    /// Its id.
    pub id: WorkflowId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub status: Status,
    /// Its input.
    pub input: Json,
    /// What it returned.
    pub output: Option<Json>,
    /// What it failed with, or why it was cancelled.
    pub failure: Option<Failure>,
    /// Whose it is.
    pub owner: Option<String>,
    /// Its queue.
    pub queue: Option<String>,
    /// Its deduplication id, while it waits or runs.
    pub deduplication_id: Option<String>,
    /// Lower ones leave the queue first.
    pub priority: i32,
    /// Who runs it or ran it last.
    pub executor_id: Option<String>,
    /// What started it.
    pub application_version: String,
    /// How often a run of it was begun.
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
    /// When it runs out of time.
    pub deadline: Option<i64>,
}

/// Which workflows are asked for; what is `None` is not looked at.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those of that name.
    pub name: Option<String>,
    /// Those of that status.
    pub status: Option<Status>,
    /// Those of that queue.
    pub queue: Option<String>,
    /// Those of that owner.
    pub owner: Option<String>,
    /// Those that this one started.
    pub parent: Option<WorkflowId>,
    /// Those recorded before that time.
    pub before: Option<i64>,
    /// Those recorded at that time or later.
    pub after: Option<i64>,
    /// At most so many, the oldest first.
    pub limit: Option<u32>,
}

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The value that it returned.
    Output(String),
    /// What it failed with.
    Failure(Failure),
}

/// A step that was done.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// Its place in the workflow, from 0.
    pub function_id: u32,
    /// Its name; another name on replay is a failure.
    pub name: String,
    /// What came of it.
    pub outcome: StepOutcome,
    /// The workflow that it started.
    pub child: Option<WorkflowId>,
    /// When it began.
    pub started_at: i64,
    /// When it ended.
    pub completed_at: i64,
}

/// A row of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRow {
    /// Which stream of the workflow.
    pub key: String,
    /// The value; `None` closes the stream. Rows behind that are dropped.
    pub value: Option<String>,
    /// The step that wrote it, where one did.
    pub function_id: Option<u32>,
}

/// An event that is set, in place of an earlier one with that key.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Which event of the workflow.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A message to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// A second message with the same id is dropped.
    pub id: String,
    /// Who gets it.
    pub destination: WorkflowId,
    /// What it is about; empty where nothing was said.
    pub topic: String,
    /// What it says.
    pub body: String,
}

/// What a workflow leaves in the store besides its own row.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Steps that were done.
    pub steps: Vec<StepRecord>,
    /// Rows at the ends of streams.
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

/// How a workflow ended by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The value that it returned.
    Success(String),
    /// What it failed with.
    Failure(Failure),
}

/// All that a workflow writes at once: together or not at all, and only under its claim.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Under which right.
    pub claim: Claim,
    /// Records of earlier steps; kept even where the rest meets a conflict.
    pub carried: Records,
    /// Records that are kept only together with all that follows.
    pub records: Records,
    /// Rows of the application.
    pub statements: Vec<Statement>,
    /// The end of the workflow.
    pub outcome: Option<Outcome>,
}

/// What came of a commit.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    /// What came of each child, in order.
    pub children: Vec<Created>,
}

/// What shall be taken over.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// Who takes it.
    pub executor: Executor,
    /// How long an executor may be silent before it counts as dead.
    pub silence_ms: i64,
    /// How many take-overs without a record are allowed.
    pub max_attempts: u32,
    /// Workflows of this executor itself that it holds and does not run, with their epochs.
    pub strays: Vec<Owned>,
}

/// A workflow that an executor holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owned {
    /// Which one.
    pub id: WorkflowId,
    /// In which run.
    pub epoch: i64,
}

/// What left the queues.
#[derive(Debug, Clone, Default)]
pub struct Dequeued {
    /// To be run now.
    pub workflows: Vec<Claimed>,
    /// When there may be more without anything being committed.
    pub next_at: Option<i64>,
}

/// Rows of a stream, and the status that the workflow had with them.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// Rows with their offsets; `None` closes the stream.
    pub rows: Vec<(u64, Option<Json>)>,
    /// What the workflow was at that moment.
    pub status: Status,
}

/// A message that waits for its workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// Its id.
    pub id: String,
    /// What it says.
    pub body: String,
}

/// A queue and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: &'static str,
    /// How many of it run at once.
    pub concurrency: Option<u32>,
    /// How many of it run at once in one executor.
    pub worker_concurrency: Option<u32>,
    /// How many of it begin within any such time.
    pub rate_limit: Option<(u32, Duration)>,
}
