//! Streams and events. The row of their workflow is locked while they grow.

use super::connection::Transaction;
use super::readers::Readers;
use super::rows;
use crate::{Channel, Error, Json, Result, StreamPage, StreamRow, WorkflowId};

/// How many bytes of values one read returns, plus at most one value.
const PAGE_BYTES: i64 = 1 << 20;

/// Appends rows to streams; rows after a close are dropped.
pub(super) async fn append(
    transaction: &Transaction,
    id: &WorkflowId,
    stream: &[StreamRow],
) -> Result<()> {
    if stream.is_empty() {
        return Ok(());
    }
    let last = "SELECT \"offset\", value IS NULL FROM streams \
                WHERE workflow_uuid = ?1 AND key = ?2 ORDER BY \"offset\" DESC LIMIT 1";
    let insert = "INSERT INTO streams VALUES (?1, ?2, ?3, ?4, ?5)";
    for row in stream {
        let found = transaction.first(last, &[id.as_str().into(), row.key.as_str().into()]).await?;
        let offset = match found {
            Some(last) if last.boolean(1)? => continue,
            Some(last) => last.integer(0)? + 1,
            None => 0,
        };
        let parameters = [
            id.as_str().into(),
            row.key.as_str().into(),
            offset.into(),
            row.value.clone().into(),
            row.function_id.into(),
        ];
        transaction.execute(insert, &parameters).await?;
    }
    transaction.wake(Channel::Stream(id.clone()));
    Ok(())
}

/// A page of a stream with the status of its workflow. One statement is one snapshot: the status
/// never shows an end whose rows are not visible yet.
pub(super) async fn page(
    readers: &Readers,
    id: &WorkflowId,
    key: &str,
    from_offset: u64,
    limit: u32,
) -> Result<StreamPage> {
    let sql = "SELECT status, page.place, page.value FROM workflow_status LEFT JOIN (\
               SELECT place, value FROM (SELECT \"offset\" AS place, value, \
               SUM(LENGTH(value)) OVER (ORDER BY \"offset\" ROWS BETWEEN UNBOUNDED PRECEDING \
               AND 1 PRECEDING) AS before FROM (SELECT \"offset\", value FROM streams \
               WHERE workflow_uuid = ?1 AND key = ?2 AND \"offset\" >= ?3 ORDER BY \"offset\" \
               LIMIT ?4) AS part) AS counted WHERE COALESCE(before, 0) < ?5) AS page ON TRUE \
               WHERE workflow_uuid = ?1 ORDER BY page.place";
    let parameters = [
        id.as_str().into(),
        key.into(),
        i64::try_from(from_offset).unwrap_or(i64::MAX).into(),
        limit.into(),
        PAGE_BYTES.into(),
    ];
    let found = readers.query(sql, &parameters).await?;
    let Some(first) = found.first() else { return Err(Error::NotFound { id: id.clone() }) };
    let status = rows::status(first.text(0)?)?;
    let mut stream = Vec::new();
    for row in &found {
        if let Some(offset) = row.optional_integer(1)? {
            let value = row.optional_text(2)?.map(rows::json).transpose()?;
            stream.push((offset.unsigned_abs(), value));
        }
    }
    Ok(StreamPage { rows: stream, status })
}

pub(super) async fn event(readers: &Readers, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
    let sql = "SELECT value FROM workflow_events WHERE workflow_uuid = ?1 AND key = ?2";
    let found = readers.first(sql, &[id.as_str().into(), key.into()]).await?;
    found.map(|row| rows::json(row.text(0)?)).transpose()
}
