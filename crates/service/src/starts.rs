//! The audit records of operations that have started, and of what the server does by itself, for the part
//! that stores audit records.

use stockade_api::{Result, StartRecord};
use stockade_audit::{Actor, Decision, Entry, Phase};
use stockade_core::Door;
use stockade_core::event::Reason;
use stockade_durable::Statement;

use crate::failure::store_problem;
use crate::service::Service;
use crate::store::sandboxes::SandboxRow;
use crate::store::{audit, json};

/// The statement that records what the server does to a sandbox without a request.
pub(crate) fn by_server(row: &SandboxRow, operation: &str, reason: Reason) -> Statement {
    let actor = Actor {
        owner: Some(row.owner.clone()),
        uid: None,
        key_id: None,
        address: None,
        door: Door::Server,
        request_id: None,
    };
    let entry = Entry::new(operation, actor)
        .with("id", row.id.as_str())
        .with("because", reason.as_str())
        .with("bundle", row.bundle.as_deref());
    let entry = Entry { phase: Phase::Ended, decision: Decision::Allowed, ..entry };
    audit::insert(&StartRecord { text: json(&entry), id: entry.id })
}

impl Service {
    /// The records of operations that have started, after that number, the oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start_records(&self, after: i64, limit: i64) -> Result<Vec<(i64, StartRecord)>> {
        audit::list(&*self.inner.store, after, limit).await
    }

    /// Removes those records up to that number.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn remove_start_records(&self, up_to: i64) -> Result<()> {
        self.inner.store.execute(vec![audit::remove(up_to)]).await.map_err(store_problem)
    }
}
