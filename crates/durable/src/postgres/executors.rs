//! Executors: their leases, and the take-over of the workflows of dead ones. Leases are measured by
//! the clock of the server, because those of several machines differ.

use super::clock::SERVER_NOW;
use super::connection::Transaction;
use super::readers::Readers;
use super::{rows, statements, workflows};
use crate::sync::now_ms;
use crate::{
    Abandonment, Channel, ClaimedWorkflow, Error, Executor, Failure, Lease, OwnedWorkflow,
    Recovery, Result, Row, Value, WorkflowId,
};

/// The most workflows that one take-over processes; the next one continues.
const MAX_RECOVERED: i64 = 1000;

pub(super) async fn register(transaction: &Transaction, id: &str, version: &str) -> Result<i64> {
    let sql = "INSERT INTO application_versions VALUES (?1, ?2) ON CONFLICT (version) DO NOTHING";
    transaction.execute(sql, &[version.into(), now_ms().into()]).await?;
    // Greater than the incarnation of any earlier start, even if the row was removed.
    let sql = format!(
        "INSERT INTO executors VALUES (?1, {SERVER_NOW}, ?2, {SERVER_NOW}) \
         ON CONFLICT (executor_id) DO UPDATE SET \
         incarnation = GREATEST(executors.incarnation + 1, excluded.incarnation), \
         application_version = excluded.application_version, \
         heartbeat_at = excluded.heartbeat_at RETURNING incarnation"
    );
    let row = transaction.first(&sql, &[id.into(), version.into()]).await?;
    let row = row.ok_or_else(|| Error::Storage { message: "no executor was recorded".into() })?;
    row.integer(0)
}

pub(super) async fn heartbeat(transaction: &Transaction, executor: &Executor) -> Result<bool> {
    let sql = format!(
        "UPDATE executors SET heartbeat_at = {SERVER_NOW} \
         WHERE executor_id = ?1 AND incarnation = ?2"
    );
    Ok(transaction.execute(&sql, &claim_of(executor)).await? == 1)
}

fn claim_of(executor: &Executor) -> [Value; 2] {
    [executor.id.as_str().into(), executor.incarnation.into()]
}

/// The lease ends now. A negative time says since when.
pub(super) async fn release(transaction: &Transaction, executor: &Executor) -> Result<()> {
    let end_of_lease = format!(
        "UPDATE executors SET heartbeat_at = -{SERVER_NOW} \
         WHERE executor_id = ?1 AND incarnation = ?2"
    );
    for sql in [
        "UPDATE workflow_status SET forgiven_attempts = recovery_attempts - 1 \
         WHERE status = 'PENDING' AND executor_id = ?1 AND executor_incarnation = ?2",
        &end_of_lease,
    ] {
        transaction.execute(sql, &claim_of(executor)).await?;
    }
    Ok(())
}

pub(super) async fn lease(readers: &Readers, executor_id: &str) -> Result<Option<Lease>> {
    let sql = format!(
        "SELECT {SERVER_NOW} - ABS(heartbeat_at), heartbeat_at < 0 FROM executors \
         WHERE executor_id = ?1"
    );
    let found = readers.first(&sql, &[executor_id.into()]).await?;
    let lease = |row: &Row| Ok(Lease { silent_ms: row.integer(0)?, is_released: row.boolean(1)? });
    found.as_ref().map(lease).transpose()
}

pub(super) async fn silent(readers: &Readers, silence_ms: i64) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT executor_id FROM executors WHERE ABS(heartbeat_at) <= {SERVER_NOW} - ?1 \
         ORDER BY executor_id"
    );
    let found = readers.query(&sql, &[silence_ms.into()]).await?;
    found.iter().map(|row| row.text(0).map(str::to_owned)).collect()
}

/// Removes executors that have been silent for a long time and own no workflow.
pub(super) async fn collect(transaction: &Transaction, older_than_ms: i64) -> Result<()> {
    let sql = format!(
        "DELETE FROM executors WHERE ABS(heartbeat_at) < {SERVER_NOW} - ?1 AND NOT EXISTS (SELECT 1 \
         FROM workflow_status AS held WHERE held.executor_id = executors.executor_id \
         AND held.status = 'PENDING')"
    );
    transaction.execute(&sql, &[older_than_ms.into()]).await.map(drop)
}

pub(super) async fn owned(readers: &Readers, executor: &Executor) -> Result<Vec<OwnedWorkflow>> {
    let sql = "SELECT workflow_uuid, recovery_attempts FROM workflow_status \
               WHERE status = 'PENDING' AND executor_id = ?1 AND executor_incarnation = ?2";
    let found = readers.query(sql, &claim_of(executor)).await?;
    let owned =
        |row: &Row| Ok(OwnedWorkflow { id: rows::id(row.text(0)?)?, epoch: row.integer(1)? });
    found.iter().map(owned).collect()
}

/// A workflow whose executor is dead.
struct Orphan {
    id: WorkflowId,
    attempts: i64,
    forgiven: i64,
    in_queue: bool,
}

pub(super) async fn recover(
    transaction: &Transaction,
    recovery: &Recovery,
) -> Result<Vec<ClaimedWorkflow>> {
    let mut claimed = Vec::new();
    for orphan in orphans(transaction, recovery).await? {
        if orphan.attempts - orphan.forgiven > i64::from(recovery.max_attempts) {
            park(transaction, &orphan.id).await?;
        } else if orphan.in_queue {
            let sql = "UPDATE workflow_status SET status = 'ENQUEUED', executor_id = NULL, \
                       executor_incarnation = NULL, updated_at = ?2 WHERE workflow_uuid = ?1";
            transaction.execute(sql, &[orphan.id.as_str().into(), now_ms().into()]).await?;
            transaction.notify(Channel::Queues);
        } else {
            claimed.push(claim(transaction, &recovery.executor, &orphan.id).await?);
        }
    }
    Ok(claimed)
}

/// The orphans that no other process is taking over at this moment, locked.
async fn orphans(transaction: &Transaction, recovery: &Recovery) -> Result<Vec<Orphan>> {
    let executor = &recovery.executor;
    let sql = format!(
        "SELECT workflow_uuid, recovery_attempts, forgiven_attempts, \
         queue_name IS NOT NULL FROM workflow_status AS held \
         WHERE status = 'PENDING' AND application_version = ?1 \
         AND name IN (SELECT value FROM json_array_elements_text(CAST(?2 AS JSON)) AS names (value)) \
         AND NOT (executor_id = ?3 AND executor_incarnation = ?4) \
         AND NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = held.executor_id \
         AND incarnation = held.executor_incarnation AND heartbeat_at > {SERVER_NOW} - ?5) \
         AND (place IS NULL OR place = ?7) \
         ORDER BY created_at, number LIMIT ?6 FOR NO KEY UPDATE OF held SKIP LOCKED"
    );
    let parameters: [Value; 7] = [
        executor.application_version.as_str().into(),
        serde_json::to_string(&executor.names)?.into(),
        executor.id.as_str().into(),
        executor.incarnation.into(),
        recovery.silence_ms.into(),
        MAX_RECOVERED.into(),
        executor.place.clone().into(),
    ];
    let found = transaction.query(&sql, &parameters).await?;
    let mut orphans = found.iter().map(orphan).collect::<Result<Vec<_>>>()?;
    let sql = "SELECT workflow_uuid, recovery_attempts, forgiven_attempts, \
               queue_name IS NOT NULL FROM workflow_status WHERE workflow_uuid = ?1 \
               AND status = 'PENDING' AND executor_id = ?2 AND executor_incarnation = ?3 \
               AND recovery_attempts = ?4 FOR NO KEY UPDATE";
    for OwnedWorkflow { id, epoch } in &recovery.strays {
        let parameters = [
            id.as_str().into(),
            executor.id.as_str().into(),
            executor.incarnation.into(),
            (*epoch).into(),
        ];
        orphans
            .extend(transaction.first(sql, &parameters).await?.as_ref().map(orphan).transpose()?);
    }
    Ok(orphans)
}

/// Ends the workflows of a place whose executor is silent.
pub(super) async fn abandon(
    transaction: &Transaction,
    abandonment: &Abandonment,
) -> Result<Option<Vec<WorkflowId>>> {
    let Abandonment { place, silence_ms, names, failure, statements } = abandonment;
    // From here on its heartbeats fail, so that it does not go on when it was only paused.
    let sql = format!(
        "UPDATE executors SET incarnation = incarnation + 1 WHERE executor_id = ?1 \
         AND ABS(heartbeat_at) <= {SERVER_NOW} - ?2"
    );
    let parameters = [place.as_str().into(), (*silence_ms).into()];
    if transaction.execute(&sql, &parameters).await? == 0 {
        return Ok(None);
    }
    let sql = "UPDATE workflow_status SET status = 'ERROR', error = ?3, completed_at = ?4, \
               updated_at = ?4, deduplication_id = NULL WHERE place = ?1 AND completed_at IS NULL \
               AND name IN (SELECT value FROM json_array_elements_text(CAST(?2 AS JSON)) \
               AS names (value)) RETURNING workflow_uuid";
    let parameters = [
        place.as_str().into(),
        serde_json::to_string(names)?.into(),
        rows::failure_text(failure)?.into(),
        now_ms().into(),
    ];
    let ended = transaction.query(sql, &parameters).await?;
    let ended = ended.iter().map(|row| rows::id(row.text(0)?)).collect::<Result<Vec<_>>>()?;
    for id in &ended {
        workflows::wake_on_end(transaction, id);
    }
    transaction.notify(Channel::Queues);
    statements::execute(transaction, statements).await?;
    Ok(Some(ended))
}

fn orphan(row: &Row) -> Result<Orphan> {
    Ok(Orphan {
        id: rows::id(row.text(0)?)?,
        attempts: row.integer(1)?,
        forgiven: row.integer(2)?,
        in_queue: row.boolean(3)?,
    })
}

async fn park(transaction: &Transaction, id: &WorkflowId) -> Result<()> {
    let failure = Failure::new("attempts_exceeded", "each attempt ended with its executor");
    let sql = "UPDATE workflow_status SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED', error = ?2, \
               completed_at = ?3, updated_at = ?3, deduplication_id = NULL \
               WHERE workflow_uuid = ?1";
    let error = rows::failure_text(&failure)?;
    transaction.execute(sql, &[id.as_str().into(), error.into(), now_ms().into()]).await?;
    workflows::wake_on_end(transaction, id);
    transaction.notify(Channel::Queues);
    Ok(())
}

/// Starts another run of a workflow, on this executor. Its row is locked.
pub(super) async fn claim(
    transaction: &Transaction,
    executor: &Executor,
    id: &WorkflowId,
) -> Result<ClaimedWorkflow> {
    // The start counts for the rate limit of a queue, which all servers share; the deadline is that of this process.
    let sql = format!(
        "UPDATE workflow_status SET status = 'PENDING', executor_id = ?2, \
         executor_incarnation = ?3, recovery_attempts = recovery_attempts + 1, \
         updated_at = ?4, started_at_epoch_ms = COALESCE(started_at_epoch_ms, {SERVER_NOW}), \
         workflow_deadline_epoch_ms = COALESCE(workflow_deadline_epoch_ms, \
         ?4 + workflow_timeout_ms) WHERE workflow_uuid = ?1 \
         RETURNING name, inputs, authenticated_user, recovery_attempts, \
         workflow_deadline_epoch_ms"
    );
    let parameters = [
        id.as_str().into(),
        executor.id.as_str().into(),
        executor.incarnation.into(),
        now_ms().into(),
    ];
    let row = transaction.first(&sql, &parameters).await?;
    let row = row.ok_or_else(|| Error::NotFound { id: id.clone() })?;
    Ok(ClaimedWorkflow {
        id: id.clone(),
        name: row.text(0)?.to_owned(),
        input: row.text(1)?.to_owned(),
        owner: row.optional_text(2)?.map(str::to_owned),
        epoch: row.integer(3)?,
        deadline: row.optional_integer(4)?,
    })
}
