//! Queues: which workflows may leave them, by their limits.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::executors::claim;
use super::rows::{self, storage_error};
use crate::sync::{millis, now_ms};
use crate::{Channel, Executor, Queue, QueueBatch, Result};

/// The most workflows that leave a queue in one call; the next call takes more.
const MAX_DEQUEUED: i64 = 256;

pub(super) fn declare(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    queue: &Queue,
) -> Result<()> {
    let sql = "INSERT INTO queues VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET \
               concurrency = excluded.concurrency, \
               worker_concurrency = excluded.worker_concurrency, \
               rate_limit_max = excluded.rate_limit_max, \
               rate_limit_period_ms = excluded.rate_limit_period_ms";
    let (max, period) = queue.rate_limit.unzip();
    let period = period.map(millis);
    let row = params![queue.name, queue.concurrency, queue.worker_concurrency, max, period];
    connection.execute(sql, row).map_err(storage_error)?;
    wakes.push(Channel::Queues);
    Ok(())
}

pub(super) fn dequeue(
    connection: &Connection,
    executor: &Executor,
    queues: &[String],
) -> Result<QueueBatch> {
    let now = now_ms();
    let mut dequeued = QueueBatch::default();
    let names = serde_json::to_string(&executor.names)?;
    for queue in queues {
        promote_delayed(connection, queue, now)?;
        let waiting = waiting(connection, executor, queue, &names)?;
        if !waiting.is_empty() {
            let capacity = capacity(connection, executor, queue, now)?;
            let mut left = waiting.into_iter();
            for id in left.by_ref().take(capacity.slots) {
                dequeued.workflows.push(claim(connection, executor, &rows::id(id)?)?);
            }
            if left.next().is_some() {
                earlier(&mut dequeued.next_at, capacity.opens_at);
            }
        }
        earlier(&mut dequeued.next_at, next_delayed(connection, queue)?);
    }
    Ok(dequeued)
}

fn earlier(next: &mut Option<i64>, candidate: Option<i64>) {
    *next = [*next, candidate].into_iter().flatten().min();
}

fn promote_delayed(connection: &Connection, queue: &str, now: i64) -> Result<()> {
    let sql = "UPDATE workflow_status SET status = 'ENQUEUED', updated_at = ?2 \
               WHERE queue_name = ?1 AND completed_at IS NULL AND status = 'DELAYED' \
               AND delay_until_epoch_ms <= ?2";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    update.execute(params![queue, now]).map_err(storage_error)?;
    Ok(())
}

fn next_delayed(connection: &Connection, queue: &str) -> Result<Option<i64>> {
    let sql = "SELECT MIN(delay_until_epoch_ms) FROM workflow_status \
               WHERE queue_name = ?1 AND completed_at IS NULL AND status = 'DELAYED'";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    select.query_row([queue], |row| row.get(0)).map_err(storage_error)
}

fn waiting(
    connection: &Connection,
    executor: &Executor,
    queue: &str,
    names: &str,
) -> Result<Vec<String>> {
    let sql = "SELECT workflow_uuid FROM workflow_status WHERE queue_name = ?1 \
               AND completed_at IS NULL AND status = 'ENQUEUED' AND application_version = ?2 \
               AND name IN (SELECT value FROM json_each(?3)) AND (place IS NULL OR place = ?5) \
               ORDER BY priority, created_at, rowid LIMIT ?4";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let parameters =
        params![queue, executor.application_version, names, MAX_DEQUEUED + 1, executor.place];
    let found = select.query_map(parameters, |row| row.get(0)).map_err(storage_error)?;
    found.collect::<rusqlite::Result<_>>().map_err(storage_error)
}

/// How many workflows may leave a queue now.
struct Capacity {
    slots: usize,
    /// When more may leave, where only time passes until then.
    opens_at: Option<i64>,
}

/// The limits of a queue.
#[derive(Default)]
struct Limits {
    concurrency: Option<i64>,
    worker_concurrency: Option<i64>,
    rate: Option<i64>,
    period_ms: Option<i64>,
}

fn capacity(
    connection: &Connection,
    executor: &Executor,
    queue: &str,
    now: i64,
) -> Result<Capacity> {
    let count = |sql: &str, parameters: &[&dyn rusqlite::ToSql]| -> Result<i64> {
        let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
        select.query_row(parameters, |row| row.get(0)).map_err(storage_error)
    };
    let limits = limits(connection, queue)?;
    let mut slots = MAX_DEQUEUED;
    if let Some(most) = limits.concurrency {
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND completed_at IS NULL AND status = 'PENDING'";
        slots = slots.min(most - count(sql, &[&queue])?);
    }
    if let Some(most) = limits.worker_concurrency {
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND completed_at IS NULL AND status = 'PENDING' AND executor_id = ?2 \
                   AND executor_incarnation = ?3";
        slots = slots.min(most - count(sql, &[&queue, &executor.id, &executor.incarnation])?);
    }
    let mut opens_at = None;
    if let (Some(most), Some(period)) = (limits.rate, limits.period_ms) {
        let since = now.saturating_sub(period);
        let sql = "SELECT COUNT(*) FROM workflow_status WHERE queue_name = ?1 \
                   AND started_at_epoch_ms > ?2";
        slots = slots.min(most - count(sql, &[&queue, &since])?);
        let sql = "SELECT COALESCE(MIN(started_at_epoch_ms), ?3) FROM workflow_status \
                   WHERE queue_name = ?1 AND started_at_epoch_ms > ?2";
        let oldest = count(sql, &[&queue, &since, &now])?;
        opens_at = Some(oldest.saturating_add(period));
    }
    Ok(Capacity { slots: usize::try_from(slots).unwrap_or(0), opens_at })
}

fn limits(connection: &Connection, queue: &str) -> Result<Limits> {
    let sql = "SELECT concurrency, worker_concurrency, rate_limit_max, rate_limit_period_ms \
               FROM queues WHERE name = ?1";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = select.query_row([queue], |row| {
        Ok(Limits {
            concurrency: row.get(0)?,
            worker_concurrency: row.get(1)?,
            rate: row.get(2)?,
            period_ms: row.get(3)?,
        })
    });
    Ok(found.optional().map_err(storage_error)?.unwrap_or_default())
}
