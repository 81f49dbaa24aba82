//! The stream of events: how one is recorded, once.

use stockade_core::event::{EventId, Payload};
use stockade_durable::{Context, Statement};

use crate::clock::now_ms;
use crate::row::{SandboxRow, json};

/// What those who follow the events are woken by.
pub(crate) const TOPIC: &str = "sandbox-events";

/// The statement that records an event of the operation that a workflow is. However often the
/// workflow runs, there is one event.
pub(crate) fn record(context: &Context, row: &SandboxRow, payload: Payload) -> Statement {
    of(context.id().as_str(), row, payload)
}

/// The statement that records an event of an operation.
pub(crate) fn of(operation: &str, row: &SandboxRow, payload: Payload) -> Statement {
    let kind = payload.kind();
    let data = serde_json::to_value(&payload).unwrap_or_default();
    Statement::new(
        "INSERT INTO sandbox_events (id, type, sandbox_id, owner_id, execution_id, at, data) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
        vec![
            EventId::of(operation, kind).as_str().into(),
            kind.as_str().into(),
            row.id.as_str().into(),
            row.owner.as_str().into(),
            row.execution_id.as_ref().map(|id| id.as_str().to_owned()).into(),
            now_ms().into(),
            json(&data["data"]).into(),
        ],
    )
    .touching(TOPIC)
}
