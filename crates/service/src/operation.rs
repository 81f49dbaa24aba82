//! How an operation becomes a recorded workflow, and how its record is reported.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stockade_api::{Caller, OperationId, OperationInfo, OperationStatus};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Engine, Handle, StartOptions, Status, WorkflowId, WorkflowInfo};

use crate::failure::{invalid, store_problem, to_problem};
use crate::store::audit;

/// The input of every workflow of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Input<T> {
    /// The requesting owner. The owner check inside the workflow uses it.
    pub(crate) owner: OwnerId,
    /// The request.
    pub(crate) request: T,
}

/// The maximal length of an idempotency key.
const KEY_LENGTH: usize = 200;

/// The workflow id of an operation: derived from the caller's idempotency key, else random. The
/// keys of two owners never collide.
pub(crate) fn workflow_id(caller: &Caller) -> Result<WorkflowId, Problem> {
    let text = match &caller.idempotency_key {
        None => uuid::Uuid::now_v7().simple().to_string(),
        Some(key) if key.is_empty() || key.len() > KEY_LENGTH => {
            return Err(invalid(format!("an idempotency key must have 1 to {KEY_LENGTH} bytes")));
        }
        Some(key) => {
            let mut hasher = blake3::Hasher::new();
            hasher.update(caller.owner.as_str().as_bytes()).update(&[0]).update(key.as_bytes());
            format!("key-{}", &hasher.finalize().to_hex()[..40])
        }
    };
    WorkflowId::new(text).map_err(|error| store_problem(error.into()))
}

/// Whether an operation with the caller's idempotency key was started before.
pub(crate) async fn is_known(engine: &Engine, caller: &Caller) -> Result<bool, Problem> {
    if caller.idempotency_key.is_none() {
        return Ok(false);
    }
    let info = engine.info(&workflow_id(caller)?).await;
    info.map(|info| info.is_some()).map_err(store_problem)
}

/// Starts an operation, or finds the one with the same key.
pub(crate) async fn start<T: Serialize + Sync>(
    engine: &Engine,
    name: &'static str,
    caller: &Caller,
    request: &T,
    options: StartOptions,
) -> Result<Handle, Problem> {
    let input = Input { owner: caller.owner.clone(), request };
    let mut options = StartOptions { owner: Some(caller.owner.as_str().to_owned()), ..options };
    let host = &engine.executor().id;
    let record = caller.start_record.as_deref().map(|record| audit::insert(record, host));
    options.statements.extend(record);
    engine.start(name, &input, options).await.map_err(store_problem)
}

/// Runs an operation to its end: starts it, or finds the one with the same key, and waits for it.
pub(crate) async fn run<T: Serialize + Sync, O: DeserializeOwned>(
    engine: &Engine,
    name: &'static str,
    caller: &Caller,
    request: &T,
) -> Result<O, Problem> {
    let options = StartOptions { id: Some(workflow_id(caller)?), ..StartOptions::default() };
    let handle = start(engine, name, caller, request, options).await?;
    handle.get_result().await.map_err(store_problem)
}

/// The public form of a recorded operation, for its owner only.
pub(crate) async fn info(
    engine: &Engine,
    caller: &Caller,
    id: &OperationId,
) -> Result<OperationInfo, Problem> {
    let unknown = || Problem::new(Code::NotFound, format!("there is no operation {id}"));
    let workflow = WorkflowId::new(id.0.clone()).map_err(|_| unknown())?;
    let info = engine.info(&workflow).await.map_err(store_problem)?;
    let own = info.filter(|info| info.owner.as_deref() == Some(caller.owner.as_str()));
    Ok(to_info(own.ok_or_else(unknown)?))
}

pub(crate) fn to_info(info: WorkflowInfo) -> OperationInfo {
    OperationInfo {
        workflow_id: OperationId(info.id.as_str().to_owned()),
        status: match info.status {
            Status::Enqueued | Status::Delayed => OperationStatus::Waiting,
            Status::Pending => OperationStatus::Running,
            Status::Success => OperationStatus::Succeeded,
            Status::Error | Status::MaxRecoveryAttemptsExceeded => OperationStatus::Failed,
            Status::Cancelled => OperationStatus::Cancelled,
        },
        name: info.name,
        result: info.output,
        error: info.failure.as_ref().map(to_problem),
    }
}
