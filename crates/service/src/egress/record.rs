//! The record of traffic: each destination that is denied to a sandbox, and each host to which it
//! sends the placeholder of another host's secret, is recorded once, as an event. A task writes it, so traffic never waits for the disk; records that cannot be written are
//! reported from memory.

use std::sync::Arc;

use stockade_core::event::{EventId, Payload};
use stockade_core::network::{DeniedConnection, MAX_DENIED, MAX_MISDIRECTED, Misdirection};
use stockade_core::{ExecutionId, OwnerId, Problem, SandboxId};
use stockade_durable::{Statement, Store};
use tokio::sync::mpsc;

use crate::store::events::{self, NewEvent};
use crate::store::json;

/// How many records may wait to be written.
const CHANNEL_CAPACITY: usize = 1024;
/// How many are written in one transaction.
const BATCH_SIZE: usize = 64;

/// An event of the traffic that happened for the first time.
#[derive(Debug)]
pub(super) struct FirstEvent {
    pub(super) sandbox: SandboxId,
    pub(super) unique_name: String,
    pub(super) owner: OwnerId,
    pub(super) execution: Option<ExecutionId>,
    pub(super) at_ms: i64,
    pub(super) payload: Payload,
}

impl FirstEvent {
    /// The statement that records it, unless it is recorded, or the sandbox has the maximal number
    /// of records.
    fn insert(&self) -> Option<Statement> {
        let (key, data, most) = match &self.payload {
            Payload::NetworkRefused(denied) => {
                let DeniedConnection { host, port, reason, .. } = denied;
                (json(&(host, port, reason)), json(denied), MAX_DENIED)
            }
            Payload::SecretMisdirected(own) => {
                let Misdirection { secret, host, port, blocked, .. } = own;
                (json(&(secret, host, port, blocked)), json(own), MAX_MISDIRECTED)
            }
            // The traffic has no other events.
            _ => return None,
        };
        let kind = self.payload.kind();
        let what = blake3::hash(key.as_bytes()).to_hex();
        let new = NewEvent {
            id: EventId::derive(&format!("network:{}:{}", self.unique_name, &what[..32]), kind),
            kind,
            sandbox: &self.sandbox,
            owner: &self.owner,
            execution: self.execution.as_ref(),
            at: self.at_ms,
            data,
        };
        Some(events::insert_up_to(new, most))
    }
}

/// Writes the received records until the channel is closed.
pub(super) fn spawn(store: Arc<dyn Store>) -> mpsc::Sender<FirstEvent> {
    let (sender, mut receiver) = mpsc::channel::<FirstEvent>(CHANNEL_CAPACITY);
    tokio::spawn(async move {
        let mut first = Vec::with_capacity(BATCH_SIZE);
        while receiver.recv_many(&mut first, BATCH_SIZE).await > 0 {
            let statements = first.drain(..).filter_map(|first| first.insert()).collect();
            // The ledger still has it; other writes report a full disk.
            let _ = store.execute(statements).await;
        }
    });
    sender
}

/// The records of a sandbox, in the order in which they were received.
pub(super) async fn read(
    store: &dyn Store,
    id: &SandboxId,
) -> Result<Vec<DeniedConnection>, Problem> {
    events::denied_connections(store, id, MAX_DENIED).await
}
