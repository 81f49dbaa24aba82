//! Queries on `run_sandboxes`.

use serde_json::Value as Json;
use stockade_api::SandboxInfo;
use stockade_core::Time;
use stockade_durable::{Row, Statement, Store};

use super::rows::{NestedSandbox, OpenSandbox, Pause, Review, SandboxRow, Stage};
use crate::schedule::Key;
use crate::store::columns::{
    Result, read_count, read_json, read_optional_json, read_optional_text, unknown_value,
};

/// A sandbox counts as unreachable after this time without a heartbeat: four heartbeat intervals.
const SILENT_MS: i64 = 60_000;

fn read_key(row: &Row, node: usize, iteration: usize) -> Result<Key> {
    Ok(Key { node: row.text(node)?.to_owned(), iteration: read_count(row, iteration)? })
}

/// The row of a sandbox; `None` before its first attempt.
pub(crate) async fn find(store: &dyn Store, run: &str, key: &Key) -> Result<Option<SandboxRow>> {
    let sql = "SELECT attempt, status, created_at_ms, base_ref, review, decision, name \
               FROM run_sandboxes WHERE run_id = ?1 AND sandbox_id = ?2 AND iteration = ?3";
    let parameters = vec![run.into(), key.node.as_str().into(), key.iteration.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let word = row.text(1)?;
    Ok(Some(SandboxRow {
        attempt: read_count(row, 0)?,
        stage: Stage::parse(word).ok_or_else(|| unknown_value("status of a sandbox", word))?,
        created_at_ms: row.integer(2)?,
        base_ref: read_optional_text(row, 3)?,
        review: read_optional_json(row, 4)?,
        decision: read_optional_json(row, 5)?,
        name: row.text(6)?.to_owned(),
    }))
}

/// The sandboxes of a run and of its descendants that may still exist, the innermost first.
pub(crate) async fn list_open(store: &dyn Store, run: &str) -> Result<Vec<OpenSandbox>> {
    let sql = "SELECT run_id, sandbox_id, iteration, name FROM run_sandboxes \
               WHERE status IN ('pending', 'shipped', 'waiting', 'review') \
               AND (run_id = ?1 OR substr(run_id, 1, length(?1) + 7) = ?1 || ':child:') \
               ORDER BY depth DESC";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let one = |row: &Row| {
        let (run, name) = (row.text(0)?.to_owned(), row.text(3)?.to_owned());
        Ok(OpenSandbox { run, key: read_key(row, 1, 2)?, name })
    };
    rows.iter().map(one).collect()
}

/// The names of the unfinished attempts of a run, and of its descendants, that a provider has started.
pub(crate) async fn open_provider_attempt_names(
    store: &dyn Store,
    run: &str,
) -> Result<Vec<String>> {
    let sql = "SELECT name, config_json FROM run_sandboxes WHERE status IN ('pending', 'shipped') \
               AND (run_id = ?1 OR substr(run_id, 1, length(?1) + 7) = ?1 || ':child:')";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let mut names = Vec::new();
    for row in &rows {
        let config: Json = read_json(row, 1)?;
        if config["provider"].is_string() {
            names.push(row.text(0)?.to_owned());
        }
    }
    Ok(names)
}

/// All sandboxes that were requested from within the sandbox of an attempt, by the attempt's name.
pub(crate) async fn list_nested(
    store: &dyn Store,
    run: &str,
    name: &str,
) -> Result<Vec<NestedSandbox>> {
    let sql = "SELECT sandbox_id, iteration, name, \
               status IN ('pending', 'shipped', 'waiting', 'review') \
               FROM run_sandboxes WHERE parent = ?2 AND run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into(), name.into()])).await?;
    let one = |row: &Row| {
        let (name, is_open) = (row.text(2)?.to_owned(), row.boolean(3)?);
        Ok(NestedSandbox { key: read_key(row, 0, 1)?, name, is_open })
    };
    rows.iter().map(one).collect()
}

/// Whether the changes of a sandbox within another one wait for a decision.
pub(crate) async fn has_nested_review(store: &dyn Store, run: &str, sandbox: &str) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_sandboxes WHERE run_id = ?1 AND sandbox_id = ?2 \
               AND parent IS NOT NULL AND status = 'review')";
    let rows = store.query(Statement::new(sql, vec![run.into(), sandbox.into()])).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// The pauses of the children in the sandboxes of a run that wait, or that continue after a wait.
pub(crate) async fn pauses(store: &dyn Store, run: &str) -> Result<Vec<(Key, Pause)>> {
    let sql = "SELECT sandbox_id, iteration, decision FROM run_sandboxes \
               WHERE run_id = ?1 AND status IN ('waiting', 'shipped') AND decision IS NOT NULL";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let one =
        |row: &Row| Ok((read_key(row, 0, 1)?, read_optional_json(row, 2)?.unwrap_or_default()));
    rows.iter().map(one).collect()
}

/// The names of all attempts, of any run, whose children wait.
pub(crate) async fn waiting_names(store: &dyn Store) -> Result<Vec<String>> {
    let sql = "SELECT name FROM run_sandboxes WHERE status = 'waiting'";
    let rows = store.query(Statement::new(sql, Vec::new())).await?;
    rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
}

/// The sandboxes of a run in the form that callers see.
pub(crate) async fn list_info(store: &dyn Store, run: &str, now: i64) -> Result<Vec<SandboxInfo>> {
    let sql = "SELECT sandbox_id, iteration, attempt, runtime, config_json, status, \
               remote_run_id, workspace_id, container_id, created_at_ms, heartbeat_at_ms, \
               shipped_at_ms, completed_at_ms, bundle_path, review, parent, depth \
               FROM run_sandboxes WHERE run_id = ?1 ORDER BY created_at_ms, sandbox_id, iteration";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let one = |row: &Row| {
        let status = row.text(5)?.to_owned();
        let heartbeat_at_ms = row.optional_integer(10)?;
        let is_open = status == Stage::Pending.as_str() || status == Stage::Shipped.as_str();
        let is_silent = heartbeat_at_ms.is_some_and(|at| now.saturating_sub(at) > SILENT_MS);
        let review = read_optional_json::<Review>(row, 14)?;
        Ok(SandboxInfo {
            sandbox_id: row.text(0)?.to_owned(),
            iteration: read_count(row, 1)?,
            attempt: read_count(row, 2)?,
            runtime: row.text(3)?.to_owned(),
            config: read_json(row, 4)?,
            status,
            remote_run_id: read_optional_text(row, 6)?,
            workspace_id: read_optional_text(row, 7)?,
            container_id: read_optional_text(row, 8)?,
            created_at: Time::from_ms(row.integer(9)?),
            heartbeat_at: heartbeat_at_ms.map(Time::from_ms),
            shipped_at: row.optional_integer(11)?.map(Time::from_ms),
            completed_at: row.optional_integer(12)?.map(Time::from_ms),
            bundle_path: read_optional_text(row, 13)?,
            bundles: review.map(|review| review.bundles).unwrap_or_default(),
            parent_sandbox_id: row.optional_text(15)?.map(|name| format!("run-{name}")),
            depth: read_count(row, 16)?,
            unhealthy: (is_open && is_silent).then(|| "sandbox-unreachable".to_owned()),
        })
    };
    rows.iter().map(one).collect()
}
