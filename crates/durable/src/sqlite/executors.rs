//! Executors: their leases, and the take-over of the workflows of dead ones.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::rows::{self, storage_error};
use super::statements;
use super::workflows::wake_on_end;
use crate::sync::now_ms;
use crate::{
    Abandonment, Channel, ClaimedWorkflow, Executor, Failure, Lease, OwnedWorkflow, Recovery,
    Result, WorkflowId,
};

/// The most workflows that one take-over processes; the next one continues.
const MAX_RECOVERED: u32 = 1000;

pub(super) fn register(connection: &Connection, id: &str, version: &str) -> Result<i64> {
    let now = now_ms();
    let sql = "INSERT INTO application_versions VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    connection.execute(sql, params![version, now]).map_err(storage_error)?;
    // Greater than the incarnation of any earlier start, even if the row was removed.
    let sql = "INSERT INTO executors VALUES (?1, ?3, ?2, ?3) ON CONFLICT (executor_id) \
               DO UPDATE SET incarnation = MAX(incarnation + 1, excluded.incarnation), \
               application_version = excluded.application_version, \
               heartbeat_at = excluded.heartbeat_at RETURNING incarnation";
    connection.query_row(sql, params![id, version, now], |row| row.get(0)).map_err(storage_error)
}

pub(super) fn heartbeat(connection: &Connection, executor: &Executor) -> Result<bool> {
    let sql = "UPDATE executors SET heartbeat_at = ?3 WHERE executor_id = ?1 AND incarnation = ?2";
    let row = params![executor.id, executor.incarnation, now_ms()];
    Ok(connection.execute(sql, row).map_err(storage_error)? == 1)
}

/// The lease ends now. A negative time says since when.
pub(super) fn release(connection: &Connection, executor: &Executor) -> Result<()> {
    let sql = "UPDATE workflow_status SET forgiven_attempts = recovery_attempts - 1 \
               WHERE status = 'PENDING' AND executor_id = ?1 AND executor_incarnation = ?2";
    let row = params![executor.id, executor.incarnation];
    connection.execute(sql, row).map_err(storage_error)?;
    let sql = "UPDATE executors SET heartbeat_at = -?3 WHERE executor_id = ?1 AND incarnation = ?2";
    let row = params![executor.id, executor.incarnation, now_ms()];
    connection.execute(sql, row).map_err(storage_error)?;
    Ok(())
}

pub(super) fn lease(connection: &Connection, executor_id: &str) -> Result<Option<Lease>> {
    let sql = "SELECT ?2 - ABS(heartbeat_at), heartbeat_at < 0 FROM executors \
               WHERE executor_id = ?1";
    let found = connection.query_row(sql, params![executor_id, now_ms()], |row| {
        Ok(Lease { silent_ms: row.get(0)?, is_released: row.get(1)? })
    });
    found.optional().map_err(storage_error)
}

pub(super) fn silent(connection: &Connection, silence_ms: i64) -> Result<Vec<String>> {
    let sql =
        "SELECT executor_id FROM executors WHERE ABS(heartbeat_at) <= ?1 ORDER BY executor_id";
    let mut query = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = query.query_map([now_ms().saturating_sub(silence_ms)], |row| row.get(0));
    found.and_then(Iterator::collect).map_err(storage_error)
}

/// Removes executors that have been silent for a long time and own no workflow.
pub(super) fn collect(connection: &Connection, before: i64) -> Result<()> {
    let sql = "DELETE FROM executors WHERE ABS(heartbeat_at) < ?1 AND NOT EXISTS (SELECT 1 \
               FROM workflow_status AS held WHERE held.executor_id = executors.executor_id \
               AND held.status = 'PENDING')";
    connection.execute(sql, [before]).map_err(storage_error)?;
    Ok(())
}

pub(super) fn owned(connection: &Connection, executor: &Executor) -> Result<Vec<OwnedWorkflow>> {
    let sql = "SELECT workflow_uuid, recovery_attempts FROM workflow_status \
               WHERE status = 'PENDING' AND executor_id = ?1 AND executor_incarnation = ?2";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let mut found =
        select.query(params![executor.id, executor.incarnation]).map_err(storage_error)?;
    let mut owned = Vec::new();
    while let Some(row) = found.next().map_err(storage_error)? {
        let id = rows::id(row.get(0).map_err(storage_error)?)?;
        owned.push(OwnedWorkflow { id, epoch: row.get(1).map_err(storage_error)? });
    }
    Ok(owned)
}

/// A workflow whose executor is dead.
struct Orphan {
    id: WorkflowId,
    attempts: i64,
    forgiven: i64,
    in_queue: bool,
}

pub(super) fn recover(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    recovery: &Recovery,
) -> Result<Vec<ClaimedWorkflow>> {
    let mut claimed = Vec::new();
    for orphan in orphans(connection, recovery)? {
        if orphan.attempts - orphan.forgiven > i64::from(recovery.max_attempts) {
            park(connection, wakes, &orphan.id)?;
        } else if orphan.in_queue {
            let sql = "UPDATE workflow_status SET status = 'ENQUEUED', executor_id = NULL, \
                       executor_incarnation = NULL, updated_at = ?2 WHERE workflow_uuid = ?1";
            let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
            update.execute(params![orphan.id.as_str(), now_ms()]).map_err(storage_error)?;
            wakes.push(Channel::Queues);
        } else {
            claimed.push(claim(connection, &recovery.executor, &orphan.id)?);
        }
    }
    Ok(claimed)
}

fn orphans(connection: &Connection, recovery: &Recovery) -> Result<Vec<Orphan>> {
    let executor = &recovery.executor;
    // Names the index: without statistics the planner would scan all workflows that ever ran.
    let sql = "SELECT workflow_uuid, recovery_attempts, forgiven_attempts, \
               queue_name IS NOT NULL FROM workflow_status AS held \
               INDEXED BY workflow_status_pending WHERE status = 'PENDING' AND application_version = ?1 \
               AND name IN (SELECT value FROM json_each(?2)) \
               AND NOT (executor_id = ?3 AND executor_incarnation = ?4) \
               AND NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = held.executor_id \
               AND incarnation = held.executor_incarnation AND heartbeat_at > ?5) \
               AND (place IS NULL OR place = ?7) ORDER BY created_at LIMIT ?6";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let parameters = params![
        executor.application_version,
        serde_json::to_string(&executor.names)?,
        executor.id,
        executor.incarnation,
        now_ms().saturating_sub(recovery.silence_ms),
        MAX_RECOVERED,
        executor.place,
    ];
    let mut found = select.query(parameters).map_err(storage_error)?;
    let mut orphans = Vec::new();
    while let Some(row) = found.next().map_err(storage_error)? {
        orphans.push(orphan(row)?);
    }
    let sql = "SELECT workflow_uuid, recovery_attempts, forgiven_attempts, \
               queue_name IS NOT NULL FROM workflow_status WHERE workflow_uuid = ?1 \
               AND status = 'PENDING' AND executor_id = ?2 AND executor_incarnation = ?3 \
               AND recovery_attempts = ?4";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    for OwnedWorkflow { id, epoch } in &recovery.strays {
        let parameters = params![id.as_str(), executor.id, executor.incarnation, epoch];
        let mut found = select.query(parameters).map_err(storage_error)?;
        if let Some(row) = found.next().map_err(storage_error)? {
            orphans.push(orphan(row)?);
        }
    }
    Ok(orphans)
}

/// Ends the workflows of a place whose executor is silent.
pub(super) fn abandon(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    abandonment: &Abandonment,
) -> Result<Option<Vec<WorkflowId>>> {
    let Abandonment { place, silence_ms, names, failure, statements } = abandonment;
    let now = now_ms();
    // From here on its heartbeats fail, so that it does not go on when it was only paused.
    let sql = "UPDATE executors SET incarnation = incarnation + 1 WHERE executor_id = ?1 \
               AND ABS(heartbeat_at) <= ?2";
    let silent = connection.execute(sql, params![place, now.saturating_sub(*silence_ms)]);
    if silent.map_err(storage_error)? == 0 {
        return Ok(None);
    }
    let sql = "UPDATE workflow_status SET status = 'ERROR', error = ?3, completed_at = ?4, \
               updated_at = ?4, deduplication_id = NULL WHERE place = ?1 AND completed_at IS NULL \
               AND name IN (SELECT value FROM json_each(?2)) RETURNING workflow_uuid";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    let row = params![place, serde_json::to_string(names)?, rows::failure_text(failure)?, now];
    let ended = update.query_map(row, |row| row.get::<_, String>(0)).map_err(storage_error)?;
    let ended = ended.collect::<rusqlite::Result<Vec<_>>>().map_err(storage_error)?;
    let ended = ended.into_iter().map(rows::id).collect::<Result<Vec<_>>>()?;
    for id in &ended {
        wake_on_end(wakes, id);
    }
    wakes.push(Channel::Queues);
    statements::execute(connection, wakes, statements)?;
    Ok(Some(ended))
}

fn orphan(row: &Row<'_>) -> Result<Orphan> {
    Ok(Orphan {
        id: rows::id(row.get(0).map_err(storage_error)?)?,
        attempts: row.get(1).map_err(storage_error)?,
        forgiven: row.get(2).map_err(storage_error)?,
        in_queue: row.get(3).map_err(storage_error)?,
    })
}

fn park(connection: &Connection, wakes: &mut Vec<Channel>, id: &WorkflowId) -> Result<()> {
    let failure = Failure::new("attempts_exceeded", "each attempt ended with its executor");
    let sql = "UPDATE workflow_status SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED', error = ?2, \
               completed_at = ?3, updated_at = ?3, deduplication_id = NULL \
               WHERE workflow_uuid = ?1";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    let error = rows::failure_text(&failure)?;
    update.execute(params![id.as_str(), error, now_ms()]).map_err(storage_error)?;
    wake_on_end(wakes, id);
    wakes.push(Channel::Queues);
    Ok(())
}

/// Starts another run of a workflow, on this executor.
pub(super) fn claim(
    connection: &Connection,
    executor: &Executor,
    id: &WorkflowId,
) -> Result<ClaimedWorkflow> {
    let sql = "UPDATE workflow_status SET status = 'PENDING', executor_id = ?2, \
               executor_incarnation = ?3, recovery_attempts = recovery_attempts + 1, \
               updated_at = ?4, started_at_epoch_ms = COALESCE(started_at_epoch_ms, ?4), \
               workflow_deadline_epoch_ms = COALESCE(workflow_deadline_epoch_ms, \
               ?4 + workflow_timeout_ms) WHERE workflow_uuid = ?1 \
               RETURNING name, inputs, authenticated_user, recovery_attempts, \
               workflow_deadline_epoch_ms";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    let parameters = params![id.as_str(), executor.id, executor.incarnation, now_ms()];
    let claimed = update.query_row(parameters, |row| {
        Ok(ClaimedWorkflow {
            id: id.clone(),
            name: row.get(0)?,
            input: row.get(1)?,
            owner: row.get(2)?,
            epoch: row.get(3)?,
            deadline: row.get(4)?,
        })
    });
    claimed.map_err(storage_error)
}
