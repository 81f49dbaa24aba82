//! The table `run_tasks`.

use std::collections::HashMap;

use serde_json::Value as Json;
use stockade_api::{TaskInfo, TaskStatus};
use stockade_core::Time;
use stockade_durable::{Row, Statement, Store};

use super::columns::{
    Result, json, optional_json, read_count, read_json, read_optional_json, read_optional_text,
    unknown_value,
};
use crate::schedule::Key;

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub(crate) kind: String,
    pub(crate) label: String,
    pub(crate) status: TaskStatus,
    /// The number of attempts that were started. A crash does not end an attempt.
    pub(crate) attempts: u32,
    /// How often its work was started.
    pub(crate) executions: u32,
    /// Its index among the tasks of the run, in the order in which they started.
    pub(crate) position: u32,
    pub(crate) table: Option<String>,
    pub(crate) output: Option<Json>,
    pub(crate) error: Option<Json>,
    pub(crate) meta: Json,
    /// The bundle with its changes to the project.
    pub(crate) bundle: Option<String>,
    pub(crate) wake_at: Option<i64>,
    pub(crate) started_at: i64,
    pub(crate) finished_at: Option<i64>,
}

impl TaskRow {
    /// Whether it waits for a sandbox that only the host can create, or for its child in a sandbox.
    pub(crate) fn waits_for_host(&self) -> bool {
        self.status == TaskStatus::WaitingEvent && self.kind == "sandbox"
    }
}

const TASKS: &str = "SELECT node_id, iteration, kind, label, status, attempts, executions, \
                     output_table, output, error, meta, wake_at, started_at, finished_at, bundle, \
                     place \
                     FROM run_tasks WHERE run_id = ?1 ORDER BY place, node_id, iteration";

fn read_info(row: &Row) -> Result<TaskInfo> {
    let word = row.text(4)?;
    Ok(TaskInfo {
        id: row.text(0)?.to_owned(),
        iteration: read_count(row, 1)?,
        kind: row.text(2)?.to_owned(),
        label: row.text(3)?.to_owned(),
        status: TaskStatus::parse(word).ok_or_else(|| unknown_value("status of a task", word))?,
        attempts: read_count(row, 5)?,
        executions: read_count(row, 6)?,
        table: read_optional_text(row, 7)?,
        output: read_optional_json(row, 8)?,
        error: read_optional_json(row, 9)?,
        meta: read_json(row, 10)?,
        wake_at: row.optional_integer(11)?.map(Time::from_ms),
        started_at: Time::from_ms(row.integer(12)?),
        finished_at: row.optional_integer(13)?.map(Time::from_ms),
        bundle: read_optional_text(row, 14)?,
    })
}

fn read(row: &Row) -> Result<(Key, TaskRow)> {
    let info = read_info(row)?;
    let key = Key { node: info.id, iteration: info.iteration };
    let task = TaskRow {
        kind: info.kind,
        label: info.label,
        status: info.status,
        attempts: info.attempts,
        executions: info.executions,
        position: read_count(row, 15)?,
        table: info.table,
        output: info.output,
        error: info.error,
        meta: info.meta,
        bundle: info.bundle,
        wake_at: info.wake_at.map(Time::as_ms),
        started_at: info.started_at.as_ms(),
        finished_at: info.finished_at.map(Time::as_ms),
    };
    Ok((key, task))
}

/// The tasks of a run in the form that callers see, in the order in which they started.
pub(crate) async fn list(store: &dyn Store, run: &str) -> Result<Vec<TaskInfo>> {
    let rows = store.query(Statement::new(TASKS, vec![run.into()])).await?;
    rows.iter().map(read_info).collect()
}

/// The tasks of a run.
pub(crate) async fn load(store: &dyn Store, run: &str) -> Result<HashMap<Key, TaskRow>> {
    let rows = store.query(Statement::new(TASKS, vec![run.into()])).await?;
    rows.iter().map(read).collect()
}

/// Inserts or updates a task.
pub(crate) fn upsert(run: &str, key: &Key, task: &TaskRow) -> Statement {
    let sql = "INSERT INTO run_tasks (run_id, node_id, iteration, kind, label, status, \
               attempts, executions, place, output_table, output, error, meta, wake_at, \
               started_at, finished_at, bundle) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
               ?17) \
               ON CONFLICT (run_id, node_id, iteration) DO UPDATE SET kind = excluded.kind, \
               label = excluded.label, status = excluded.status, attempts = excluded.attempts, \
               executions = excluded.executions, output_table = excluded.output_table, \
               output = excluded.output, error = excluded.error, meta = excluded.meta, \
               wake_at = excluded.wake_at, finished_at = excluded.finished_at, \
               bundle = excluded.bundle";
    let parameters = vec![
        run.into(),
        key.node.as_str().into(),
        key.iteration.into(),
        task.kind.as_str().into(),
        task.label.as_str().into(),
        task.status.as_str().into(),
        task.attempts.into(),
        task.executions.into(),
        task.position.into(),
        task.table.clone().into(),
        optional_json(task.output.as_ref()),
        optional_json(task.error.as_ref()),
        json(&task.meta),
        task.wake_at.into(),
        task.started_at.into(),
        task.finished_at.into(),
        task.bundle.clone().into(),
    ];
    Statement::new(sql, parameters)
}

/// Lets the unfinished tasks of a run start again, and resets the count of their attempts to 0.
pub(crate) fn reset_unfinished(run: &str) -> Statement {
    let sql = "UPDATE run_tasks SET status = 'retrying', attempts = 0, wake_at = 0, \
               error = NULL, finished_at = NULL \
               WHERE run_id = ?1 AND status NOT IN ('finished', 'skipped')";
    Statement::new(sql, vec![run.into()])
}

/// Cancels the tasks of a run that have not ended.
pub(crate) fn cancel(run: &str, at: i64) -> Statement {
    let sql = "UPDATE run_tasks SET status = 'cancelled', finished_at = ?2 \
               WHERE run_id = ?1 AND finished_at IS NULL";
    Statement::new(sql, vec![run.into(), at.into()])
}
