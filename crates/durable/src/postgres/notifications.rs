//! Wake-ups between processes: each commit notifies the other processes on the schema of the
//! channels that it changed (NOTIFY), which wake their own waiters.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::connection::{Connection, Transaction};
use crate::{Channel, Result, Wakes, WorkflowId};

/// The pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_secs(1);

/// A payload has at most 8000 bytes: a commit with more channels wakes all waiters.
const PAYLOAD_BYTES: usize = 7900;

/// What one commit changed.
#[derive(Debug, Serialize, Deserialize)]
struct Notification {
    /// The process that committed: it has woken its own waiters already.
    by: String,
    /// Without a list, everything.
    changed: Option<Vec<Changed>>,
}

/// A channel, as text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Changed {
    Workflow(WorkflowId),
    Stream(WorkflowId),
    Events(WorkflowId),
    Messages(WorkflowId),
    Queues,
    Slots,
    Topic(String),
}

impl From<&Channel> for Changed {
    fn from(channel: &Channel) -> Self {
        match channel {
            Channel::Workflow(id) => Self::Workflow(id.clone()),
            Channel::Stream(id) => Self::Stream(id.clone()),
            Channel::Events(id) => Self::Events(id.clone()),
            Channel::Messages(id) => Self::Messages(id.clone()),
            Channel::Queues => Self::Queues,
            Channel::Slots => Self::Slots,
            Channel::Topic(name) => Self::Topic((*name).to_owned()),
        }
    }
}

/// The name of the notifications of a schema.
fn channel_name(schema: &str) -> String {
    format!("{schema}_wakes")
}

/// Adds a notification to a transaction; it is delivered when that is committed.
pub(super) async fn notify(
    transaction: &Transaction,
    schema: &str,
    sender: &str,
    changed: &[Channel],
) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let by = sender.to_owned();
    let listed = Some(changed.iter().map(Changed::from).collect());
    let mut payload = serde_json::to_string(&Notification { by: by.clone(), changed: listed })?;
    if payload.len() > PAYLOAD_BYTES {
        payload = serde_json::to_string(&Notification { by, changed: None })?;
    }
    let parameters = [channel_name(schema).into(), payload.into()];
    transaction.query("SELECT pg_notify(?1, ?2)::text", &parameters).await.map(drop)
}

/// Listens until `closed`. When the connection was lost, all waiters are woken after it is there
/// again: notifications may have been missed.
pub(super) async fn listen(
    address: &Arc<Address>,
    sender: &str,
    wakes: &Arc<Wakes>,
    closed: &CancellationToken,
) -> Result<()> {
    let mut connection = connect(address, sender, wakes).await?;
    let (address, sender) = (Arc::clone(address), sender.to_owned());
    let (wakes, closed) = (Arc::clone(wakes), closed.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = closed.cancelled() => return,
                () = connection.ended.cancelled() => {}
            }
            connection = loop {
                tokio::select! {
                    () = closed.cancelled() => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
                match connect(&address, &sender, &wakes).await {
                    Ok(connection) => break connection,
                    Err(error) => tracing::warn!(%error, "the database cannot be listened to"),
                }
            };
            wakes.wake_everything();
        }
    });
    Ok(())
}

async fn connect(address: &Address, sender: &str, wakes: &Arc<Wakes>) -> Result<Connection> {
    let (sender, wakes) = (sender.to_owned(), Arc::clone(wakes));
    let receiver = move |message| {
        if let AsyncMessage::Notification(notification) = message {
            receive(notification.payload(), &sender, &wakes);
        }
    };
    let connection = Connection::open(address, Box::new(receiver)).await?;
    connection.batch(&format!("LISTEN {}", channel_name(&address.schema))).await?;
    Ok(connection)
}

fn receive(payload: &str, sender: &str, wakes: &Wakes) {
    let Ok(notification) = serde_json::from_str::<Notification>(payload) else {
        // Of a later version: what it says is unknown.
        return wakes.wake_everything();
    };
    if notification.by == sender {
        return;
    }
    let Some(changed) = notification.changed else { return wakes.wake_everything() };
    for channel in changed {
        match channel {
            Changed::Workflow(id) => wakes.wake(&Channel::Workflow(id)),
            Changed::Stream(id) => wakes.wake(&Channel::Stream(id)),
            Changed::Events(id) => wakes.wake(&Channel::Events(id)),
            Changed::Messages(id) => wakes.wake(&Channel::Messages(id)),
            Changed::Queues => wakes.wake(&Channel::Queues),
            Changed::Slots => wakes.wake(&Channel::Slots),
            Changed::Topic(name) => wakes.wake_topic(&name),
        }
    }
}
