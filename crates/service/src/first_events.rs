//! Events that are recorded when they happen for the first time: each destination that is denied to a
//! sandbox, each host to which it sends the placeholder of another host's secret, and each different
//! request to its ssh agent. A task writes them, so that nothing inside waits for the disk; records of
//! traffic that cannot be written are reported from memory.

use std::sync::Arc;

use stockade_core::event::{EventId, MAX_SSH_AGENT_USES, Payload};
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

/// An event that may have happened for the first time.
#[derive(Debug)]
pub(crate) struct FirstEvent {
    pub(crate) sandbox: SandboxId,
    pub(crate) unique_name: String,
    pub(crate) owner: OwnerId,
    pub(crate) execution: Option<ExecutionId>,
    pub(crate) at_ms: i64,
    pub(crate) payload: Payload,
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
            Payload::SshAgentUsed(own) => (json(own), json(own), MAX_SSH_AGENT_USES),
            // No other events are recorded here.
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

/// Writes the received records until the channel is closed, or nothing else uses the store: it can be
/// opened again at once when its service has ended.
pub(crate) fn spawn(store: &Arc<dyn Store>) -> mpsc::Sender<FirstEvent> {
    let (sender, mut receiver) = mpsc::channel::<FirstEvent>(CHANNEL_CAPACITY);
    let store = Arc::downgrade(store);
    tokio::spawn(async move {
        let mut first = Vec::with_capacity(BATCH_SIZE);
        while receiver.recv_many(&mut first, BATCH_SIZE).await > 0 {
            let statements = first.drain(..).filter_map(|first| first.insert()).collect();
            let Some(store) = store.upgrade() else { return };
            // The ledger still has it; other writes report a full disk.
            let _ = store.execute(statements).await;
        }
    });
    sender
}

/// The records of a sandbox, in the order in which they were received.
pub(crate) async fn read(
    store: &dyn Store,
    id: &SandboxId,
) -> Result<Vec<DeniedConnection>, Problem> {
    events::denied_connections(store, id, MAX_DENIED).await
}
