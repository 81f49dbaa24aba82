//! The tasks and loops of a run, in the form that is stored and in the form that the schedule uses.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use stockade_api::TaskStatus;

use crate::engine::clock::now_ms;
use crate::graph::Task;
use crate::schedule::{Key, LoopState, Phase};
use crate::store::tasks::TaskRow;

/// The tasks and loops of a run.
pub(super) struct TaskTable {
    rows: HashMap<Key, TaskRow>,
    /// The phases of the tasks. A task with a row but without a phase is to be started again.
    phases: HashMap<Key, Phase>,
    /// The tasks that have started and not ended.
    open: HashSet<Key>,
    loops: HashMap<String, LoopState>,
}

impl TaskTable {
    /// The table of a run, as it was stored. Tasks that were running are to be started again.
    pub(super) fn new(rows: HashMap<Key, TaskRow>, loops: HashMap<String, LoopState>) -> Self {
        let mut table = Self { rows, phases: HashMap::new(), open: HashSet::new(), loops };
        for (key, row) in &table.rows {
            if row.finished_at.is_none() {
                table.open.insert(key.clone());
            }
            if row.status != TaskStatus::Running {
                table.phases.insert(key.clone(), phase_of(row.status));
            }
        }
        table
    }

    pub(super) const fn phases(&self) -> &HashMap<Key, Phase> {
        &self.phases
    }

    pub(super) const fn loops(&self) -> &HashMap<String, LoopState> {
        &self.loops
    }

    pub(super) fn loop_mut(&mut self, name: &str) -> &mut LoopState {
        self.loops.entry(name.to_owned()).or_default()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&TaskRow> {
        self.rows.get(key)
    }

    /// The row of a task, for changes that do not affect its status.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut TaskRow> {
        self.rows.get_mut(key)
    }

    /// The row of a task that starts, which is created if it does not exist.
    pub(super) fn start(&mut self, key: &Key, task: &Task) -> &mut TaskRow {
        self.open.insert(key.clone());
        let place = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.entry(key.clone()).or_insert_with(|| TaskRow {
            kind: task.work.kind().to_owned(),
            label: task.name().to_owned(),
            status: TaskStatus::Retrying,
            attempts: 0,
            executions: 0,
            position: place,
            table: task.output.as_ref().map(|output| output.table.clone()),
            output: None,
            error: None,
            meta: Value::Object(task.meta.clone()),
            bundle: None,
            wake_at: None,
            started_at: now_ms(),
            finished_at: None,
        })
    }

    /// Changes the status of a task; returns its current attempt. `None` for a task without a row.
    pub(super) fn set_status(&mut self, key: &Key, status: TaskStatus) -> Option<u32> {
        let row = self.rows.get_mut(key)?;
        row.status = status;
        self.phases.insert(key.clone(), phase_of(status));
        Some(row.attempts)
    }

    /// Lets the schedule start a task again.
    pub(super) fn start_again(&mut self, key: &Key) {
        self.phases.remove(key);
    }

    /// Marks a task as ended.
    pub(super) fn close(&mut self, key: &Key) {
        self.open.remove(key);
    }

    /// The number of attempts of a task.
    pub(super) fn attempts(&self, key: &Key) -> u32 {
        self.rows.get(key).map_or(0, |row| row.attempts)
    }

    /// The current attempt of a task.
    pub(super) fn current_attempt(&self, key: &Key) -> u32 {
        self.rows.get(key).map_or(1, |row| row.attempts)
    }

    /// The tasks that have finished.
    pub(super) fn finished(&self) -> impl Iterator<Item = (&Key, &TaskRow)> {
        self.rows.iter().filter(|(_, row)| row.status == TaskStatus::Finished)
    }

    /// The tasks that have started an attempt.
    pub(super) fn started(&self) -> impl Iterator<Item = &Key> {
        self.rows.iter().filter(|(_, row)| row.attempts > 0).map(|(key, _)| key)
    }

    /// The tasks whose changes are in a bundle.
    pub(super) fn with_bundle(&self, bundle: &str) -> Vec<Key> {
        let has = |row: &TaskRow| row.bundle.as_deref() == Some(bundle);
        self.rows.iter().filter(|(_, row)| has(row)).map(|(key, _)| key.clone()).collect()
    }

    /// The tasks that have failed for good.
    pub(super) fn failed(&self) -> impl Iterator<Item = (&Key, &TaskRow)> {
        self.rows.iter().filter(|(_, row)| row.status == TaskStatus::Failed)
    }

    /// The tasks that have started and not ended.
    pub(super) fn open(&self) -> impl Iterator<Item = (&Key, &TaskRow)> {
        self.open.iter().filter_map(|key| Some((key, self.rows.get(key)?)))
    }

    /// Whether a task that has not ended is in one of these phases.
    pub(super) fn has_open_in(&self, phases: &[Phase]) -> bool {
        self.open.iter().filter_map(|key| self.phases.get(key)).any(|phase| phases.contains(phase))
    }

    pub(super) fn has_retrying(&self) -> bool {
        self.open().any(|(_, row)| row.status == TaskStatus::Retrying)
    }

    /// The tasks that are due, with their statuses.
    pub(super) fn due(&self) -> Vec<(Key, TaskStatus)> {
        let now = now_ms();
        let is_due = |wake_at: Option<i64>| wake_at.is_some_and(|at| at <= now);
        let due = self.open().filter(|(_, row)| is_due(row.wake_at));
        due.map(|(key, row)| (key.clone(), row.status)).collect()
    }

    /// How long until the next task is due.
    pub(super) fn time_to_next(&self) -> Option<Duration> {
        let next = self.open().filter_map(|(_, row)| row.wake_at).min()?;
        let left = u64::try_from(next.saturating_sub(now_ms())).unwrap_or(0);
        Some(Duration::from_millis(left))
    }
}

/// The phase of a task with this status.
const fn phase_of(status: TaskStatus) -> Phase {
    match status {
        TaskStatus::Running | TaskStatus::Retrying => Phase::Running,
        TaskStatus::WaitingApproval | TaskStatus::WaitingEvent | TaskStatus::WaitingTimer => {
            Phase::Waiting
        }
        TaskStatus::Finished | TaskStatus::Skipped => Phase::Done,
        TaskStatus::Failed | TaskStatus::Cancelled => Phase::Failed,
    }
}
