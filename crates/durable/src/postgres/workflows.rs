//! The rows of workflows: recording, reading, cancelling, resuming and removing.

use super::clock::{SERVER_NOW, ServerTime};
use super::connection::Transaction;
use super::readers::Readers;
use super::{rows, statements};
use crate::sync::now_ms;
use crate::{
    Channel, CreateOutcome, Error, Failure, Filter, NewWorkflow, Result, Status, StepOutcome,
    StepRecord, Value, WorkflowId, WorkflowInfo,
};

/// Records a workflow, unless its id exists.
pub(super) async fn create(transaction: &Transaction, new: &NewWorkflow) -> Result<CreateOutcome> {
    if let Some(existing) = find(transaction, &new.id).await? {
        new.check_same(&existing)?;
        return Ok(CreateOutcome::Existing);
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
    // Any server may be the first to see that a delay is over.
    let delay_until = match new.delay_ms {
        None => None,
        Some(delay) => Some(ServerTime::read(transaction).await?.now.saturating_add(delay)),
    };
    // Another process may record the same id, or another workflow with the deduplication id, at the
    // same time: the insertion waits for it, and then changes nothing.
    let sql = "INSERT INTO workflow_status (workflow_uuid, status, name, authenticated_user, \
        inputs, executor_id, executor_incarnation, application_version, recovery_attempts, \
        queue_name, deduplication_id, priority, workflow_timeout_ms, workflow_deadline_epoch_ms, \
        delay_until_epoch_ms, parent_workflow_id, created_at, updated_at, started_at_epoch_ms, place) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17, \
        ?18, ?19) ON CONFLICT DO NOTHING";
    let parameters: [Value; 19] = [
        new.id.as_str().into(),
        status.as_str().into(),
        new.name.as_str().into(),
        new.owner.clone().into(),
        new.input.as_str().into(),
        executor.into(),
        incarnation.into(),
        new.application_version.as_str().into(),
        i64::from(runs).into(),
        new.queue.clone().into(),
        new.deduplication_id.clone().into(),
        i64::from(new.priority).into(),
        new.timeout_ms.into(),
        deadline.into(),
        delay_until.into(),
        new.parent.as_ref().map(|parent| parent.as_str().to_owned()).into(),
        now.into(),
        runs.then_some(now).into(),
        new.place.clone().into(),
    ];
    if transaction.execute(sql, &parameters).await? == 0 {
        return existing(transaction, new).await;
    }
    statements::execute(transaction, &new.statements).await?;
    transaction.wake(Channel::Workflow(new.id.clone()));
    match new.place {
        _ if runs => {}
        // Only executors of this place take it, which is that of the process that writes.
        Some(_) => transaction.wake(Channel::Queues),
        None => transaction.notify(Channel::Queues),
    }
    Ok(CreateOutcome::New { deadline })
}

/// What was there when a workflow could not be inserted.
async fn existing(transaction: &Transaction, new: &NewWorkflow) -> Result<CreateOutcome> {
    if let Some(existing) = find(transaction, &new.id).await? {
        new.check_same(&existing)?;
        return Ok(CreateOutcome::Existing);
    }
    if let (Some(queue), Some(key)) = (&new.queue, &new.deduplication_id) {
        let sql = "SELECT workflow_uuid FROM workflow_status \
                   WHERE queue_name = ?1 AND deduplication_id = ?2";
        let found = transaction.first(sql, &[queue.clone().into(), key.clone().into()]).await?;
        if let Some(row) = found {
            let (queue, deduplication_id) = (queue.clone(), key.clone());
            return Err(Error::Deduplicated {
                id: rows::id(row.text(0)?)?,
                queue,
                deduplication_id,
            });
        }
    }
    // What was in the way has ended meanwhile.
    Err(Error::Conflict { what: format!("workflow {} was not recorded; retry", new.id) })
}

fn by_id() -> String {
    format!("SELECT {} FROM workflow_status WHERE workflow_uuid = ?1", rows::INFO)
}

async fn find(transaction: &Transaction, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
    let found = transaction.first(&by_id(), &[id.as_str().into()]).await?;
    found.as_ref().map(rows::info).transpose()
}

pub(super) async fn info(readers: &Readers, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
    let found = readers.first(&by_id(), &[id.as_str().into()]).await?;
    found.as_ref().map(rows::info).transpose()
}

pub(super) async fn list(readers: &Readers, filter: &Filter) -> Result<Vec<WorkflowInfo>> {
    let status = filter.status.map(Status::as_str);
    // The text contains only the requested conditions, so that an index can be used.
    let conditions: [(&str, Option<Value>); 7] = [
        ("name =", filter.name.clone().map(Value::from)),
        ("status =", status.map(Value::from)),
        ("queue_name =", filter.queue.clone().map(Value::from)),
        ("authenticated_user =", filter.owner.clone().map(Value::from)),
        ("parent_workflow_id =", filter.parent.as_ref().map(|parent| parent.as_str().into())),
        ("created_at <", filter.before.map(Value::from)),
        ("created_at >=", filter.after.map(Value::from)),
    ];
    let mut texts = vec!["TRUE".to_owned()];
    let mut parameters = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            parameters.push(value);
            texts.push(format!("{condition} ?{}", parameters.len()));
        }
    }
    parameters.push(i64::from(filter.limit.unwrap_or(u32::MAX)).into());
    let sql = format!(
        "SELECT {} FROM workflow_status WHERE {} ORDER BY created_at, number LIMIT ?{}",
        rows::INFO,
        texts.join(" AND "),
        parameters.len()
    );
    readers.query(&sql, &parameters).await?.iter().map(rows::info).collect()
}

pub(super) async fn steps(readers: &Readers, id: &WorkflowId) -> Result<Vec<StepRecord>> {
    let sql = "SELECT function_id, function_name, output, error, child_workflow_id, \
               started_at_epoch_ms, completed_at_epoch_ms FROM operation_outputs \
               WHERE workflow_uuid = ?1 ORDER BY function_id";
    let found = readers.query(sql, &[id.as_str().into()]).await?;
    let step = |row: &crate::Row| {
        let number = row.integer(0)?;
        let damaged = |_| Error::Storage { message: format!("{number} is not a step") };
        Ok(StepRecord {
            function_id: u32::try_from(number).map_err(damaged)?,
            name: row.text(1)?.to_owned(),
            outcome: match row.optional_text(3)? {
                Some(error) => StepOutcome::Failure(rows::failure(error)?),
                None => StepOutcome::Output(row.text(2)?.to_owned()),
            },
            child: row.optional_text(4)?.map(rows::id).transpose()?,
            started_at: row.integer(5)?,
            completed_at: row.integer(6)?,
        })
    };
    found.iter().map(step).collect()
}

/// The workflow and its descendants whose status is one of the words, locked.
async fn tree(transaction: &Transaction, id: &WorkflowId, words: &str) -> Result<Vec<WorkflowId>> {
    let sql = format!(
        "SELECT workflow_uuid FROM workflow_status WHERE workflow_uuid IN (\
         WITH RECURSIVE tree (id) AS (SELECT ?1::text COLLATE \"C\" UNION SELECT workflow_uuid \
         FROM workflow_status JOIN tree ON parent_workflow_id = tree.id) SELECT id FROM tree) \
         AND status IN ({words}) ORDER BY number FOR NO KEY UPDATE"
    );
    let found = transaction.query(&sql, &[id.as_str().into()]).await?;
    found.iter().map(|row| rows::id(row.text(0)?)).collect()
}

pub(super) async fn cancel(
    transaction: &Transaction,
    id: &WorkflowId,
    timed_out: bool,
) -> Result<Vec<WorkflowId>> {
    let failure = if timed_out {
        Failure::new("timed_out", "the workflow timed out")
    } else {
        Failure::new("cancelled", "the workflow was cancelled")
    };
    let error = rows::failure_text(&failure)?;
    let ended = tree(transaction, id, "'PENDING', 'ENQUEUED', 'DELAYED'").await?;
    if ended.is_empty() && find(transaction, id).await?.is_none() {
        return Err(Error::NotFound { id: id.clone() });
    }
    let sql = "UPDATE workflow_status SET status = 'CANCELLED', error = ?2, completed_at = ?3, \
               updated_at = ?3, deduplication_id = NULL WHERE workflow_uuid = ?1";
    for id in &ended {
        let parameters = [id.as_str().into(), error.as_str().into(), now_ms().into()];
        transaction.execute(sql, &parameters).await?;
        wake_on_end(transaction, id);
    }
    transaction.notify(Channel::Queues);
    Ok(ended)
}

pub(super) async fn resume(transaction: &Transaction, id: &WorkflowId, queue: &str) -> Result<()> {
    let Some(found) = find(transaction, id).await? else {
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
    for id in tree(transaction, id, "'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED'").await? {
        let parameters = [id.as_str().into(), queue.into(), now_ms().into()];
        transaction.execute(sql, &parameters).await?;
        transaction.wake(Channel::Workflow(id));
    }
    transaction.notify(Channel::Queues);
    Ok(())
}

/// Removes some of the workflows that ended before a time; returns their number.
pub(super) async fn collect(
    transaction: &Transaction,
    older_than_ms: i64,
    limit: u32,
) -> Result<u64> {
    let sql = format!(
        "SELECT workflow_uuid FROM workflow_status AS ended WHERE completed_at < {SERVER_NOW} - ?1 \
         AND NOT EXISTS (SELECT 1 FROM workflow_status AS parent \
         WHERE parent.workflow_uuid = ended.parent_workflow_id \
         AND parent.completed_at IS NULL) ORDER BY completed_at LIMIT ?2 \
         FOR UPDATE SKIP LOCKED"
    );
    let found = transaction.query(&sql, &[older_than_ms.into(), limit.into()]).await?;
    for row in &found {
        let id: Value = row.text(0)?.into();
        for sql in [
            "DELETE FROM operation_outputs WHERE workflow_uuid = ?1",
            "DELETE FROM streams WHERE workflow_uuid = ?1",
            "DELETE FROM workflow_events WHERE workflow_uuid = ?1",
            "DELETE FROM notifications WHERE destination_uuid = ?1",
            "DELETE FROM workflow_status WHERE workflow_uuid = ?1",
        ] {
            transaction.execute(sql, std::slice::from_ref(&id)).await?;
        }
    }
    Ok(found.len() as u64)
}

/// Wakes all that wait for anything of a workflow that has ended.
pub(super) fn wake_on_end(transaction: &Transaction, id: &WorkflowId) {
    for channel in [Channel::Workflow, Channel::Stream, Channel::Events, Channel::Messages] {
        transaction.wake(channel(id.clone()));
    }
}
