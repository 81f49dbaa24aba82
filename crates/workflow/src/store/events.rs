//! The table `run_events`.

use std::collections::HashMap;

use serde_json::Value as Json;
use stockade_durable::{Row, Statement, Store};

use super::columns::{Result, json, read_json};
use super::topics::RUNS_TOPIC;
use crate::schedule::Key;

/// An event of a sandbox, and its run.
#[derive(Debug)]
pub(crate) struct SandboxEvent {
    pub(crate) run: String,
    pub(crate) seq: i64,
    /// Whether its run has ended.
    pub(crate) run_has_ended: bool,
    pub(crate) event: Json,
}

/// The events of a run from a number on.
pub(crate) async fn list(
    store: &dyn Store,
    run: &str,
    from: i64,
    limit: u32,
) -> Result<Vec<(i64, Json)>> {
    let sql = "SELECT seq, event FROM run_events WHERE run_id = ?1 AND seq >= ?2 \
               ORDER BY seq LIMIT ?3";
    let rows =
        store.query(Statement::new(sql, vec![run.into(), from.into(), limit.into()])).await?;
    rows.iter().map(|row| Ok((row.integer(0)?, read_json(row, 1)?))).collect()
}

/// The number of the next event of a run.
pub(crate) async fn next_seq(store: &dyn Store, run: &str) -> Result<i64> {
    let sql = "SELECT coalesce(max(seq), -1) + 1 FROM run_events WHERE run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    rows.first().map_or(Ok(0), |row| row.integer(0))
}

/// The last `NodeWaiting` event of each task of a run that has one.
pub(crate) async fn last_waiting(store: &dyn Store, run: &str) -> Result<HashMap<Key, Json>> {
    let sql = "SELECT event FROM run_events WHERE run_id = ?1 AND event LIKE '%\"NodeWaiting\"%' \
               ORDER BY seq";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let mut waiting = HashMap::new();
    for row in &rows {
        let event: Json = read_json(row, 0)?;
        let iteration = event["iteration"].as_u64().and_then(|number| u32::try_from(number).ok());
        if let (Some(node), Some(iteration)) = (event["nodeId"].as_str(), iteration) {
            waiting.insert(Key { node: node.to_owned(), iteration }, event);
        }
    }
    Ok(waiting)
}

/// The events of a run that tell how many tokens its agents have used.
pub(crate) async fn token_usage(store: &dyn Store, run: &str) -> Result<Vec<Json>> {
    let sql = "SELECT event FROM run_events WHERE run_id = ?1 \
               AND event LIKE '%\"TokenUsageReported\"%'";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let events = rows.iter().map(|row| read_json(row, 0));
    // The text may be a part of another event.
    events
        .filter(|event| {
            event.as_ref().map_or(true, |event: &Json| event["type"] == "TokenUsageReported")
        })
        .collect()
}

/// The events of sandboxes of an owner's runs that come after the event `seq` of `run`. Reads only runs
/// that have had a sandbox.
pub(crate) async fn list_sandbox_events(
    store: &dyn Store,
    owner: &str,
    (run, seq): (&str, i64),
    limit: usize,
) -> Result<Vec<SandboxEvent>> {
    // SQLite keeps the order of a CROSS JOIN; any other order would read all events.
    let sql = "SELECT made.run_id, run_events.seq, runs.finished_at, run_events.event \
               FROM (SELECT DISTINCT run_id FROM run_sandboxes WHERE run_id >= ?2) AS made \
               CROSS JOIN runs CROSS JOIN run_events \
               WHERE runs.id = made.run_id AND runs.owner_id = ?1 \
               AND run_events.run_id = made.run_id \
               AND (made.run_id > ?2 OR run_events.seq > ?3) \
               AND run_events.event LIKE '%\"type\":\"Sandbox%' \
               ORDER BY made.run_id, run_events.seq LIMIT ?4";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let parameters = vec![owner.into(), run.into(), seq.into(), limit.into()];
    let rows = store.query(Statement::new(sql, parameters)).await?;
    let event = |row: &Row| {
        Ok(SandboxEvent {
            run: row.text(0)?.to_owned(),
            seq: row.integer(1)?,
            run_has_ended: row.optional_integer(2)?.is_some(),
            event: read_json(row, 3)?,
        })
    };
    rows.iter().map(event).collect()
}

/// Inserts an event.
pub(crate) fn insert(run: &str, seq: i64, at: i64, event: &Json) -> Statement {
    let sql = "INSERT INTO run_events VALUES (?1, ?2, ?3, ?4)";
    Statement::new(sql, vec![run.into(), seq.into(), at.into(), json(event)]).waking(RUNS_TOPIC)
}
