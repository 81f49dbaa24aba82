//! Queues: which workflows may leave them, by their limits.

use super::clock::ServerTime;
use super::connection::Transaction;
use super::executors::claim;
use super::rows;
use crate::sync::millis;
use crate::{Channel, Executor, Queue, QueueBatch, Result, Row, Value};

/// The most workflows that leave a queue in one call; the next call takes more.
const MAX_DEQUEUED: i64 = 256;

/// When a process looks again for a slot in a full queue.
const LOOK_AGAIN_MS: i64 = 1000;

pub(super) async fn declare(transaction: &Transaction, queue: &Queue) -> Result<()> {
    let sql = "INSERT INTO queues VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE SET \
               concurrency = excluded.concurrency, \
               worker_concurrency = excluded.worker_concurrency, \
               rate_limit_max = excluded.rate_limit_max, \
               rate_limit_period_ms = excluded.rate_limit_period_ms";
    let (max, period) = queue.rate_limit.unzip();
    let parameters: [Value; 5] = [
        queue.name.into(),
        queue.concurrency.into(),
        queue.worker_concurrency.into(),
        max.into(),
        period.map(millis).into(),
    ];
    transaction.execute(sql, &parameters).await?;
    transaction.notify(Channel::Queues);
    Ok(())
}

pub(super) async fn dequeue(
    transaction: &Transaction,
    executor: &Executor,
    queues: &[String],
) -> Result<QueueBatch> {
    let time = ServerTime::read(transaction).await?;
    let now = time.now;
    let mut dequeued = QueueBatch::default();
    let names = serde_json::to_string(&executor.names)?;
    for queue in queues {
        promote_delayed(transaction, queue, now).await?;
        // Without a limit nobody has to wait for the queue; with one, the counts must stay true until
        // the end of the transaction.
        let limits = limits(transaction, queue).await?;
        let waiting = waiting(transaction, executor, queue, &names).await?;
        if !waiting.is_empty() {
            let capacity = capacity(transaction, executor, queue, &limits, now).await?;
            let mut left = waiting.iter();
            for id in left.by_ref().take(capacity.slots) {
                dequeued.workflows.push(claim(transaction, executor, &rows::id(id)?).await?);
            }
            if left.next().is_some() {
                dequeued.waits_for_slot |= capacity.is_shared;
                // An end elsewhere may have seen nobody who waits for its slot.
                let again = now.saturating_add(LOOK_AGAIN_MS);
                earlier(&mut dequeued.next_at, capacity.opens_at.or(Some(again)));
            }
        }
        earlier(&mut dequeued.next_at, next_delayed(transaction, queue).await?);
    }
    dequeued.next_at = dequeued.next_at.map(|at| time.here(at));
    Ok(dequeued)
}

fn earlier(next: &mut Option<i64>, candidate: Option<i64>) {
    *next = [*next, candidate].into_iter().flatten().min();
}

async fn promote_delayed(transaction: &Transaction, queue: &str, now: i64) -> Result<()> {
    let sql = "UPDATE workflow_status SET status = 'ENQUEUED', updated_at = ?2 \
               WHERE workflow_uuid IN (SELECT workflow_uuid FROM workflow_status \
               WHERE queue_name = ?1 AND completed_at IS NULL AND status = 'DELAYED' \
               AND delay_until_epoch_ms <= ?2 FOR NO KEY UPDATE SKIP LOCKED)";
    transaction.execute(sql, &[queue.into(), now.into()]).await.map(drop)
}

async fn next_delayed(transaction: &Transaction, queue: &str) -> Result<Option<i64>> {
    let sql = "SELECT MIN(delay_until_epoch_ms) FROM workflow_status \
               WHERE queue_name = ?1 AND completed_at IS NULL AND status = 'DELAYED'";
    let row = transaction.first(sql, &[queue.into()]).await?;
    row.map_or(Ok(None), |row| row.optional_integer(0))
}

/// Workflows that no other process is taking at this moment, locked.
async fn waiting(
    transaction: &Transaction,
    executor: &Executor,
    queue: &str,
    names: &str,
) -> Result<Vec<String>> {
    let sql = "SELECT workflow_uuid FROM workflow_status WHERE queue_name = ?1 \
               AND completed_at IS NULL AND status = 'ENQUEUED' AND application_version = ?2 \
               AND name IN (SELECT value FROM json_array_elements_text(CAST(?3 AS JSON)) \
               AS names (value)) AND (place IS NULL OR place = ?5) \
               ORDER BY priority, created_at, number LIMIT ?4 FOR NO KEY UPDATE SKIP LOCKED";
    let parameters: [Value; 5] = [
        queue.into(),
        executor.application_version.as_str().into(),
        names.into(),
        (MAX_DEQUEUED + 1).into(),
        executor.place.clone().into(),
    ];
    let found = transaction.query(sql, &parameters).await?;
    found.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
}

/// How many workflows may leave a queue now.
struct Capacity {
    slots: usize,
    /// When more may leave, where only time passes until then.
    opens_at: Option<i64>,
    /// Whether an end in another process can give more slots, rather than one in this process only.
    is_shared: bool,
}

/// The limits of a queue.
#[derive(Default)]
struct Limits {
    concurrency: Option<i64>,
    worker_concurrency: Option<i64>,
    rate: Option<i64>,
    period_ms: Option<i64>,
}

async fn capacity(
    transaction: &Transaction,
    executor: &Executor,
    queue: &str,
    limits: &Limits,
    now: i64,
) -> Result<Capacity> {
    let count = async |sql: &str, parameters: &[Value]| -> Result<i64> {
        let row = transaction.first(sql, parameters).await?;
        row.map_or(Ok(0), |row: Row| row.integer(0))
    };
    let mut slots = MAX_DEQUEUED;
    let mut is_shared = true;
    if let Some(most) = limits.concurrency {
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND completed_at IS NULL AND status = 'PENDING'";
        slots = slots.min(most - count(sql, &[queue.into()]).await?);
    }
    if let Some(most) = limits.worker_concurrency {
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND completed_at IS NULL AND status = 'PENDING' AND executor_id = ?2 \
                   AND executor_incarnation = ?3";
        let parameters = [queue.into(), executor.id.as_str().into(), executor.incarnation.into()];
        let own = most - count(sql, &parameters).await?;
        is_shared = slots <= own;
        slots = slots.min(own);
    }
    let mut opens_at = None;
    if let (Some(most), Some(period)) = (limits.rate, limits.period_ms) {
        let since: Value = now.saturating_sub(period).into();
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND started_at_epoch_ms > ?2";
        slots = slots.min(most - count(sql, &[queue.into(), since.clone()]).await?);
        let sql = "SELECT COALESCE(MIN(started_at_epoch_ms), ?3) FROM workflow_status \
                   WHERE queue_name = ?1 AND started_at_epoch_ms > ?2";
        let oldest = count(sql, &[queue.into(), since, now.into()]).await?;
        opens_at = Some(oldest.saturating_add(period));
    }
    Ok(Capacity { slots: usize::try_from(slots).unwrap_or(0), opens_at, is_shared })
}

/// The limits of a queue. The row of a limited queue is locked, so that only one process at a time
/// counts and takes.
async fn limits(transaction: &Transaction, queue: &str) -> Result<Limits> {
    let sql = "SELECT concurrency, worker_concurrency, rate_limit_max, rate_limit_period_ms \
               FROM queues WHERE name = ?1 AND (concurrency IS NOT NULL \
               OR worker_concurrency IS NOT NULL OR rate_limit_max IS NOT NULL) FOR UPDATE";
    let Some(row) = transaction.first(sql, &[queue.into()]).await? else {
        return Ok(Limits::default());
    };
    Ok(Limits {
        concurrency: row.optional_integer(0)?,
        worker_concurrency: row.optional_integer(1)?,
        rate: row.optional_integer(2)?,
        period_ms: row.optional_integer(3)?,
    })
}
