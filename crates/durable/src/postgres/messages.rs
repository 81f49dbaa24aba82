//! Messages between workflows.

use super::connection::Transaction;
use super::readers::Readers;
use crate::sync::now_ms;
use crate::{Channel, Error, Message, ReceivedMessage, Result, WorkflowId};

/// Sends a message; one with an existing id is dropped.
pub(super) async fn send(transaction: &Transaction, message: &Message) -> Result<()> {
    let destination = &message.destination;
    let sql = "SELECT 1 FROM workflow_status WHERE workflow_uuid = ?1 FOR KEY SHARE";
    if transaction.first(sql, &[destination.as_str().into()]).await?.is_none() {
        return Err(Error::NotFound { id: destination.clone() });
    }
    let sql = "INSERT INTO notifications (message_uuid, destination_uuid, topic, message, \
               created_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (message_uuid) DO NOTHING";
    let parameters = [
        message.id.as_str().into(),
        destination.as_str().into(),
        message.topic.as_str().into(),
        message.body.as_str().into(),
        now_ms().into(),
    ];
    transaction.execute(sql, &parameters).await?;
    transaction.notify(Channel::Messages(destination.clone()));
    Ok(())
}

/// The oldest unreceived message on a topic.
pub(super) async fn oldest(
    readers: &Readers,
    id: &WorkflowId,
    topic: &str,
) -> Result<Option<ReceivedMessage>> {
    let sql = "SELECT message_uuid, message FROM notifications WHERE destination_uuid = ?1 \
               AND topic = ?2 AND consumed = 0 ORDER BY number LIMIT 1";
    let found = readers.first(sql, &[id.as_str().into(), topic.into()]).await?;
    let message = |row: crate::Row| {
        Ok(ReceivedMessage { id: row.text(0)?.to_owned(), body: row.text(1)?.to_owned() })
    };
    found.map(message).transpose()
}

/// Marks a message as received. The row stays, so that the message is not sent twice.
pub(super) async fn consume(transaction: &Transaction, message: &str) -> Result<()> {
    let sql = "UPDATE notifications SET consumed = 1 WHERE message_uuid = ?1";
    transaction.execute(sql, &[message.into()]).await.map(drop)
}
