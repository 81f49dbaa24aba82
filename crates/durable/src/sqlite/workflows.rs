//! The rows of workflows: recording, reading, cancelling, resuming and removing.

use rusqlite::{Connection, OptionalExtension as _, ToSql, params};

use super::rows::{self, storage_error};
use super::statements;
use crate::sync::now_ms;
use crate::{
    Channel, CreateOutcome, Error, Failure, Filter, NewWorkflow, Result, Status, StepOutcome,
    StepRecord, WorkflowId, WorkflowInfo,
};

/// Records a workflow, unless its id exists.
pub(super) fn create(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    new: &NewWorkflow,
) -> Result<CreateOutcome> {
    if let Some(existing) = info(connection, &new.id)? {
        new.check_same(&existing)?;
        return Ok(CreateOutcome::Existing);
    }
    if let (Some(queue), Some(deduplication_id)) = (&new.queue, &new.deduplication_id)
        && let Some(id) = holder(connection, queue, deduplication_id)?
    {
        let (queue, deduplication_id) = (queue.clone(), deduplication_id.clone());
        return Err(Error::Deduplicated { id, queue, deduplication_id });
    }
    let now = now_ms();
    let runs = new.executor.is_some();
    let status = match (runs, new.delay_ms) {
        (true, _) => Status::Pending,
        (false, Some(_)) => Status::Delayed,
        (false, None) => Status::Enqueued,
    };
    let deadline = new.timeout_ms.filter(|_| runs).map(|timeout| now.saturating_add(timeout));
    let (executor, incarnation) = new.executor.clone().unzip();
    let mut insert = connection
        .prepare_cached(
            "INSERT INTO workflow_status (workflow_uuid, status, name, authenticated_user, \
             inputs, executor_id, executor_incarnation, application_version, recovery_attempts, \
             queue_name, deduplication_id, priority, workflow_timeout_ms, \
             workflow_deadline_epoch_ms, delay_until_epoch_ms, parent_workflow_id, created_at, \
             updated_at, started_at_epoch_ms, place) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
             ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17, ?18, ?19)",
        )
        .map_err(storage_error)?;
    let row = params![
        new.id.as_str(),
        status.as_str(),
        new.name,
        new.owner,
        new.input,
        executor,
        incarnation,
        new.application_version,
        i64::from(runs),
        new.queue,
        new.deduplication_id,
        new.priority,
        new.timeout_ms,
        deadline,
        new.delay_ms.map(|delay| now.saturating_add(delay)),
        new.parent.as_ref().map(WorkflowId::as_str),
        now,
        runs.then_some(now),
        new.place,
    ];
    insert.execute(row).map_err(storage_error)?;
    statements::execute(connection, wakes, &new.statements)?;
    wakes.push(Channel::Workflow(new.id.clone()));
    if !runs {
        wakes.push(Channel::Queues);
    }
    Ok(CreateOutcome::New { deadline })
}

fn holder(connection: &Connection, queue: &str, key: &str) -> Result<Option<WorkflowId>> {
    let sql = "SELECT workflow_uuid FROM workflow_status \
               WHERE queue_name = ?1 AND deduplication_id = ?2";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = select.query_row([queue, key], |row| row.get(0)).optional();
    found.map_err(storage_error)?.map(rows::id).transpose()
}

pub(super) fn info(connection: &Connection, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
    let sql = format!("SELECT {} FROM workflow_status WHERE workflow_uuid = ?1", rows::INFO);
    let mut select = connection.prepare_cached(&sql).map_err(storage_error)?;
    let mut found = select.query([id.as_str()]).map_err(storage_error)?;
    found.next().map_err(storage_error)?.map(rows::info).transpose()
}

pub(super) fn list(connection: &Connection, filter: &Filter) -> Result<Vec<WorkflowInfo>> {
    let status = filter.status.map(Status::as_str);
    // The text contains only the requested conditions, so that an index can be used.
    let conditions: [(&str, Option<&dyn ToSql>); 7] = [
        ("name = ?", filter.name.as_ref().map(|name| name as _)),
        ("status = ?", status.as_ref().map(|status| status as _)),
        ("queue_name = ?", filter.queue.as_ref().map(|queue| queue as _)),
        ("authenticated_user = ?", filter.owner.as_ref().map(|owner| owner as _)),
        ("parent_workflow_id = ?", filter.parent.as_ref().map(|parent| parent as _)),
        ("created_at < ?", filter.before.as_ref().map(|before| before as _)),
        ("created_at >= ?", filter.after.as_ref().map(|after| after as _)),
    ];
    let selected = conditions.iter().filter_map(|(sql, value)| value.map(|value| (*sql, value)));
    let (mut texts, mut parameters): (Vec<&str>, Vec<&dyn ToSql>) = selected.unzip();
    texts.insert(0, "TRUE");
    let limit = filter.limit.map_or(-1, i64::from);
    parameters.push(&limit);
    let sql = format!(
        "SELECT {} FROM workflow_status WHERE {} ORDER BY created_at, rowid LIMIT ?",
        rows::INFO,
        texts.join(" AND ")
    );
    let mut select = connection.prepare_cached(&sql).map_err(storage_error)?;
    let mut found = select.query(parameters.as_slice()).map_err(storage_error)?;
    let mut list = Vec::new();
    while let Some(row) = found.next().map_err(storage_error)? {
        list.push(rows::info(row)?);
    }
    Ok(list)
}

pub(super) fn steps(connection: &Connection, id: &WorkflowId) -> Result<Vec<StepRecord>> {
    let sql = "SELECT function_id, function_name, output, error, child_workflow_id, \
               started_at_epoch_ms, completed_at_epoch_ms FROM operation_outputs \
               WHERE workflow_uuid = ?1 ORDER BY function_id";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let mut found = select.query([id.as_str()]).map_err(storage_error)?;
    let mut steps = Vec::new();
    while let Some(row) = found.next().map_err(storage_error)? {
        let error: Option<String> = row.get(3).map_err(storage_error)?;
        let child: Option<String> = row.get(4).map_err(storage_error)?;
        steps.push(StepRecord {
            function_id: row.get(0).map_err(storage_error)?,
            name: row.get(1).map_err(storage_error)?,
            outcome: match error {
                Some(error) => StepOutcome::Failure(rows::failure(&error)?),
                None => StepOutcome::Output(row.get(2).map_err(storage_error)?),
            },
            child: child.map(rows::id).transpose()?,
            started_at: row.get(5).map_err(storage_error)?,
            completed_at: row.get(6).map_err(storage_error)?,
        });
    }
    Ok(steps)
}

/// The workflow and its descendants whose status is one of the words.
fn tree(connection: &Connection, id: &WorkflowId, words: &str) -> Result<Vec<WorkflowId>> {
    let sql = format!(
        "WITH RECURSIVE tree (id) AS (SELECT ?1 UNION SELECT workflow_uuid FROM workflow_status \
         JOIN tree ON parent_workflow_id = tree.id) SELECT id FROM tree \
         JOIN workflow_status ON workflow_uuid = id WHERE status IN ({words})"
    );
    let mut select = connection.prepare_cached(&sql).map_err(storage_error)?;
    let found = select.query_map([id.as_str()], |row| row.get(0)).map_err(storage_error)?;
    found.map(|id| rows::id(id.map_err(storage_error)?)).collect()
}

pub(super) fn cancel(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    id: &WorkflowId,
    timed_out: bool,
) -> Result<Vec<WorkflowId>> {
    let failure = if timed_out {
        Failure::new("timed_out", "the workflow timed out")
    } else {
        Failure::new("cancelled", "the workflow was cancelled")
    };
    let error = rows::failure_text(&failure)?;
    let ended = tree(connection, id, "'PENDING', 'ENQUEUED', 'DELAYED'")?;
    if ended.is_empty() && info(connection, id)?.is_none() {
        return Err(Error::NotFound { id: id.clone() });
    }
    let sql = "UPDATE workflow_status SET status = 'CANCELLED', error = ?2, completed_at = ?3, \
               updated_at = ?3, deduplication_id = NULL WHERE workflow_uuid = ?1";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    for id in &ended {
        update.execute(params![id.as_str(), error, now_ms()]).map_err(storage_error)?;
        wake_on_end(wakes, id);
    }
    wakes.push(Channel::Queues);
    Ok(ended)
}

pub(super) fn resume(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    id: &WorkflowId,
    queue: &str,
) -> Result<()> {
    let Some(found) = info(connection, id)? else {
        return Err(Error::NotFound { id: id.clone() });
    };
    if !matches!(found.status, Status::Cancelled | Status::MaxRecoveryAttemptsExceeded) {
        return Ok(());
    }
    let sql = "UPDATE workflow_status SET status = 'ENQUEUED', \
               queue_name = COALESCE(queue_name, ?2), executor_id = NULL, \
               executor_incarnation = NULL, forgiven_attempts = recovery_attempts, error = NULL, \
               completed_at = NULL, workflow_deadline_epoch_ms = NULL, updated_at = ?3 \
               WHERE workflow_uuid = ?1";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    for id in tree(connection, id, "'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'")? {
        update.execute(params![id.as_str(), queue, now_ms()]).map_err(storage_error)?;
        wakes.push(Channel::Workflow(id));
    }
    wakes.push(Channel::Queues);
    Ok(())
}

/// Removes at most `limit` workflows that ended before a time.
pub(super) fn collect(connection: &Connection, before: i64, limit: u32) -> Result<u64> {
    let sql = "SELECT workflow_uuid FROM workflow_status AS ended WHERE completed_at < ?1 \
               AND NOT EXISTS (SELECT 1 FROM workflow_status AS parent \
               WHERE parent.workflow_uuid = ended.parent_workflow_id \
               AND parent.completed_at IS NULL) ORDER BY completed_at LIMIT ?2";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let ids = select.query_map(params![before, limit], |row| row.get(0)).map_err(storage_error)?;
    let ids: Vec<String> = ids.collect::<rusqlite::Result<_>>().map_err(storage_error)?;
    for id in &ids {
        for sql in [
            "DELETE FROM operation_outputs WHERE workflow_uuid = ?1",
            "DELETE FROM streams WHERE workflow_uuid = ?1",
            "DELETE FROM workflow_events WHERE workflow_uuid = ?1",
            "DELETE FROM notifications WHERE destination_uuid = ?1",
            "DELETE FROM workflow_status WHERE workflow_uuid = ?1",
        ] {
            connection
                .prepare_cached(sql)
                .and_then(|mut sql| sql.execute([id]))
                .map_err(storage_error)?;
        }
    }
    Ok(ids.len() as u64)
}

/// Wakes all that wait for anything of a workflow that has ended.
pub(super) fn wake_on_end(wakes: &mut Vec<Channel>, id: &WorkflowId) {
    let channels = [Channel::Workflow, Channel::Stream, Channel::Events, Channel::Messages];
    wakes.extend(channels.map(|channel| channel(id.clone())));
}
