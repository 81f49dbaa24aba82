//! Commits the records of a workflow: under its claim, all or nothing.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::rows::{self, storage_error};
use super::{messages, statements, streams, workflows};
use crate::sync::now_ms;
use crate::{
    Channel, Claim, Commit, CommitResult, Error, Outcome, Records, Result, Status, StepOutcome,
    StepRecord, WorkflowId,
};

/// Commits the carried records, then the rest; a refusal of the rest does not undo the carried
/// ones.
pub(super) fn commit(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    commit: &Commit,
) -> Result<Result<CommitResult>> {
    let in_queue = check_claim(connection, commit)?;
    let id = &commit.claim.id;
    let mut committed = CommitResult::default();
    record(connection, wakes, id, &commit.earlier, &mut committed)?;
    let Records { children, messages, .. } = &commit.records;
    if commit.statements.is_empty() && children.is_empty() && messages.is_empty() {
        // None of these can meet a conflict.
        record(connection, wakes, id, &commit.records, &mut committed)?;
    } else {
        let mut rest = || {
            record(connection, wakes, id, &commit.records, &mut committed)?;
            statements::execute(connection, wakes, &commit.statements)
        };
        if let Err(error) = nested(connection, &mut rest)? {
            return Ok(Err(error));
        }
    }
    if let Some(outcome) = &commit.outcome {
        finish(connection, wakes, &commit.claim, outcome)?;
        if in_queue {
            wakes.push(Channel::Queues);
        }
    }
    Ok(Ok(committed))
}

/// Runs work in a savepoint; a refusal rolls it back and is the inner result.
fn nested(connection: &Connection, work: &mut dyn FnMut() -> Result<()>) -> Result<Result<()>> {
    let execute = |sql: &str| {
        connection.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map_err(storage_error)
    };
    execute("SAVEPOINT rest")?;
    match work() {
        Ok(()) => {
            execute("RELEASE rest")?;
            Ok(Ok(()))
        }
        Err(error) if error.is_refusal() => {
            execute("ROLLBACK TO rest")?;
            execute("RELEASE rest")?;
            Ok(Err(error))
        }
        Err(error) => Err(error),
    }
}

/// Fails unless the workflow is PENDING, of that executor, with that epoch; returns whether it is
/// in a queue. The first record of a run resets the count of take-overs.
fn check_claim(connection: &Connection, commit: &Commit) -> Result<bool> {
    let Claim { id, executor, epoch } = &commit.claim;
    let sql = "SELECT status, executor_id, recovery_attempts, forgiven_attempts, \
               queue_name IS NOT NULL FROM workflow_status WHERE workflow_uuid = ?1";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = select.query_row([id.as_str()], |row| {
        let status = Status::parse(row.get_ref(0)?.as_str()?);
        let own = row.get_ref(1)?.as_str_or_null()? == Some(executor.as_str());
        Ok((status, own, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?, row.get::<_, bool>(4)?))
    });
    let Some((status, own, attempts, forgiven, in_queue)) =
        found.optional().map_err(storage_error)?
    else {
        return Err(Error::LeaseLost { id: id.clone(), status: None });
    };
    if status != Some(Status::Pending) || !own || attempts != *epoch {
        return Err(Error::LeaseLost { id: id.clone(), status });
    }
    let progress = !commit.earlier.steps.is_empty() || !commit.records.steps.is_empty();
    if progress && attempts - forgiven > 1 {
        let sql = "UPDATE workflow_status SET forgiven_attempts = recovery_attempts - 1 \
                   WHERE workflow_uuid = ?1";
        let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
        update.execute([id.as_str()]).map_err(storage_error)?;
    }
    Ok(in_queue)
}

fn record(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    id: &WorkflowId,
    records: &Records,
    committed: &mut CommitResult,
) -> Result<()> {
    for new in &records.children {
        committed.children.push(workflows::create(connection, wakes, new)?);
    }
    for step in &records.steps {
        record_step(connection, id, step)?;
    }
    streams::append(connection, wakes, id, &records.stream)?;
    for event in &records.events {
        let sql = "INSERT INTO workflow_events VALUES (?1, ?2, ?3) \
                   ON CONFLICT DO UPDATE SET value = excluded.value";
        let mut insert = connection.prepare_cached(sql).map_err(storage_error)?;
        insert.execute([id.as_str(), &event.key, &event.value]).map_err(storage_error)?;
        wakes.push(Channel::Events(id.clone()));
    }
    for message in &records.messages {
        messages::send(connection, wakes, message)?;
    }
    for message in &records.consumed {
        messages::consume(connection, message)?;
    }
    Ok(())
}

fn record_step(connection: &Connection, id: &WorkflowId, step: &StepRecord) -> Result<()> {
    let sql = "INSERT INTO operation_outputs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = connection.prepare_cached(sql).map_err(storage_error)?;
    let (output, error) = match &step.outcome {
        StepOutcome::Output(output) => (Some(output), None),
        StepOutcome::Failure(failure) => (None, Some(rows::failure_text(failure)?)),
    };
    let row = params![
        id.as_str(),
        step.function_id,
        step.name,
        output,
        error,
        step.child.as_ref().map(WorkflowId::as_str),
        step.started_at,
        step.completed_at,
    ];
    match insert.execute(row).map_err(storage_error) {
        Ok(_) => Ok(()),
        // Two executions recorded the same step: this one has lost its lease.
        Err(Error::Conflict { .. }) => Err(Error::LeaseLost { id: id.clone(), status: None }),
        Err(error) => Err(error),
    }
}

fn finish(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    claim: &Claim,
    outcome: &Outcome,
) -> Result<()> {
    let (status, output, error) = match outcome {
        Outcome::Success(output) => (Status::Success, Some(output), None),
        Outcome::Failure(failure) => (Status::Error, None, Some(rows::failure_text(failure)?)),
    };
    let sql = "UPDATE workflow_status SET status = ?2, output = ?3, error = ?4, \
               completed_at = ?5, updated_at = ?5, deduplication_id = NULL \
               WHERE workflow_uuid = ?1";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    let row = params![claim.id.as_str(), status.as_str(), output, error, now_ms()];
    update.execute(row).map_err(storage_error)?;
    workflows::wake_on_end(wakes, &claim.id);
    Ok(())
}
