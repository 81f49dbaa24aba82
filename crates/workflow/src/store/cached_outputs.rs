//! The table `run_cache`: outputs of tasks, for other runs of the same owner.

use std::time::Duration;

use serde_json::Value as Json;
use stockade_durable::{Statement, Store};

use super::columns::{Result, json, read_json};

/// The output of a task.
#[derive(Debug, Clone)]
pub(crate) struct CachedOutput {
    pub(crate) output: Json,
    /// The run that contains the task.
    pub(crate) run: String,
    pub(crate) created_at: i64,
}

/// The output that the owner of a run has stored under a key, unless it is older than `lifetime` or has
/// expired.
pub(crate) async fn find(
    store: &dyn Store,
    run: &str,
    key: &str,
    lifetime: Option<Duration>,
    now: i64,
) -> Result<Option<CachedOutput>> {
    let sql = "SELECT output, run_id, created_at FROM run_cache \
               WHERE owner_id = (SELECT owner_id FROM runs WHERE id = ?1) AND key = ?2 \
               AND created_at > ?3 AND (expires_at IS NULL OR expires_at > ?4)";
    let oldest = lifetime.map_or(i64::MIN, |lifetime| now.saturating_sub(milliseconds(lifetime)));
    let parameters = vec![run.into(), key.into(), oldest.into(), now.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(CachedOutput {
        output: read_json(row, 0)?,
        run: row.text(1)?.to_owned(),
        created_at: row.integer(2)?,
    }))
}

/// Inserts or replaces the output that the owner of a run stores under a key, and deletes expired
/// outputs.
pub(crate) fn upsert(
    (run, node): (&str, &str),
    key: &str,
    lifetime: Option<Duration>,
    now: i64,
    output: &Json,
) -> [Statement; 2] {
    let expires_at = lifetime.map(|lifetime| now.saturating_add(milliseconds(lifetime)));
    let delete = "DELETE FROM run_cache WHERE expires_at <= ?1";
    let insert = "INSERT INTO run_cache (owner_id, key, output, run_id, node_id, created_at, \
                  expires_at) SELECT owner_id, ?2, ?3, id, ?4, ?5, ?6 FROM runs WHERE id = ?1 \
                  ON CONFLICT (owner_id, key) DO UPDATE SET output = excluded.output, \
                  run_id = excluded.run_id, node_id = excluded.node_id, \
                  created_at = excluded.created_at, expires_at = excluded.expires_at";
    let parameters =
        vec![run.into(), key.into(), json(output), node.into(), now.into(), expires_at.into()];
    [Statement::new(delete, vec![now.into()]), Statement::new(insert, parameters)]
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
