//! Commits the records of a workflow: under its claim, all or nothing.

use super::connection::{Transaction, is_consequence};
use super::{messages, rows, statements, streams, workflows};
use crate::sync::now_ms;
use crate::{
    Channel, Claim, Commit, CommitResult, Error, Outcome, Records, Result, Status, StepOutcome,
    StepRecord, Value, WorkflowId,
};

/// Reads and locks what a claim is compared with.
const CLAIM: &str = "SELECT status, executor_id, recovery_attempts, forgiven_attempts, \
    queue_name IS NOT NULL FROM workflow_status WHERE workflow_uuid = ?1 FOR NO KEY UPDATE";

/// Commits the carried records, then the rest; a refusal of the rest does not undo the carried
/// ones, and is the inner result.
pub(super) async fn commit(
    transaction: &Transaction,
    commit: &Commit,
) -> Result<Result<CommitResult>> {
    let Records { children, messages, .. } = &commit.records;
    if commit.statements.is_empty() && children.is_empty() && messages.is_empty() {
        return commit_plain(transaction, commit).await.map(Ok);
    }
    let in_queue = check_claim(transaction, commit).await?;
    let id = &commit.claim.id;
    let mut committed = CommitResult::default();
    record(transaction, id, &commit.earlier, &mut committed).await?;
    transaction.batch("SAVEPOINT rest").await?;
    let rest = async {
        record(transaction, id, &commit.records, &mut committed).await?;
        statements::execute(transaction, &commit.statements).await
    };
    match rest.await {
        Ok(()) => transaction.batch("RELEASE SAVEPOINT rest").await?,
        Err(error) if error.is_refusal() => {
            transaction.batch("ROLLBACK TO SAVEPOINT rest; RELEASE SAVEPOINT rest").await?;
            return Ok(Err(error));
        }
        Err(error) => return Err(error),
    }
    finish(transaction, commit).await?;
    wake_queues(transaction, commit, in_queue).await?;
    Ok(Ok(committed))
}

/// Commits what cannot meet a conflict, without waiting for the check of the claim before the rest is sent: if the
/// claim does not hold, all of it is undone.
async fn commit_plain(transaction: &Transaction, commit: &Commit) -> Result<CommitResult> {
    let id = &commit.claim.id;
    // So that it is sent before the others, which may be prepared already: the end changes what it reads.
    transaction.prepare(CLAIM, &[id.as_str().into()]).await?;
    let records = async {
        let mut committed = CommitResult::default();
        record(transaction, id, &commit.earlier, &mut committed).await?;
        record(transaction, id, &commit.records, &mut committed).await?;
        Ok(committed)
    };
    let (claim, committed, finished) = tokio::join!(
        biased;
        check_claim(transaction, commit),
        records,
        finish(transaction, commit)
    );
    // A failure makes the later statements of the transaction fail, too.
    let failures = [claim.as_ref().err(), committed.as_ref().err(), finished.as_ref().err()];
    if let Some(cause) = failures.into_iter().flatten().min_by_key(|it| is_consequence(it)) {
        return Err(cause.clone());
    }
    let (in_queue, committed) = (claim?, committed?);
    wake_queues(transaction, commit, in_queue).await?;
    Ok(committed)
}

/// Wakes those who wait for the slot in a queue that an end frees; other processes only if one of their
/// workflows waits now. One that is entering the queue meanwhile looks again by itself.
async fn wake_queues(transaction: &Transaction, commit: &Commit, in_queue: bool) -> Result<()> {
    if !in_queue || commit.outcome.is_none() {
        return Ok(());
    }
    transaction.wake(Channel::Queues);
    let sql = "SELECT 1 FROM workflow_status AS waiting, workflow_status AS ended \
               WHERE ended.workflow_uuid = ?1 AND waiting.queue_name = ended.queue_name \
               AND waiting.completed_at IS NULL AND waiting.status = 'ENQUEUED' \
               AND (waiting.place IS NULL OR waiting.place IS DISTINCT FROM ended.place) LIMIT 1";
    if transaction.first(sql, &[commit.claim.id.as_str().into()]).await?.is_some() {
        transaction.notify(Channel::Slots);
    }
    Ok(())
}

/// Locks the row of the workflow. Fails unless it is PENDING, of that executor, with that epoch;
/// returns whether it is in a queue. The first record of a run resets the count of take-overs.
async fn check_claim(transaction: &Transaction, commit: &Commit) -> Result<bool> {
    let Claim { id, executor, epoch } = &commit.claim;
    let Some(row) = transaction.first(CLAIM, &[id.as_str().into()]).await? else {
        return Err(Error::LeaseLost { id: id.clone(), status: None });
    };
    let status = Status::parse(row.text(0)?);
    let is_own = row.optional_text(1)? == Some(executor.as_str());
    let (attempts, forgiven) = (row.integer(2)?, row.integer(3)?);
    if status != Some(Status::Pending) || !is_own || attempts != *epoch {
        return Err(Error::LeaseLost { id: id.clone(), status });
    }
    let progress = !commit.earlier.steps.is_empty() || !commit.records.steps.is_empty();
    if progress && attempts - forgiven > 1 {
        let sql = "UPDATE workflow_status SET forgiven_attempts = recovery_attempts - 1 \
                   WHERE workflow_uuid = ?1";
        transaction.execute(sql, &[id.as_str().into()]).await?;
    }
    row.boolean(4)
}

async fn record(
    transaction: &Transaction,
    id: &WorkflowId,
    records: &Records,
    committed: &mut CommitResult,
) -> Result<()> {
    for new in &records.children {
        committed.children.push(workflows::create(transaction, new).await?);
    }
    for step in &records.steps {
        record_step(transaction, id, step).await?;
    }
    streams::append(transaction, id, &records.stream).await?;
    for event in &records.events {
        let sql = "INSERT INTO workflow_events VALUES (?1, ?2, ?3) \
                   ON CONFLICT (workflow_uuid, key) DO UPDATE SET value = excluded.value";
        let parameters =
            [id.as_str().into(), event.key.as_str().into(), event.value.as_str().into()];
        transaction.execute(sql, &parameters).await?;
        transaction.wake(Channel::Events(id.clone()));
    }
    for message in &records.messages {
        messages::send(transaction, message).await?;
    }
    for message in &records.consumed {
        messages::consume(transaction, message).await?;
    }
    Ok(())
}

async fn record_step(transaction: &Transaction, id: &WorkflowId, step: &StepRecord) -> Result<()> {
    let sql = "INSERT INTO operation_outputs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let (output, error) = match &step.outcome {
        StepOutcome::Output(output) => (Some(output.clone()), None),
        StepOutcome::Failure(failure) => (None, Some(rows::failure_text(failure)?)),
    };
    let parameters: [Value; 8] = [
        id.as_str().into(),
        step.function_id.into(),
        step.name.as_str().into(),
        output.into(),
        error.into(),
        step.child.as_ref().map(|child| child.as_str().to_owned()).into(),
        step.started_at.into(),
        step.completed_at.into(),
    ];
    match transaction.execute(sql, &parameters).await {
        Ok(_) => Ok(()),
        // Two executions recorded the same step: this one has lost its lease.
        Err(Error::Conflict { .. }) => Err(Error::LeaseLost { id: id.clone(), status: None }),
        Err(error) => Err(error),
    }
}

/// Records the end of the workflow, if the commit has one.
async fn finish(transaction: &Transaction, commit: &Commit) -> Result<()> {
    let (claim, Some(outcome)) = (&commit.claim, &commit.outcome) else { return Ok(()) };
    let (status, output, error) = match outcome {
        Outcome::Success(output) => (Status::Success, Some(output.clone()), None),
        Outcome::Failure(failure) => (Status::Error, None, Some(rows::failure_text(failure)?)),
    };
    let sql = "UPDATE workflow_status SET status = ?2, output = ?3, error = ?4, \
               completed_at = ?5, updated_at = ?5, deduplication_id = NULL \
               WHERE workflow_uuid = ?1";
    let parameters: [Value; 5] = [
        claim.id.as_str().into(),
        status.as_str().into(),
        output.into(),
        error.into(),
        now_ms().into(),
    ];
    transaction.execute(sql, &parameters).await?;
    workflows::wake_on_end(transaction, &claim.id);
    Ok(())
}
