//! The table `sandbox_instances`: one row for each sandbox. Rows of ended sandboxes stay.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use stockade_api::{CreateSandbox, IdleAction};
use stockade_core::access::Rules;
use stockade_core::{Code, ExecutionId, OwnerId, Problem, SandboxId, SnapshotId, State};
use stockade_durable::{Row, Statement, Store, Value};

use super::{dialects, json};
use crate::clock::now_ms;
use crate::failure::store_problem;

/// The columns, in the order in which [`read`] reads them.
const COLUMNS: &str = "id, owner_id, status, reason, image, visibility, requested_runtime, \
    runtime, execution_id, workflow_id, workspace_id, access_rules, created_at, expires_at, \
    terminated_at, spec, idle_timeout_ms, on_idle, last_used_at, idle_paused, files, generation, \
    remove_at, bundle, is_bundled, incarnation, host";

/// A row of `sandbox_instances`.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRow {
    pub(crate) id: SandboxId,
    pub(crate) owner: OwnerId,
    pub(crate) state: State,
    pub(crate) reason: Option<String>,
    pub(crate) image: String,
    pub(crate) visibility: String,
    pub(crate) requested_runtime: Option<String>,
    pub(crate) runtime: String,
    pub(crate) execution_id: Option<ExecutionId>,
    pub(crate) workflow_id: Option<String>,
    pub(crate) workspace_id: Option<String>,
    /// The stored rules: an unreadable rule denies.
    pub(crate) rules: Rules,
    pub(crate) created_at: i64,
    pub(crate) expires_at: Option<i64>,
    pub(crate) terminated_at: Option<i64>,
    /// The request that created it.
    pub(crate) request: CreateSandbox,
    pub(crate) idle_timeout_ms: Option<i64>,
    pub(crate) on_idle: IdleAction,
    pub(crate) last_used_at: i64,
    /// Whether it was paused for being idle.
    pub(crate) idle_paused: bool,
    /// The snapshot with its files while it has no processes. The files of a stopped sandbox
    /// without one are where its runtime has left them.
    pub(crate) files: Option<SnapshotId>,
    /// When its files are removed, after it has stopped by itself.
    pub(crate) remove_at: Option<i64>,
    /// The bundle with its changes that was made when it stopped or ended.
    pub(crate) bundle: Option<String>,
    /// Whether no changes of it are missing in bundles: its processes have ended since.
    pub(crate) is_bundled: bool,
    /// Incremented by each change of state; a change names the value that it has read.
    pub(crate) generation: i64,
    /// Distinguishes the sandbox from earlier ones with the same id, in ids of workflows and events.
    /// Empty for the first one.
    pub(crate) incarnation: String,
    /// The server that holds it.
    pub(crate) host: String,
    /// Whether a part of the row cannot be read: then the sandbox can only be ended.
    pub(crate) damaged: bool,
}

impl SandboxRow {
    /// Identifies the sandbox among all that ever were.
    pub(crate) fn unique_name(&self) -> String {
        unique_name(&self.id, &self.incarnation)
    }

    /// The id of the workflow that watches the sandbox, and the prefix of the ids of its events.
    pub(crate) fn watcher_id(&self) -> String {
        watcher_id(&self.id, &self.incarnation)
    }
}

fn unique_name(id: &SandboxId, incarnation: &str) -> String {
    if incarnation.is_empty() { id.to_string() } else { format!("{id}:{incarnation}") }
}

/// The id of the workflow that watches a sandbox.
pub(crate) fn watcher_id(id: &SandboxId, incarnation: &str) -> String {
    match incarnation {
        "" => id.watcher_id(),
        incarnation => format!("{}:{incarnation}", id.watcher_id()),
    }
}

/// The row of a sandbox, of any owner.
pub(crate) async fn find(store: &dyn Store, id: &SandboxId) -> Result<Option<SandboxRow>, Problem> {
    let sql = select("WHERE id = ?1");
    let rows = store.query(Statement::new(sql, vec![id.as_str().into()])).await;
    rows.map_err(store_problem)?.first().map(read).transpose()
}

/// Which sandboxes are listed.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) owner: &'a OwnerId,
    /// Only those after this one.
    pub(crate) after: Option<&'a SandboxRow>,
    /// Only those in one of these states; without one, all that are not terminated.
    pub(crate) states: &'a [State],
    /// Only those whose metadata contains all these pairs.
    pub(crate) metadata: &'a BTreeMap<String, String>,
    /// At most this many.
    pub(crate) limit: u32,
}

/// The sandboxes of a selection, the newest first. Those with an unreadable id or owner are left
/// out.
pub(crate) async fn list(
    store: &dyn Store,
    selection: &Selection<'_>,
) -> Result<Vec<SandboxRow>, Problem> {
    let mut parameters: Vec<Value> = vec![selection.owner.as_str().into()];
    let mut condition = Condition::new("WHERE owner_id = ?1");
    if let Some(after) = selection.after {
        parameters.extend([after.created_at.into(), after.id.as_str().into()]);
        condition.and("(created_at < ?2 OR (created_at = ?2 AND id < ?3))");
    }
    if selection.states.is_empty() {
        condition.and("status <> 'terminated'");
    } else {
        let states: Vec<_> =
            selection.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
        condition.and(&format!("status IN ({})", states.join(", ")));
    }
    for (name, value) in selection.metadata {
        parameters.extend([name.as_str().into(), value.as_str().into()]);
        condition.and_metadata_holds(parameters.len() - 1, parameters.len());
    }
    parameters.push(i64::from(selection.limit).into());
    let last = format!(" ORDER BY created_at DESC, id DESC LIMIT ?{}", parameters.len());
    let [sqlite, postgres] = condition.texts.map(|condition| select(&(condition + &last)));
    let statement = Statement::new(sqlite, parameters).on_postgres(postgres);
    let rows = store.query(statement).await;
    Ok(rows.map_err(store_problem)?.iter().filter_map(|row| read(row).ok()).collect())
}

/// A condition, for SQLite and for PostgreSQL.
struct Condition {
    texts: [String; 2],
}

impl Condition {
    fn new(sql: &str) -> Self {
        Self { texts: [sql.to_owned(), sql.to_owned()] }
    }

    fn and(&mut self, sql: &str) {
        for text in &mut self.texts {
            text.push_str(&format!(" AND {sql}"));
        }
    }

    fn and_metadata_holds(&mut self, key: usize, value: usize) {
        for (text, holds) in self.texts.iter_mut().zip(dialects::metadata_holds(key, value)) {
            text.push_str(&format!(" AND {holds}"));
        }
    }
}

/// The sandboxes of a server that are not terminated, also those with unreadable records, each with
/// its incarnation.
pub(crate) async fn live(
    store: &dyn Store,
    host: &str,
) -> Result<Vec<(SandboxId, String)>, Problem> {
    let sql = "SELECT id, incarnation FROM sandbox_instances \
        WHERE status <> 'terminated' AND host = ?1";
    let rows = store.query(Statement::new(sql, vec![host.into()])).await.map_err(store_problem)?;
    let live =
        |row: &Row| Some((SandboxId::new(row.text(0).ok()?).ok()?, row.text(1).ok()?.into()));
    Ok(rows.iter().filter_map(live).collect())
}

/// The sandboxes whose files can change: neither stopped, terminated nor new.
///
/// # Errors
/// The records cannot be read.
pub async fn sandboxes_in_use(store: &dyn Store) -> Result<Vec<String>, Problem> {
    let condition = "status NOT IN ('terminated', 'stopped', 'new')";
    ids_where(store, condition).await
}

/// The stopped sandboxes, whose files are kept.
///
/// # Errors
/// The records cannot be read.
pub async fn stopped_sandboxes(store: &dyn Store) -> Result<Vec<String>, Problem> {
    ids_where(store, "status = 'stopped'").await
}

async fn ids_where(store: &dyn Store, condition: &str) -> Result<Vec<String>, Problem> {
    let sql = format!("SELECT id FROM sandbox_instances WHERE {condition} ORDER BY id");
    let rows = store.query(Statement::new(sql, vec![])).await.map_err(store_problem)?;
    rows.iter().map(|row| row.text(0).map(str::to_owned).map_err(store_problem)).collect()
}

/// The sandboxes of a server that it is creating, running or has paused.
pub(crate) async fn active(store: &dyn Store, host: &str) -> Result<Vec<SandboxRow>, Problem> {
    let sql = select("WHERE host = ?1 AND status IN ('creating', 'running', 'paused')");
    let rows = store.query(Statement::new(sql, vec![host.into()])).await.map_err(store_problem)?;
    rows.iter().map(read).collect()
}

/// The sandboxes of a server that ended while it was given up, and of which it may still have something:
/// those whose reason begins so.
pub(crate) async fn ended_elsewhere(
    store: &dyn Store,
    host: &str,
    reason: &str,
) -> Result<Vec<SandboxRow>, Problem> {
    let sql = select("WHERE host = ?1 AND status = 'terminated' AND reason LIKE ?2");
    let parameters = vec![host.into(), format!("{reason}%").into()];
    let rows = store.query(Statement::new(sql, parameters)).await.map_err(store_problem)?;
    rows.iter().map(read).collect()
}

/// Records the stored files that an ended sandbox still has on the server that holds it, or that it has
/// none any more.
pub(crate) fn set_left_files(
    id: &SandboxId,
    files: Option<&SnapshotId>,
    reason: &str,
) -> Statement {
    let sql = "UPDATE sandbox_instances SET files = ?2, reason = ?3 \
               WHERE id = ?1 AND status = 'terminated'";
    let files = files.map(|files| files.as_str().to_owned());
    Statement::new(sql, vec![id.as_str().into(), files.into(), reason.into()]).expecting(1)
}

/// Makes the id of an ended sandbox free: its row, its events and its snapshots get an id with the
/// time of its creation.
pub(crate) fn release_id(id: &SandboxId) -> [Statement; 3] {
    // An id has at most 63 bytes, and no time more than 15 digits.
    let ended = "(SELECT substr(rtrim(substr(id, 1, 47), '-') || '-' || created_at, 1, 63) \
        FROM sandbox_instances WHERE id = ?1 AND status = 'terminated')";
    let is_ended = "EXISTS (SELECT 1 FROM sandbox_instances WHERE id = ?1 \
        AND status = 'terminated')";
    let renamed = |table: &str| {
        let sql =
            format!("UPDATE {table} SET sandbox_id = {ended} WHERE sandbox_id = ?1 AND {is_ended}");
        Statement::new(sql, vec![id.as_str().into()])
    };
    let row = format!(
        "UPDATE sandbox_instances SET id = {ended} WHERE id = ?1 AND status = 'terminated'"
    );
    [
        renamed("sandbox_events"),
        renamed("sandbox_snapshots"),
        Statement::new(row, vec![id.as_str().into()]),
    ]
}

/// Removes the row of a sandbox that could not be created; a conflict unless the generation is
/// `seen`.
pub(crate) fn remove(id: &SandboxId, seen: i64) -> Statement {
    let sql = "DELETE FROM sandbox_instances WHERE id = ?1 AND generation = ?2";
    Statement::new(sql, vec![id.as_str().into(), seen.into()])
}

/// How many sandboxes of an owner count for the quota, as in [`insert`].
pub(crate) async fn count_for_quota(store: &dyn Store, owner: &OwnerId) -> Result<i64, Problem> {
    let sql = "SELECT count(*) FROM sandbox_instances WHERE owner_id = ?1 AND \
        status <> 'terminated' AND remove_at IS NULL";
    let rows = store.query(Statement::new(sql, vec![owner.as_str().into()])).await;
    let rows = rows.map_err(store_problem)?;
    rows.first().map_or(Ok(0), |row| row.integer(0).map_err(store_problem))
}

/// The sandboxes of a server that are not terminated and may have published ports.
pub(crate) async fn published(store: &dyn Store, host: &str) -> Result<Vec<SandboxId>, Problem> {
    let sql = "SELECT id FROM sandbox_instances WHERE status <> 'terminated' AND host = ?1 \
        AND spec LIKE '%\"publish\":%'";
    let rows = store.query(Statement::new(sql, vec![host.into()])).await.map_err(store_problem)?;
    let ids = rows.iter().filter_map(|row| SandboxId::new(row.text(0).ok()?).ok());
    Ok(ids.collect())
}

/// Whether a snapshot belongs to one of our sandboxes, but neither holds the files of a stopped one
/// nor was requested by a user of this server: another one may have a snapshot with the id of one that was
/// removed here.
pub(crate) async fn is_unknown_snapshot(
    store: &dyn Store,
    host: &str,
    (sandbox, snapshot): (&SandboxId, &SnapshotId),
) -> Result<bool, Problem> {
    let sql = "SELECT (SELECT count(*) FROM sandbox_instances WHERE id = ?1), \
        (SELECT count(*) FROM sandbox_instances WHERE id = ?1 AND files = ?2) \
        + (SELECT count(*) FROM sandbox_snapshots AS snapshots WHERE id = ?2 AND NOT EXISTS \
        (SELECT 1 FROM sandbox_instances WHERE id = snapshots.sandbox_id AND host <> ?3))";
    let parameters = vec![sandbox.as_str().into(), snapshot.as_str().into(), host.into()];
    let rows = store.query(Statement::new(sql, parameters)).await.map_err(store_problem)?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (ours, known) =
        (row.integer(0).map_err(store_problem)?, row.integer(1).map_err(store_problem)?);
    Ok(ours > 0 && known == 0)
}

/// Adds a row, if its owner has fewer than `quota` sandboxes; a conflict otherwise. Sandboxes that
/// have stopped by themselves and will be removed do not count.
pub(crate) fn insert(row: &SandboxRow, quota: u32) -> Statement {
    Statement::new(
        "INSERT INTO sandbox_instances (id, owner_id, status, reason, image, visibility, \
         requested_runtime, runtime, execution_id, workflow_id, workspace_id, access_rules, \
         sandbox_users, default_uid, metadata, resource_spec, proxy_config, created_at, \
         expires_at, spec, idle_timeout_ms, on_idle, last_used_at, incarnation, host) SELECT ?1, ?2, ?3, NULL, \
         ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?24, ?25 WHERE (SELECT count(*) FROM sandbox_instances WHERE owner_id = ?2 AND \
         status <> 'terminated' AND remove_at IS NULL) < ?23",
        vec![
            row.id.as_str().into(),
            row.owner.as_str().into(),
            row.state.as_str().into(),
            row.image.as_str().into(),
            row.visibility.as_str().into(),
            row.requested_runtime.clone().into(),
            row.runtime.as_str().into(),
            row.execution_id.as_ref().map(|id| id.as_str().to_owned()).into(),
            row.workflow_id.clone().into(),
            row.workspace_id.clone().into(),
            json(&row.request.access_rules).into(),
            json(&row.request.users).into(),
            row.request.default_uid.map(i64::from).into(),
            json(&row.request.metadata).into(),
            json(&row.request.limits).into(),
            row.request.proxy.as_ref().map(json).into(),
            row.created_at.into(),
            row.expires_at.into(),
            json(&row.request).into(),
            row.idle_timeout_ms.into(),
            json(&row.on_idle).trim_matches('"').into(),
            row.last_used_at.into(),
            i64::from(quota).into(),
            row.incarnation.as_str().into(),
            row.host.as_str().into(),
        ],
    )
    .expecting(1)
}

/// Records the state of a row and its dependent columns; a conflict unless the generation is
/// `seen`. `request` is the request as JSON, if it changed.
pub(crate) fn update(row: &SandboxRow, seen: i64, request: Option<String>) -> Statement {
    Statement::new(
        "UPDATE sandbox_instances SET status = ?3, reason = ?4, terminated_at = ?5, \
         expires_at = ?6, idle_paused = ?7, last_used_at = ?8, files = ?9, \
         spec = coalesce(?10, spec), remove_at = ?11, bundle = ?12, is_bundled = ?13, \
         generation = generation + 1 WHERE id = ?1 AND generation = ?2",
        vec![
            row.id.as_str().into(),
            seen.into(),
            row.state.as_str().into(),
            row.reason.clone().into(),
            row.terminated_at.into(),
            row.expires_at.into(),
            i64::from(row.idle_paused).into(),
            row.last_used_at.into(),
            row.files.as_ref().map(|files| files.as_str().to_owned()).into(),
            request.into(),
            row.remove_at.into(),
            row.bundle.clone().into(),
            i64::from(row.is_bundled).into(),
        ],
    )
    .expecting(1)
}

/// Records the request of a row; a conflict unless the generation is `seen`.
pub(crate) fn update_request(row: &SandboxRow, seen: i64) -> Statement {
    Statement::new(
        "UPDATE sandbox_instances SET spec = ?3, generation = generation + 1 \
         WHERE id = ?1 AND generation = ?2",
        vec![row.id.as_str().into(), seen.into(), json(&row.request).into()],
    )
    .expecting(1)
}

/// The same, if its limits have changed.
pub(crate) fn update_limits(row: &SandboxRow, seen: i64) -> Statement {
    Statement::new(
        "UPDATE sandbox_instances SET spec = ?3, resource_spec = ?4, generation = generation + 1 \
         WHERE id = ?1 AND generation = ?2",
        vec![
            row.id.as_str().into(),
            seen.into(),
            json(&row.request).into(),
            json(&row.request.limits).into(),
        ],
    )
    .expecting(1)
}

/// The same, if its labels have changed.
pub(crate) fn update_metadata(row: &SandboxRow, seen: i64) -> Statement {
    Statement::new(
        "UPDATE sandbox_instances SET spec = ?3, metadata = ?4, generation = generation + 1 \
         WHERE id = ?1 AND generation = ?2",
        vec![
            row.id.as_str().into(),
            seen.into(),
            json(&row.request).into(),
            json(&row.request.metadata).into(),
        ],
    )
    .expecting(1)
}

/// Records that a sandbox was used now.
pub(crate) fn touch(id: &SandboxId) -> Statement {
    Statement::new(
        "UPDATE sandbox_instances SET last_used_at = ?2 WHERE id = ?1 AND last_used_at < ?2",
        vec![id.as_str().into(), now_ms().into()],
    )
}

fn select(condition: &str) -> String {
    format!("SELECT {COLUMNS} FROM sandbox_instances {condition}")
}

fn read(row: &Row) -> Result<SandboxRow, Problem> {
    let missing = |what: &str| {
        Problem::new(Code::DatabaseInvalid, format!("a sandbox's record has no {what}"))
    };
    let text = |index: usize| row.text(index).map(str::to_owned).map_err(store_problem);
    let optional =
        |index| row.optional_text(index).map(|t| t.map(str::to_owned)).map_err(store_problem);
    let integer = |index| row.integer(index).map_err(store_problem);
    let maybe = |index| row.optional_integer(index).map_err(store_problem);
    // A value of a newer version, or written by another program: it is displayed, and the sandbox
    // can only be ended.
    let state = text(2)?.parse().ok();
    let request = parse(&text(15)?);
    let on_idle = parse(&format!("\"{}\"", text(17)?));
    let files = optional(20)?.map(SnapshotId::new).transpose();
    let damaged = state.is_none() || request.is_none() || on_idle.is_none() || files.is_err();
    Ok(SandboxRow {
        id: SandboxId::new(text(0)?).map_err(|_| missing("id"))?,
        owner: OwnerId::new(text(1)?).map_err(|_| missing("owner"))?,
        state: state.unwrap_or(State::Error),
        reason: if damaged { Some(DAMAGED.to_owned()) } else { optional(3)? },
        image: text(4)?,
        visibility: text(5)?,
        requested_runtime: optional(6)?,
        runtime: text(7)?,
        execution_id: optional(8)?.and_then(|id| ExecutionId::new(id).ok()),
        workflow_id: optional(9)?,
        workspace_id: optional(10)?,
        rules: Rules::from_stored(&text(11)?),
        created_at: integer(12)?,
        expires_at: maybe(13)?,
        terminated_at: maybe(14)?,
        request: request.unwrap_or_default(),
        idle_timeout_ms: maybe(16)?,
        on_idle: on_idle.unwrap_or_default(),
        last_used_at: integer(18)?,
        idle_paused: integer(19)? != 0,
        files: files.ok().flatten(),
        generation: integer(21)?,
        remove_at: maybe(22)?,
        bundle: optional(23)?,
        is_bundled: integer(24)? != 0,
        incarnation: text(25)?,
        host: text(26)?,
        damaged,
    })
}

/// The reason of a sandbox that can only be ended.
const DAMAGED: &str = "its record cannot be read";

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
