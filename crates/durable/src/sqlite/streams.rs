//! Streams and events.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::rows::{self, storage_error};
use crate::{Channel, Error, Json, Result, StreamPage, StreamRow, WorkflowId};

/// How many bytes of values one read returns, plus at most one value.
const PAGE_BYTES: usize = 1 << 20;

/// Appends rows to streams; rows after a close are dropped.
pub(super) fn append(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    id: &WorkflowId,
    stream: &[StreamRow],
) -> Result<()> {
    if stream.is_empty() {
        return Ok(());
    }
    let last = "SELECT \"offset\", value IS NULL FROM streams \
                WHERE workflow_uuid = ?1 AND key = ?2 ORDER BY \"offset\" DESC LIMIT 1";
    let mut last = connection.prepare_cached(last).map_err(storage_error)?;
    let insert = "INSERT INTO streams VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = connection.prepare_cached(insert).map_err(storage_error)?;
    for row in stream {
        let found = last.query_row([id.as_str(), &row.key], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?))
        });
        let offset = match found.optional().map_err(storage_error)? {
            Some((_, true)) => continue,
            Some((offset, false)) => offset + 1,
            None => 0,
        };
        let row = params![id.as_str(), row.key, offset, row.value, row.function_id];
        insert.execute(row).map_err(storage_error)?;
    }
    wakes.push(Channel::Stream(id.clone()));
    Ok(())
}

pub(super) fn page(
    connection: &Connection,
    id: &WorkflowId,
    key: &str,
    from_offset: u64,
    limit: u32,
) -> Result<StreamPage> {
    // One snapshot: the status never shows an end whose rows are not visible yet.
    let _snapshot = connection.unchecked_transaction().map_err(storage_error)?;
    let sql = "SELECT status FROM workflow_status WHERE workflow_uuid = ?1";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let word: Option<String> =
        select.query_row([id.as_str()], |row| row.get(0)).optional().map_err(storage_error)?;
    let word = word.ok_or_else(|| Error::NotFound { id: id.clone() })?;
    let sql = "SELECT \"offset\", value FROM streams WHERE workflow_uuid = ?1 AND key = ?2 \
               AND \"offset\" >= ?3 ORDER BY \"offset\" LIMIT ?4";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let from = i64::try_from(from_offset).unwrap_or(i64::MAX);
    let mut found = select.query(params![id.as_str(), key, from, limit]).map_err(storage_error)?;
    let mut stream = Vec::new();
    let mut bytes = 0;
    while bytes < PAGE_BYTES
        && let Some(row) = found.next().map_err(storage_error)?
    {
        let offset: i64 = row.get(0).map_err(storage_error)?;
        let value: Option<String> = row.get(1).map_err(storage_error)?;
        bytes += value.as_ref().map_or(0, String::len);
        let value = value.as_deref().map(rows::json).transpose()?;
        stream.push((offset.unsigned_abs(), value));
    }
    Ok(StreamPage { rows: stream, status: rows::status(&word)? })
}

pub(super) fn event(connection: &Connection, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
    let sql = "SELECT value FROM workflow_events WHERE workflow_uuid = ?1 AND key = ?2";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = select.query_row([id.as_str(), key], |row| row.get::<_, String>(0));
    found.optional().map_err(storage_error)?.as_deref().map(rows::json).transpose()
}
