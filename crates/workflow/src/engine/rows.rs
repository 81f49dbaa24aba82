//! Reads what is kept of runs.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value as Json;
use stockade_api::{Run, RunStatus, TaskInfo, TaskStatus};
use stockade_durable::{Error, Row, Statement, Store};

use super::program::Program;
use super::tables::TaskRow;
use crate::schedule::{Key, Turn};

type Result<T> = std::result::Result<T, Error>;

/// A run as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct RunRow {
    /// What is told of it.
    pub(crate) run: Run,
    /// How often it was taken up again after it had ended, from 1.
    pub(crate) generation: i64,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) max_concurrency: Option<u32>,
    /// The name under which it was asked for.
    pub(crate) idempotency_key: Option<String>,
}

const RUN: &str = "SELECT id, name, file, status, input, output, error, parent_id, created_at, \
                   updated_at, finished_at, program, generation, environment, max_concurrency, \
                   idempotency_key, (SELECT min(wake_at) FROM run_tasks \
                   WHERE run_id = runs.id AND wake_at IS NOT NULL AND finished_at IS NULL) \
                   FROM runs";

fn parsed(text: &str) -> Result<Json> {
    Ok(serde_json::from_str(text)?)
}

fn optional(row: &Row, index: usize) -> Result<Option<Json>> {
    row.optional_text(index)?.map(parsed).transpose()
}

fn unknown(what: &str, word: &str) -> Error {
    Error::Json { message: format!("{word:?} is no {what}") }
}

fn run_of(row: &Row) -> Result<RunRow> {
    let word = row.text(3)?;
    let run = Run {
        id: row.text(0)?.to_owned(),
        name: row.text(1)?.to_owned(),
        file: row.text(2)?.to_owned(),
        status: RunStatus::parse(word).ok_or_else(|| unknown("status of a run", word))?,
        input: parsed(row.text(4)?)?,
        output: optional(row, 5)?,
        error: optional(row, 6)?,
        parent_id: row.optional_text(7)?.map(str::to_owned),
        created_at: row.integer(8)?,
        updated_at: row.integer(9)?,
        finished_at: row.optional_integer(10)?,
        program: row.text(11)?.to_owned(),
        wake_at: row.optional_integer(16)?,
    };
    Ok(RunRow {
        run,
        generation: row.integer(12)?,
        environment: serde_json::from_str(row.text(13)?)?,
        max_concurrency: row.optional_integer(14)?.and_then(|number| u32::try_from(number).ok()),
        idempotency_key: row.optional_text(15)?.map(str::to_owned),
    })
}

/// A run, whoever's it is.
pub(crate) async fn run(store: &dyn Store, id: &str) -> Result<Option<RunRow>> {
    let rows = store.query(Statement::new(format!("{RUN} WHERE id = ?1"), vec![id.into()])).await?;
    rows.first().map(run_of).transpose()
}

/// A run of an owner's.
pub(crate) async fn own(store: &dyn Store, owner: &str, id: &str) -> Result<Option<RunRow>> {
    let sql = format!("{RUN} WHERE id = ?1 AND owner_id = ?2");
    let rows = store.query(Statement::new(sql, vec![id.into(), owner.into()])).await?;
    rows.first().map(run_of).transpose()
}

/// The runs of an owner, the latest first.
pub(crate) async fn list(store: &dyn Store, owner: &str, limit: u32) -> Result<Vec<Run>> {
    let sql = format!("{RUN} WHERE owner_id = ?1 ORDER BY created_at DESC, id LIMIT ?2");
    let rows = store.query(Statement::new(sql, vec![owner.into(), limit.into()])).await?;
    rows.iter().map(|row| Ok(run_of(row)?.run)).collect()
}

/// The run of an owner's that was started last, of those below no other.
pub(crate) async fn latest(store: &dyn Store, owner: &str) -> Result<Option<Run>> {
    let sql = format!(
        "{RUN} WHERE owner_id = ?1 AND parent_id IS NULL \
         ORDER BY created_at DESC, id DESC LIMIT 1"
    );
    let rows = store.query(Statement::new(sql, vec![owner.into()])).await?;
    rows.first().map(|row| Ok(run_of(row)?.run)).transpose()
}

/// Runs of an owner's whose ids begin so, of those below no other; at most `limit`.
pub(crate) async fn beginning(
    store: &dyn Store,
    owner: &str,
    name: &str,
    limit: u32,
) -> Result<Vec<Run>> {
    let sql = format!(
        "{RUN} WHERE owner_id = ?1 AND parent_id IS NULL AND substr(id, 1, length(?2)) = ?2 \
         ORDER BY created_at DESC, id LIMIT ?3"
    );
    let parameters = vec![owner.into(), name.into(), limit.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    rows.iter().map(|row| Ok(run_of(row)?.run)).collect()
}

/// The runs that have not ended and are below no other: their ids, owners and generations.
pub(crate) async fn open(store: &dyn Store) -> Result<Vec<(String, String, i64)>> {
    let sql = "SELECT id, owner_id, generation FROM runs \
               WHERE finished_at IS NULL AND parent_id IS NULL";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    let run = |row: &Row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned(), row.integer(2)?));
    rows.iter().map(run).collect()
}

/// Whether a run that has not ended does more than wait for others: something of it is being done,
/// or goes on at some time.
pub(crate) async fn has_active(store: &dyn Store) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE finished_at IS NULL \
               AND parent_id IS NULL AND status <> 'waiting') OR EXISTS (\
               SELECT 1 FROM run_tasks JOIN runs ON runs.id = run_tasks.run_id \
               WHERE run_tasks.wake_at IS NOT NULL AND run_tasks.finished_at IS NULL \
               AND runs.finished_at IS NULL)";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// A program.
pub(crate) async fn program(store: &dyn Store, hash: &str) -> Result<Option<Program>> {
    let sql = "SELECT sources FROM run_programs WHERE hash = ?1";
    let rows = store.query(Statement::new(sql, vec![hash.into()])).await?;
    let program = rows.first().map(|row| Ok::<_, Error>(serde_json::from_str(row.text(0)?)?));
    program.transpose()
}

const TASK: &str = "SELECT node_id, iteration, kind, label, status, attempts, executions, \
                    output_table, output, error, meta, wake_at, started_at, finished_at, bundle, place \
                    FROM run_tasks WHERE run_id = ?1 ORDER BY place, node_id, iteration";

fn count(row: &Row, index: usize) -> Result<u32> {
    Ok(u32::try_from(row.integer(index)?).unwrap_or(u32::MAX))
}

fn task_of(row: &Row) -> Result<TaskInfo> {
    let word = row.text(4)?;
    Ok(TaskInfo {
        id: row.text(0)?.to_owned(),
        iteration: count(row, 1)?,
        kind: row.text(2)?.to_owned(),
        label: row.text(3)?.to_owned(),
        status: TaskStatus::parse(word).ok_or_else(|| unknown("status of a task", word))?,
        attempts: count(row, 5)?,
        executions: count(row, 6)?,
        table: row.optional_text(7)?.map(str::to_owned),
        output: optional(row, 8)?,
        error: optional(row, 9)?,
        meta: parsed(row.text(10)?)?,
        wake_at: row.optional_integer(11)?,
        started_at: row.integer(12)?,
        finished_at: row.optional_integer(13)?,
        bundle: row.optional_text(14)?.map(str::to_owned),
    })
}

/// The tasks of a run, in the order in which they began.
pub(crate) async fn tasks(store: &dyn Store, run: &str) -> Result<Vec<TaskInfo>> {
    let rows = store.query(Statement::new(TASK, vec![run.into()])).await?;
    rows.iter().map(task_of).collect()
}

/// The names of the tries of agents that are under way in a run and those below it.
pub(crate) async fn tries(store: &dyn Store, run: &str) -> Result<Vec<String>> {
    let sql = "SELECT run_id, node_id, iteration, attempts, generation \
               FROM run_tasks JOIN runs ON runs.id = run_tasks.run_id \
               WHERE run_tasks.kind = 'agent' AND run_tasks.status = 'running' \
               AND (run_id = ?1 OR substr(run_id, 1, length(?1) + 7) = ?1 || ':child:')";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let name = |row: &Row| {
        let origin = Origin { generation: row.integer(4)?, ..Origin::default() };
        let key = Key { node: row.text(1)?.to_owned(), iteration: count(row, 2)? };
        Ok(origin.name_of_try(row.text(0)?, &key, count(row, 3)?))
    };
    rows.iter().map(name).collect()
}

/// All that a run needs to go on.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) tasks: HashMap<Key, TaskRow>,
    pub(crate) turns: HashMap<String, Turn>,
    pub(crate) next_event: i64,
    pub(crate) status: RunStatus,
    pub(crate) origin: Origin,
}

/// Where a run is from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    /// The file of its workflow.
    pub(crate) file: String,
    /// The hash of its program.
    pub(crate) program: String,
    /// What its program finds in `process.env`, as JSON.
    pub(crate) environment: String,
    /// Whose it is.
    pub(crate) owner: String,
    /// How often it was taken up again after it had ended, from 1.
    pub(crate) generation: i64,
}

impl Origin {
    /// Names one try of a task, which a crash does not end: the same in whichever process does it,
    /// and of no other try of any run.
    pub(crate) fn name_of_try(&self, run: &str, key: &Key, attempt: u32) -> String {
        let generation = self.generation;
        let text = format!("{run}\0{generation}\0{}\0{}\0{attempt}", key.node, key.iteration);
        blake3::hash(text.as_bytes()).to_hex()[..40].to_owned()
    }
}

/// What a run left.
pub(crate) async fn kept(store: &dyn Store, run: &str) -> Result<Kept> {
    let rows = store.query(Statement::new(TASK, vec![run.into()])).await?;
    let mut tasks = HashMap::new();
    for row in &rows {
        let info = task_of(row)?;
        let key = Key { node: info.id, iteration: info.iteration };
        let row = TaskRow {
            kind: info.kind,
            label: info.label,
            status: info.status,
            attempts: info.attempts,
            executions: info.executions,
            place: count(row, 15)?,
            table: info.table,
            output: info.output,
            error: info.error,
            meta: info.meta,
            bundle: info.bundle,
            wake_at: info.wake_at,
            started_at: info.started_at,
            finished_at: info.finished_at,
        };
        tasks.insert(key, row);
    }
    let sql = "SELECT loop_id, iteration, has_ended FROM run_loops WHERE run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let mut turns = HashMap::new();
    for row in &rows {
        let turn = Turn { iteration: count(row, 1)?, has_ended: row.boolean(2)? };
        turns.insert(row.text(0)?.to_owned(), turn);
    }
    let sql = "SELECT coalesce(max(seq), -1) + 1 FROM run_events WHERE run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let next_event = rows.first().map_or(Ok(0), |row| row.integer(0))?;
    let sql = "SELECT status, file, program, environment, owner_id, generation FROM runs \
               WHERE id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let (mut status, mut origin) = (None, Origin::default());
    if let Some(row) = rows.first() {
        status = RunStatus::parse(row.text(0)?);
        origin = Origin {
            file: row.text(1)?.to_owned(),
            program: row.text(2)?.to_owned(),
            environment: row.text(3)?.to_owned(),
            owner: row.text(4)?.to_owned(),
            generation: row.integer(5)?,
        };
    }
    let status = status.unwrap_or(RunStatus::Running);
    Ok(Kept { tasks, turns, next_event, status, origin })
}

/// A decision or a signal that nobody has taken.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) seq: i64,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Which signal of that name, or which question.
    pub(crate) correlation: Option<String>,
    pub(crate) payload: Json,
}

impl Answer {
    /// Whether it decides a question of that name.
    pub(crate) fn decides(&self, name: &str, question: &str) -> bool {
        self.kind == "approval"
            && self.name == name
            && self.correlation.as_deref() == Some(question)
    }
}

/// Whether something was told to a run already, under the name that its sender has for it.
pub(crate) async fn was_sent(store: &dyn Store, run: &str, sent_as: &str) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'sent' \
               AND name = ?2)";
    let rows = store.query(Statement::new(sql, vec![run.into(), sent_as.into()])).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// The answers that wait for a run, the oldest first.
pub(crate) async fn answers(store: &dyn Store, run: &str) -> Result<Vec<Answer>> {
    let sql = "SELECT seq, kind, name, correlation, payload FROM run_answers \
               WHERE run_id = ?1 AND used_by IS NULL ORDER BY seq";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let answer = |row: &Row| {
        Ok(Answer {
            seq: row.integer(0)?,
            kind: row.text(1)?.to_owned(),
            name: row.text(2)?.to_owned(),
            correlation: row.optional_text(3)?.map(str::to_owned),
            payload: parsed(row.text(4)?)?,
        })
    };
    rows.iter().map(answer).collect()
}

/// Events of a run from a number on.
pub(crate) async fn events(
    store: &dyn Store,
    run: &str,
    from: i64,
    limit: u32,
) -> Result<Vec<(i64, Json)>> {
    let sql = "SELECT seq, event FROM run_events WHERE run_id = ?1 AND seq >= ?2 \
               ORDER BY seq LIMIT ?3";
    let rows =
        store.query(Statement::new(sql, vec![run.into(), from.into(), limit.into()])).await?;
    rows.iter().map(|row| Ok((row.integer(0)?, parsed(row.text(1)?)?))).collect()
}
