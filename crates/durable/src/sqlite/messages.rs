//! Messages between workflows.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::rows::storage_error;
use crate::sync::now_ms;
use crate::{Channel, Error, Message, ReceivedMessage, Result, WorkflowId};

/// Sends a message; one with an existing id is dropped.
pub(super) fn send(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    message: &Message,
) -> Result<()> {
    let destination = &message.destination;
    let sql = "SELECT 1 FROM workflow_status WHERE workflow_uuid = ?1";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    if !select.exists([destination.as_str()]).map_err(storage_error)? {
        return Err(Error::NotFound { id: destination.clone() });
    }
    let sql = "INSERT INTO notifications (message_uuid, destination_uuid, topic, message, \
               created_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (message_uuid) DO NOTHING";
    let mut insert = connection.prepare_cached(sql).map_err(storage_error)?;
    let row = params![message.id, destination.as_str(), message.topic, message.body, now_ms()];
    insert.execute(row).map_err(storage_error)?;
    wakes.push(Channel::Messages(destination.clone()));
    Ok(())
}

/// The oldest unreceived message on a topic.
pub(super) fn oldest(
    connection: &Connection,
    id: &WorkflowId,
    topic: &str,
) -> Result<Option<ReceivedMessage>> {
    let sql = "SELECT message_uuid, message FROM notifications WHERE destination_uuid = ?1 \
               AND topic = ?2 AND consumed = 0 ORDER BY number LIMIT 1";
    let mut select = connection.prepare_cached(sql).map_err(storage_error)?;
    let found = select.query_row([id.as_str(), topic], |row| {
        Ok(ReceivedMessage { id: row.get(0)?, body: row.get(1)? })
    });
    found.optional().map_err(storage_error)
}

/// Marks a message as received. The row stays, so that the message is not sent twice.
pub(super) fn consume(connection: &Connection, message: &str) -> Result<()> {
    let sql = "UPDATE notifications SET consumed = 1 WHERE message_uuid = ?1";
    let mut update = connection.prepare_cached(sql).map_err(storage_error)?;
    update.execute([message]).map_err(storage_error)?;
    Ok(())
}
