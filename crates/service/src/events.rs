//! The events of operations. Each operation records an event once, however often its workflow is
//! executed.

use stockade_core::event::{EventId, Payload};
use stockade_durable::{Context, Statement};

use crate::clock::now_ms;
use crate::store::events::{NewEvent, insert};
use crate::store::json;
use crate::store::sandboxes::SandboxRow;

/// The statement that records an event of the operation of a workflow.
pub(crate) fn record(context: &Context, row: &SandboxRow, payload: Payload) -> Statement {
    statement(context.id().as_str(), row, payload)
}

/// The statement that records an event of an operation.
pub(crate) fn statement(operation: &str, row: &SandboxRow, payload: Payload) -> Statement {
    let kind = payload.kind();
    let data = serde_json::to_value(&payload).unwrap_or_default();
    insert(NewEvent {
        id: EventId::derive(operation, kind),
        kind,
        sandbox: &row.id,
        owner: &row.owner,
        execution: row.execution_id.as_ref(),
        at: now_ms(),
        data: json(&data["data"]),
    })
}
