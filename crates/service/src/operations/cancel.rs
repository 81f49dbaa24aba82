//! `cancel_operation`.

use stockade_api::{Caller, OperationId, OperationInfo, OperationStatus};
use stockade_core::{Code, Problem};
use stockade_durable::WorkflowId;

use super::{endpoint, execute, files, output, session, tool};
use crate::failure::store_problem;
use crate::operation::info;
use crate::service::Service;

/// The operations that can be cancelled: those that do not change the sandbox itself.
const CANCELLABLE: [&str; 7] = [
    execute::NAME,
    output::NAME,
    session::NAME,
    tool::NAME,
    endpoint::NAME,
    files::NAME,
    files::SEND,
];

/// Cancels an operation of the caller, unless it has ended.
pub(crate) async fn cancel(
    service: &Service,
    caller: &Caller,
    id: &OperationId,
) -> Result<OperationInfo, Problem> {
    let known = info(&service.engine, caller, id).await?;
    if !matches!(known.status, OperationStatus::Waiting | OperationStatus::Running) {
        return Ok(known);
    }
    if !CANCELLABLE.contains(&known.name.as_str()) {
        let message = format!("the operation `{}` cannot be cancelled", known.name);
        return Err(Problem::new(Code::InvalidState, message)
            .because("it would leave the sandbox in an undefined state")
            .remedied_by("wait until it has ended, then kill the sandbox"));
    }
    let workflow = WorkflowId::new(id.0.clone()).map_err(|error| store_problem(error.into()))?;
    service.engine.cancel(&workflow).await.map_err(store_problem)?;
    drop(service.inner.handoffs.take(&workflow));
    info(&service.engine, caller, id).await
}
