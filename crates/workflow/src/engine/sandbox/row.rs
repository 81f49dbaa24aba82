//! What is kept of the sandboxes of a run: one row for each `<Sandbox>` and iteration, that of its
//! last try (seed 000: "records … in the local database").

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stockade_api::{Answer, SandboxInfo, Wait};
use stockade_durable::{Error, Row, Statement, Store, Value};

use crate::schedule::Key;

/// Where a try is. The words are those of seed 000 and of its successors; a child that waits and a
/// review are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Pending,
    Shipped,
    Waiting,
    Review,
    Finished,
    Failed,
    Cancelled,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Shipped,
        Self::Waiting,
        Self::Review,
        Self::Finished,
        Self::Failed,
        Self::Cancelled,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Shipped => "shipped",
            Self::Waiting => "waiting",
            Self::Review => "review",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the sandbox may still be there, or its changes wait.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Shipped | Self::Waiting | Self::Review)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == word)
    }
}

/// What waits for a decision, and what is given when it is yes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    /// What the parent gets.
    pub(crate) outputs: Json,
    /// The bundles with the changes, each by its hash.
    pub(crate) bundles: Vec<String>,
    /// How many files they change, with the legacy patches.
    pub(crate) patch_count: u64,
    /// How many lines come and go.
    pub(crate) total_diff_lines: u64,
    /// How many of the files tools of the host run by themselves: somebody accepts those.
    pub(crate) executed: u64,
    /// The child run.
    pub(crate) remote_run_id: Option<String>,
}

/// A child that waited for something from outside, in a sandbox that is kept for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pause {
    /// How often it has waited, with this time: so often its command was executed.
    pub(crate) rounds: u32,
    /// Its run, as it says itself.
    pub(crate) child: String,
    /// What it waits for.
    pub(crate) waits: Vec<Wait>,
    /// What came of it, once it goes on.
    pub(crate) answers: Vec<Answer>,
    /// How long its command was executed altogether, in milliseconds.
    pub(crate) worked_ms: u64,
}

/// A try as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) attempt: u32,
    /// The name of the try.
    pub(crate) name: String,
    pub(crate) stage: Stage,
    pub(crate) created_at_ms: i64,
    pub(crate) base_ref: Option<String>,
    pub(crate) review: Option<Review>,
    /// What came from outside: a decision about its changes. While a child waits, and when it goes
    /// on, this is its [`Pause`].
    pub(crate) decision: Option<Json>,
}

impl Kept {
    /// What its child waits for, or waited for when it goes on.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let may_have = matches!(self.stage, Stage::Waiting | Stage::Shipped);
        let kept = self.decision.clone().filter(|_| may_have)?;
        serde_json::from_value(kept).ok()
    }
}

/// What is kept of a sandbox; `None` before its first try.
pub(crate) async fn kept(store: &dyn Store, run: &str, key: &Key) -> Result<Option<Kept>, Error> {
    let sql = "SELECT attempt, status, created_at_ms, base_ref, review, decision, name \
               FROM run_sandboxes WHERE run_id = ?1 AND sandbox_id = ?2 AND iteration = ?3";
    let parameters = vec![run.into(), key.node.as_str().into(), key.iteration.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let word = row.text(1)?;
    let unknown = || Error::Json { message: format!("{word:?} is no status of a sandbox") };
    Ok(Some(Kept {
        attempt: u32::try_from(row.integer(0)?).unwrap_or(u32::MAX),
        stage: Stage::parse(word).ok_or_else(unknown)?,
        created_at_ms: row.integer(2)?,
        base_ref: row.optional_text(3)?.map(str::to_owned),
        review: parsed(row, 4)?,
        decision: parsed(row, 5)?,
        name: row.text(6)?.to_owned(),
    }))
}

/// The sandboxes of a run and of those below it that may still be there: their runs, keys, and the
/// names of their tries. What is in another comes before that.
pub(crate) async fn open(
    store: &dyn Store,
    run: &str,
) -> Result<Vec<(String, Key, String)>, Error> {
    let sql = "SELECT run_id, sandbox_id, iteration, name FROM run_sandboxes \
               WHERE status IN ('pending', 'shipped', 'waiting', 'review') \
               AND (run_id = ?1 OR substr(run_id, 1, length(?1) + 7) = ?1 || ':child:') \
               ORDER BY depth DESC";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let one = |row: &Row| {
        let iteration = u32::try_from(row.integer(2)?).unwrap_or(u32::MAX);
        let key = Key { node: row.text(1)?.to_owned(), iteration };
        Ok((row.text(0)?.to_owned(), key, row.text(3)?.to_owned()))
    };
    rows.iter().map(one).collect()
}

/// The names of the tries of a run, and of those below it, that providers have begun and that have not
/// ended.
pub(crate) async fn of_providers(store: &dyn Store, run: &str) -> Result<Vec<String>, Error> {
    let sql = "SELECT name, config_json FROM run_sandboxes WHERE status IN ('pending', 'shipped') \
               AND (run_id = ?1 OR substr(run_id, 1, length(?1) + 7) = ?1 || ':child:')";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let mut names = Vec::new();
    for row in &rows {
        let config: Json = serde_json::from_str(row.text(1)?)?;
        if config["provider"].is_string() {
            names.push(row.text(0)?.to_owned());
        }
    }
    Ok(names)
}

/// All that were asked for in the sandbox of a try, each with the name of its last try, and whether
/// that may still be there.
pub(crate) async fn below(
    store: &dyn Store,
    run: &str,
    name: &str,
) -> Result<Vec<(Key, String, bool)>, Error> {
    let sql = "SELECT sandbox_id, iteration, name, \
               status IN ('pending', 'shipped', 'waiting', 'review') \
               FROM run_sandboxes WHERE parent = ?2 AND run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into(), name.into()])).await?;
    let one = |row: &Row| {
        let iteration = u32::try_from(row.integer(1)?).unwrap_or(u32::MAX);
        let key = Key { node: row.text(0)?.to_owned(), iteration };
        Ok((key, row.text(2)?.to_owned(), row.boolean(3)?))
    };
    rows.iter().map(one).collect()
}

/// Whether the changes of one in another sandbox wait for a decision.
pub(crate) async fn is_inner_review(
    store: &dyn Store,
    run: &str,
    sandbox: &str,
) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_sandboxes WHERE run_id = ?1 AND sandbox_id = ?2 \
               AND parent IS NOT NULL AND status = 'review')";
    let rows = store.query(Statement::new(sql, vec![run.into(), sandbox.into()])).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// The children in sandboxes of a run that wait, or have waited and go on.
pub(crate) async fn paused(store: &dyn Store, run: &str) -> Result<Vec<(Key, Pause)>, Error> {
    let sql = "SELECT sandbox_id, iteration, decision FROM run_sandboxes \
               WHERE run_id = ?1 AND status IN ('waiting', 'shipped') AND decision IS NOT NULL";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let one = |row: &Row| {
        let iteration = u32::try_from(row.integer(1)?).unwrap_or(u32::MAX);
        let key = Key { node: row.text(0)?.to_owned(), iteration };
        Ok((key, parsed(row, 2)?.unwrap_or_default()))
    };
    rows.iter().map(one).collect()
}

/// The names of the tries of all runs whose children wait.
pub(crate) async fn resting(store: &dyn Store) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM run_sandboxes WHERE status = 'waiting'";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
}

/// After how long without a sign a sandbox counts as unreachable: four of its beats.
const SILENT_MS: i64 = 60_000;

/// What is told of the sandboxes of a run.
pub(crate) async fn told(
    store: &dyn Store,
    run: &str,
    now: i64,
) -> Result<Vec<SandboxInfo>, Error> {
    let sql = "SELECT sandbox_id, iteration, attempt, runtime, config_json, status, \
               remote_run_id, workspace_id, container_id, created_at_ms, heartbeat_at_ms, \
               shipped_at_ms, completed_at_ms, bundle_path, review, parent, depth \
               FROM run_sandboxes WHERE run_id = ?1 ORDER BY created_at_ms, sandbox_id, iteration";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let count =
        |row: &Row, column| Ok::<_, Error>(u32::try_from(row.integer(column)?).unwrap_or(u32::MAX));
    let text = |row: &Row, column| row.optional_text(column).map(|text| text.map(str::to_owned));
    let one = |row: &Row| {
        let status = row.text(5)?.to_owned();
        let heartbeat_at_ms = row.optional_integer(10)?;
        let is_open = status == Stage::Pending.as_str() || status == Stage::Shipped.as_str();
        let is_silent = heartbeat_at_ms.is_some_and(|at| now.saturating_sub(at) > SILENT_MS);
        Ok(SandboxInfo {
            sandbox_id: row.text(0)?.to_owned(),
            iteration: count(row, 1)?,
            attempt: count(row, 2)?,
            runtime: row.text(3)?.to_owned(),
            config: serde_json::from_str(row.text(4)?)?,
            status,
            remote_run_id: text(row, 6)?,
            workspace_id: text(row, 7)?,
            container_id: text(row, 8)?,
            created_at_ms: row.integer(9)?,
            heartbeat_at_ms,
            shipped_at_ms: row.optional_integer(11)?,
            completed_at_ms: row.optional_integer(12)?,
            bundle_path: text(row, 13)?,
            bundles: parsed::<Review>(row, 14)?.map(|review| review.bundles).unwrap_or_default(),
            parent_sandbox_id: text(row, 15)?.map(|name| format!("run-{name}")),
            depth: count(row, 16)?,
            unhealthy: (is_open && is_silent).then(|| "sandbox-unreachable".to_owned()),
        })
    };
    rows.iter().map(one).collect()
}

fn parsed<T: for<'de> Deserialize<'de>>(row: &Row, column: usize) -> Result<Option<T>, Error> {
    Ok(row.optional_text(column)?.map(serde_json::from_str).transpose()?)
}

/// Begins a try, and forgets the one before. `within` is the try whose sandbox it is in, and how many
/// sandboxes are around it.
pub(crate) fn begin(
    (run, key, attempt, name): (&str, &Key, u32, &str),
    within: Option<(&str, u32)>,
    runtime: &str,
    config: &Json,
    base_ref: Option<&str>,
    at: i64,
) -> Statement {
    let sql = "INSERT INTO run_sandboxes (run_id, sandbox_id, iteration, attempt, runtime, \
               config_json, status, created_at_ms, heartbeat_at_ms, base_ref, name, parent, \
               depth) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?7, ?8, ?9, ?10, ?11) \
               ON CONFLICT (run_id, sandbox_id, iteration) DO UPDATE SET \
               attempt = excluded.attempt, runtime = excluded.runtime, \
               config_json = excluded.config_json, status = 'pending', \
               created_at_ms = excluded.created_at_ms, \
               heartbeat_at_ms = excluded.heartbeat_at_ms, base_ref = excluded.base_ref, \
               name = excluded.name, parent = excluded.parent, depth = excluded.depth, \
               remote_run_id = NULL, workspace_id = NULL, container_id = NULL, \
               shipped_at_ms = NULL, completed_at_ms = NULL, bundle_path = NULL, \
               review = NULL, decision = NULL";
    let parameters = vec![
        run.into(),
        key.node.as_str().into(),
        key.iteration.into(),
        attempt.into(),
        runtime.into(),
        Value::Text(config.to_string()),
        at.into(),
        base_ref.map(str::to_owned).into(),
        name.into(),
        within.map(|(parent, _)| parent.to_owned()).into(),
        within.map_or(0, |(_, depth)| depth).into(),
    ];
    Statement::new(sql, parameters)
}

fn change(run: &str, key: &Key, what: &str, mut values: Vec<Value>) -> Statement {
    let sql = format!(
        "UPDATE run_sandboxes SET {what} WHERE run_id = ?1 AND sandbox_id = ?2 AND iteration = ?3"
    );
    let mut parameters = vec![run.into(), key.node.as_str().into(), key.iteration.into()];
    parameters.append(&mut values);
    Statement::new(sql, parameters)
}

/// Its request has left.
pub(crate) fn shipped(run: &str, key: &Key, at: i64) -> Statement {
    change(
        run,
        key,
        "status = 'shipped', shipped_at_ms = ?4, heartbeat_at_ms = ?4",
        vec![at.into()],
    )
}

/// Its child waits.
pub(crate) fn waiting(run: &str, key: &Key, pause: &Pause, at: i64) -> Statement {
    let text = serde_json::to_string(pause).unwrap_or_default();
    let values = vec![Value::Text(text), at.into()];
    change(run, key, "status = 'waiting', decision = ?4, heartbeat_at_ms = ?5", values)
}

/// Its child goes on, with what came.
pub(crate) fn resumed(run: &str, key: &Key, pause: &Pause, at: i64) -> Statement {
    let text = serde_json::to_string(pause).unwrap_or_default();
    let values = vec![Value::Text(text), at.into()];
    change(run, key, "status = 'shipped', decision = ?4, heartbeat_at_ms = ?5", values)
}

/// It was seen alive.
pub(crate) fn beat(run: &str, key: &Key, at: i64) -> Statement {
    change(run, key, "heartbeat_at_ms = ?4", vec![at.into()])
}

/// Its result is here.
pub(crate) fn received(
    run: &str,
    key: &Key,
    path: &str,
    [remote, workspace, container]: [Option<&str>; 3],
    at: i64,
) -> Statement {
    let what = "bundle_path = ?4, remote_run_id = ?5, workspace_id = ?6, container_id = ?7, \
                heartbeat_at_ms = ?8";
    let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
    change(
        run,
        key,
        what,
        vec![path.into(), text(remote), text(workspace), text(container), at.into()],
    )
}

/// Its changes wait for a decision, or that they need none is kept with them.
pub(crate) fn review(run: &str, key: &Key, review: &Review) -> Statement {
    let text = serde_json::to_string(review).unwrap_or_default();
    change(run, key, "status = 'review', review = ?4, decision = NULL", vec![Value::Text(text)])
}

/// Somebody has decided.
pub(crate) fn decided(run: &str, key: &Key, decision: &Json) -> Statement {
    change(run, key, "decision = ?4", vec![Value::Text(decision.to_string())])
}

/// It has ended.
pub(crate) fn end(run: &str, key: &Key, stage: Stage, at: i64) -> Statement {
    let values = vec![stage.as_str().into(), at.into()];
    change(run, key, "status = ?4, completed_at_ms = ?5", values)
}
