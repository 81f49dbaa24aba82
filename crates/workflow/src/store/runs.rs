//! The table `runs`.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use stockade_api::variables::SERVER;
use stockade_api::{Run, RunStatus};
use stockade_core::Time;
use stockade_durable::{Row, Statement, Store};

use super::columns::{
    Result, optional_json, read_json, read_optional_json, read_optional_text, unknown_value,
};
use super::topics::RUNS_TOPIC;
use crate::schedule::Key;

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct RunRow {
    /// The part that callers can see.
    pub(crate) run: Run,
    /// How often it was resumed after it had ended, from 1.
    pub(crate) generation: i64,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) max_concurrency: Option<u32>,
    /// The idempotency key of the request that started it.
    pub(crate) idempotency_key: Option<String>,
}

/// The origin of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunOrigin {
    /// The workflow file.
    pub(crate) file: String,
    /// The hash of its program.
    pub(crate) program: String,
    /// The `process.env` of its program, as JSON.
    pub(crate) environment: String,
    pub(crate) owner: String,
    /// How often it was resumed after it had ended, from 1.
    pub(crate) generation: i64,
    /// When it was created, in milliseconds since 1970.
    pub(crate) created_at: i64,
}

impl RunOrigin {
    /// Identifies one attempt of a task. A crash does not end an attempt: the name is the same in each
    /// process that executes it, and no other attempt of any run has it.
    pub(crate) fn attempt_name(&self, run: &str, key: &Key, attempt: u32) -> String {
        let generation = self.generation;
        let text = format!("{run}\0{generation}\0{}\0{}\0{attempt}", key.node, key.iteration);
        blake3::hash(text.as_bytes()).to_hex()[..40].to_owned()
    }
}

/// A new run of the first generation.
#[derive(Debug)]
pub(crate) struct NewRun<'a> {
    pub(crate) id: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) name: &'a str,
    pub(crate) file: String,
    /// The hash of its program.
    pub(crate) program: String,
    pub(crate) input: &'a Json,
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) idempotency_key: Option<String>,
}

/// A run that has not ended, and is not a child run.
#[derive(Debug)]
pub(crate) struct UnfinishedRun {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) generation: i64,
}

const RUN: &str = "SELECT id, name, file, status, input, output, error, parent_id, created_at, \
                   updated_at, finished_at, program, generation, environment, max_concurrency, \
                   idempotency_key, (SELECT min(wake_at) FROM run_tasks \
                   WHERE run_id = runs.id AND wake_at IS NOT NULL AND finished_at IS NULL) \
                   FROM runs";

fn read(row: &Row) -> Result<RunRow> {
    let word = row.text(3)?;
    let environment: BTreeMap<String, String> = read_json(row, 13)?;
    let run = Run {
        id: row.text(0)?.to_owned(),
        name: row.text(1)?.to_owned(),
        file: row.text(2)?.to_owned(),
        status: RunStatus::parse(word).ok_or_else(|| unknown_value("status of a run", word))?,
        input: read_json(row, 4)?,
        output: read_optional_json(row, 5)?,
        error: read_optional_json(row, 6)?,
        parent_id: read_optional_text(row, 7)?,
        created_at: Time::from_ms(row.integer(8)?),
        updated_at: Time::from_ms(row.integer(9)?),
        finished_at: row.optional_integer(10)?.map(Time::from_ms),
        program: row.text(11)?.to_owned(),
        wake_at: row.optional_integer(16)?.map(Time::from_ms),
        server: environment.get(SERVER).cloned(),
    };
    Ok(RunRow {
        run,
        generation: row.integer(12)?,
        environment,
        max_concurrency: row.optional_integer(14)?.and_then(|number| u32::try_from(number).ok()),
        idempotency_key: read_optional_text(row, 15)?,
    })
}

fn read_runs(rows: &[Row]) -> Result<Vec<Run>> {
    rows.iter().map(|row| Ok(read(row)?.run)).collect()
}

/// A run of any owner.
pub(crate) async fn find(store: &dyn Store, id: &str) -> Result<Option<RunRow>> {
    let rows = store.query(Statement::new(format!("{RUN} WHERE id = ?1"), vec![id.into()])).await?;
    rows.first().map(read).transpose()
}

/// A run of this owner.
pub(crate) async fn find_owned(store: &dyn Store, owner: &str, id: &str) -> Result<Option<RunRow>> {
    let sql = format!("{RUN} WHERE id = ?1 AND owner_id = ?2");
    let rows = store.query(Statement::new(sql, vec![id.into(), owner.into()])).await?;
    rows.first().map(read).transpose()
}

/// The runs of an owner, the newest first.
pub(crate) async fn list(store: &dyn Store, owner: &str, limit: u32) -> Result<Vec<Run>> {
    let sql = format!("{RUN} WHERE owner_id = ?1 ORDER BY created_at DESC, id LIMIT ?2");
    let rows = store.query(Statement::new(sql, vec![owner.into(), limit.into()])).await?;
    read_runs(&rows)
}

/// The run that an owner started last, without child runs.
pub(crate) async fn latest(store: &dyn Store, owner: &str) -> Result<Option<Run>> {
    let sql = format!(
        "{RUN} WHERE owner_id = ?1 AND parent_id IS NULL \
         ORDER BY created_at DESC, id DESC LIMIT 1"
    );
    let rows = store.query(Statement::new(sql, vec![owner.into()])).await?;
    rows.first().map(|row| Ok(read(row)?.run)).transpose()
}

/// The runs of an owner whose ids have this prefix, without child runs.
pub(crate) async fn list_with_prefix(
    store: &dyn Store,
    owner: &str,
    prefix: &str,
    limit: u32,
) -> Result<Vec<Run>> {
    let sql = format!(
        "{RUN} WHERE owner_id = ?1 AND parent_id IS NULL AND substr(id, 1, length(?2)) = ?2 \
         ORDER BY created_at DESC, id LIMIT ?3"
    );
    let parameters = vec![owner.into(), prefix.into(), limit.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    read_runs(&rows)
}

/// The unfinished runs of all owners, without child runs.
pub(crate) async fn list_unfinished(store: &dyn Store) -> Result<Vec<UnfinishedRun>> {
    let sql = "SELECT id, owner_id, generation FROM runs \
               WHERE finished_at IS NULL AND parent_id IS NULL";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    let run = |row: &Row| {
        Ok(UnfinishedRun {
            id: row.text(0)?.to_owned(),
            owner: row.text(1)?.to_owned(),
            generation: row.integer(2)?,
        })
    };
    rows.iter().map(run).collect()
}

/// The ids of the unfinished children of a run.
pub(crate) async fn unfinished_children(store: &dyn Store, run: &str) -> Result<Vec<String>> {
    let sql = "SELECT id FROM runs WHERE parent_id = ?1 AND finished_at IS NULL ORDER BY id";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
}

/// Whether an unfinished run needs a process: one of its tasks is running, or has a due time. Runs that
/// only wait for an answer from outside do not need one.
pub(crate) async fn has_active(store: &dyn Store) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE finished_at IS NULL \
               AND parent_id IS NULL AND status <> 'waiting') OR EXISTS (\
               SELECT 1 FROM run_tasks JOIN runs ON runs.id = run_tasks.run_id \
               WHERE run_tasks.wake_at IS NOT NULL AND run_tasks.finished_at IS NULL \
               AND runs.finished_at IS NULL)";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// Inserts a run that is not a child run.
pub(crate) fn insert(run: NewRun<'_>, at: i64) -> Statement {
    let sql = "INSERT INTO runs (id, owner_id, generation, name, file, program, status, \
               input, environment, max_concurrency, idempotency_key, created_at, updated_at) \
               VALUES (?1, ?2, 1, ?3, ?4, ?5, 'running', ?6, ?7, ?8, ?9, ?10, ?10)";
    let parameters = vec![
        run.id.into(),
        run.owner.into(),
        run.name.into(),
        run.file.into(),
        run.program.into(),
        run.input.to_string().into(),
        serde_json::json!(run.environment).to_string().into(),
        run.max_concurrency.into(),
        run.idempotency_key.into(),
        at.into(),
    ];
    Statement::new(sql, parameters)
}

/// Inserts a child run. It has the owner, the name, the file and the program of its parent.
/// `environment` is JSON.
pub(crate) fn insert_child(
    id: &str,
    parent: &str,
    input: &Json,
    environment: &str,
    at: i64,
) -> Statement {
    let sql = "INSERT INTO runs (id, owner_id, parent_id, generation, name, file, program, \
               status, input, environment, created_at, updated_at) \
               SELECT ?1, owner_id, id, 1, name, file, program, 'running', ?3, ?5, \
               ?4, ?4 FROM runs WHERE id = ?2";
    let parameters =
        vec![id.into(), parent.into(), input.to_string().into(), at.into(), environment.into()];
    Statement::new(sql, parameters).expecting(1).waking(RUNS_TOPIC)
}

/// Makes an ended run `running` again, as this generation and with this program. A conflict unless the
/// run is of the generation before.
pub(crate) fn resume(run: &str, generation: i64, program: &str, at: i64) -> Statement {
    let sql = "UPDATE runs SET status = 'running', generation = ?2, program = ?3, \
               error = NULL, finished_at = NULL, updated_at = ?4 \
               WHERE id = ?1 AND generation = ?2 - 1 AND finished_at IS NOT NULL";
    let parameters = vec![run.into(), generation.into(), program.into(), at.into()];
    Statement::new(sql, parameters).expecting(1).waking(RUNS_TOPIC)
}

/// Makes an ended child run `running` again, as the next generation.
pub(crate) fn restart_child(run: &str, at: i64) -> Statement {
    let sql = "UPDATE runs SET status = 'running', generation = generation + 1, error = NULL, \
               finished_at = NULL, updated_at = ?2 WHERE id = ?1";
    Statement::new(sql, vec![run.into(), at.into()])
}

/// Gives a run the name of its workflow.
pub(crate) fn set_name(run: &str, name: &str) -> Statement {
    let sql = "UPDATE runs SET name = ?2 WHERE id = ?1 AND name <> ?2";
    Statement::new(sql, vec![run.into(), name.into()]).waking(RUNS_TOPIC)
}

/// Changes the status of a run, unless the run has ended.
pub(crate) fn set_status(run: &str, status: RunStatus, at: i64) -> Statement {
    let sql = "UPDATE runs SET status = ?2, updated_at = ?3 \
               WHERE id = ?1 AND finished_at IS NULL";
    Statement::new(sql, vec![run.into(), status.as_str().into(), at.into()]).waking(RUNS_TOPIC)
}

/// Ends a run.
pub(crate) fn end(
    run: &str,
    status: RunStatus,
    at: i64,
    output: Option<&Json>,
    error: Option<&Json>,
) -> Statement {
    let sql = "UPDATE runs SET status = ?2, updated_at = ?3, finished_at = ?3, \
               output = ?4, error = ?5 WHERE id = ?1";
    let parameters = vec![
        run.into(),
        status.as_str().into(),
        at.into(),
        optional_json(output),
        optional_json(error),
    ];
    Statement::new(sql, parameters).waking(RUNS_TOPIC)
}
