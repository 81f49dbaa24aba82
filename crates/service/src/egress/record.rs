//! What is recorded of traffic: each thing that is refused to a sandbox, once, as an event. A task
//! writes it, so that traffic never waits for the disk; what cannot be written is told from memory.

use std::sync::Arc;

use stockade_core::event::{EventId, Kind};
use stockade_core::network::{MAX_REFUSED, Refused};
use stockade_core::{ExecutionId, OwnerId, Problem, SandboxId};
use stockade_durable::{Statement, Store};
use tokio::sync::mpsc;

use crate::store::events::{self, NewEvent};
use crate::store::json;

/// How many wait to be written.
const WAITING: usize = 1024;
/// How many are written at once.
const AT_ONCE: usize = 64;

/// Something that was refused for the first time.
#[derive(Debug)]
pub(super) struct First {
    pub(super) sandbox: SandboxId,
    pub(super) owner: OwnerId,
    pub(super) execution: Option<ExecutionId>,
    pub(super) at_ms: i64,
    pub(super) refused: Refused,
}

impl First {
    /// The statement that records it, unless it is recorded, or there is as much of that sandbox as
    /// there may be.
    fn insert(&self) -> Statement {
        let kind = Kind::NetworkRefused;
        let Refused { host, port, reason, .. } = &self.refused;
        let what = blake3::hash(json(&(host, port, reason)).as_bytes()).to_hex();
        let new = NewEvent {
            id: EventId::of(&format!("network:{}:{}", self.sandbox, &what[..32]), kind),
            kind,
            sandbox: &self.sandbox,
            owner: &self.owner,
            execution: self.execution.as_ref(),
            at: self.at_ms,
            data: json(&self.refused),
        };
        events::insert_up_to(new, MAX_REFUSED)
    }
}

/// Writes what comes, until nothing can come any more.
pub(super) fn spawn(store: Arc<dyn Store>) -> mpsc::Sender<First> {
    let (sender, mut receiver) = mpsc::channel::<First>(WAITING);
    tokio::spawn(async move {
        let mut first = Vec::with_capacity(AT_ONCE);
        while receiver.recv_many(&mut first, AT_ONCE).await > 0 {
            let statements = first.drain(..).map(|first| first.insert()).collect();
            // The ledger has it still; a full disk is told by whatever else is written.
            let _ = store.execute(statements).await;
        }
    });
    sender
}

/// What is recorded of a sandbox, in the order in which it came.
pub(super) async fn read(store: &dyn Store, id: &SandboxId) -> Result<Vec<Refused>, Problem> {
    events::refusals(store, id, MAX_REFUSED).await
}
