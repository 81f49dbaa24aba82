//! The state of an execution, in parts.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stockade_api::{RunStatus, TaskStatus};
use stockade_durable::{Context, Failure};

use super::agent_sandboxes::AgentSandboxes;
use super::child_count::WaitingChildren;
use super::kept_files::KeptFiles;
use super::ledger::Ledger;
use super::plan::RunPlan;
use super::run_sandboxes::RunSandboxes;
use super::start_queue::StartQueue;
use super::task_table::TaskTable;
use super::token_count::TokenCount;
use crate::engine::redaction::Redaction;
use crate::engine::sandbox;
use crate::engine::state::EngineState;
use crate::engine::user_code::{Interface, UserCode};
use crate::journal::{SharedJournal, current_iterations};
use crate::schedule::Key;
use crate::store::events;
use crate::store::run_state::{self, RunState};
use crate::store::runs::RunOrigin;
use crate::store::tasks::{self, TaskRow};
use crate::sync::lock;

/// Events of agent attempts, with their tasks. The run adds them when it next has an outcome.
pub(super) type AgentEvents = Arc<Mutex<Vec<(Key, Value)>>>;

/// The execution of one run.
pub(crate) struct Execution {
    pub(super) state: Arc<EngineState>,
    pub(super) context: Context,
    pub(super) user_code: Arc<UserCode>,
    pub(super) run: RunIdentity,
    /// The status of the run, as it is stored.
    pub(super) status: RunStatus,
    pub(super) tasks: TaskTable,
    pub(super) plan: RunPlan,
    pub(super) queue: StartQueue,
    pub(super) ledger: Ledger,
    pub(super) children: RunFamily,
    pub(super) sandboxes: RunSandboxes,
    pub(super) agent_events: AgentEvents,
    pub(super) agents: AgentSandboxes,
    pub(super) tokens: TokenCount,
    pub(super) kept_files: KeptFiles,
    /// Whether a wait has started whose answer may have arrived already.
    pub(super) has_new_waits: bool,
    /// The sandboxes whose changes were applied by their last attempt.
    pub(super) changed: HashSet<Key>,
}

/// The properties of a run that do not change.
pub(super) struct RunIdentity {
    pub(super) id: String,
    pub(super) origin: RunOrigin,
    /// The table that holds its result.
    pub(super) output: Option<String>,
    pub(super) max_concurrency: Option<u32>,
    pub(super) journal: SharedJournal,
}

impl RunIdentity {
    /// The name of the current attempt of a task.
    pub(super) fn attempt_name(&self, key: &Key, attempt: u32) -> String {
        self.origin.attempt_name(&self.id, key, attempt)
    }

    /// The `process.env` of its workflow.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        serde_json::from_str(&self.origin.environment).unwrap_or_default()
    }
}

/// The relatives of a run.
#[derive(Default)]
pub(super) struct RunFamily {
    /// Its children.
    pub(super) children: Arc<WaitingChildren>,
    /// The children of its parent, if it has one. This run is one of them.
    pub(super) siblings: Option<Arc<WaitingChildren>>,
    /// Whether a child run already has the name of its workflow.
    pub(super) is_named: bool,
}

impl Execution {
    /// The execution of a run, from its stored state or from its start.
    pub(crate) async fn new(
        state: Arc<EngineState>,
        context: Context,
        user_code: Arc<UserCode>,
        journal: SharedJournal,
        interface: Interface,
        max_concurrency: Option<u32>,
    ) -> Result<Self, Failure> {
        let id = lock(&journal).run.clone();
        let RunState { mut tasks, loops, next_event, status, origin } =
            run_state::load(state.store(), &id).await?;
        if state.options.sandboxes.is_none() {
            // The result of a request to the host may be available.
            for row in tasks.values_mut().filter(|row| row.waits_for_host()) {
                row.status = TaskStatus::Running;
            }
        }
        let mut tokens = TokenCount::default();
        if next_event > 0 {
            let told = events::token_usage(state.store(), &id).await?;
            told.iter().for_each(|event| tokens.add(event));
        }
        let output = interface.output;
        let run = RunIdentity { id, origin, output, max_concurrency, journal };
        let redaction = Redaction::default();
        redaction.add_environment(&run.environment());
        let mut execution = Self {
            state,
            context,
            user_code,
            status,
            tasks: TaskTable::new(tasks, loops),
            plan: RunPlan::new(),
            queue: StartQueue::default(),
            ledger: Ledger::new(&run.id, next_event, redaction),
            children: RunFamily::default(),
            sandboxes: RunSandboxes::new(sandbox::slots(&run.environment())),
            agent_events: AgentEvents::default(),
            agents: AgentSandboxes::default(),
            tokens,
            kept_files: KeptFiles::default(),
            has_new_waits: false,
            changed: HashSet::new(),
            run,
        };
        execution.fill_journal();
        execution.restore_pauses().await?;
        Ok(execution)
    }

    /// Adds the stored outputs and iterations to the journal.
    fn fill_journal(&self) {
        let mut finished: Vec<(&Key, &TaskRow)> = self.tasks.finished().collect();
        finished.sort_by_key(|(_, row)| (row.finished_at, row.position));
        let mut journal = lock(&self.run.journal);
        for (key, row) in finished {
            journal.rows.extend(journal_row(key, row));
        }
        let loops = self.tasks.loops().iter().map(|(name, state)| (name, state.iteration));
        journal.iterations = current_iterations(loops);
        journal.failures.extend(self.tasks.failed().map(|(key, row)| journal_failure(key, row)));
    }

    /// Stores the row of a task in the next commit.
    pub(super) fn store_task(&mut self, key: &Key) {
        if let Some(row) = self.tasks.get(key) {
            self.ledger.push(tasks::upsert(&self.run.id, key, row));
        }
    }
}

/// The row of a finished task in the journal.
pub(in crate::engine) fn journal_row(key: &Key, row: &TaskRow) -> Option<Value> {
    let (table, value) = (row.table.as_ref()?, row.output.as_ref()?);
    Some(json!({ "table": table, "node": key.node, "iteration": key.iteration, "value": value }))
}

/// A task that has failed for good, in the journal.
pub(super) fn journal_failure(key: &Key, row: &TaskRow) -> Value {
    json!({ "node": key.node, "iteration": key.iteration, "error": row.error })
}
