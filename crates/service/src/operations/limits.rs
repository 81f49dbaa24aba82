//! `change_limits`: changes the limits of a sandbox and those of its network. What can refuse comes
//! first: the runtime changes the limits of running processes, then the change is recorded, and then
//! sent to the egress process.

use std::sync::Arc;

use stockade_api::{Caller, ChangeLimits, Network, Result, Sandbox};
use stockade_core::event::{NetworkChange, Payload};
use stockade_core::sandbox::Limits;
use stockade_core::{Code, Operation, Problem, State};
use stockade_durable::{Context, Failure, Step, StepOptions};
use stockade_runtime::Error;

use super::network::{self, without_network};
use super::record_with_next;
use crate::events;
use crate::failure::{runtime_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::service::Service;
use crate::store::sandboxes::SandboxRow;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.change_limits";

/// Changes limits.
pub(crate) async fn change(
    service: &Service,
    caller: &Caller,
    request: ChangeLimits,
) -> Result<Sandbox> {
    request.check()?;
    let owned = service.owned_sandbox(caller, &request.id, Operation::Renew).await?;
    changed_network(&owned, &request)?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ChangeLimits>,
) -> std::result::Result<Sandbox, Failure> {
    let request = &input.request;
    context.hold(inner.lock_sandbox(&request.id).await.map_err(to_failure)?);
    let found = inner.acl(&context, &input.owner, &request.id, Operation::Renew).await?;
    let mut row = (*found).clone();
    changed_network(&row, request).map_err(to_failure)?;
    context
        .step_with("limits", record_with_next(), async |_: Step| {
            let changed = change_in_runtime(&inner, &row, request);
            let changed = inner.terminations.run_unless_terminated(&request.id, changed).await;
            changed.map_err(to_failure)?.map_err(to_failure)
        })
        .await?;
    let (limits, network): (Limits, Option<Network>) = context
        .transact("record", StepOptions::default(), async |_: Step| {
            let mut row = (*found).clone();
            let limits = row.request.limits.with(&request.limits);
            let network = changed_network(&row, request).map_err(to_failure)?;
            let mut statements = vec![row.change_limits(limits, network.clone())];
            if !request.limits.is_empty() {
                let payload = Payload::LimitsChanged(request.limits);
                statements.push(events::record(&context, &row, payload));
            }
            if let Some(network) = network.as_ref().filter(|_| !request.network_limits.is_none()) {
                let policy = network.policy().map_err(to_failure)?;
                let change = NetworkChange { policy, secrets: network.secrets.clone() };
                statements.push(events::record(&context, &row, Payload::NetworkChanged(change)));
            }
            Ok(((limits, network), statements))
        })
        .await?;
    (row.request.limits, row.request.network) = (limits, network);
    if !request.network_limits.is_none() {
        network::apply(&inner, &context, &row).await?;
    }
    Ok(row.to_sandbox(None))
}

/// Changes the limits of processes that exist; others are started with those of the record.
async fn change_in_runtime(inner: &Inner, row: &SandboxRow, request: &ChangeLimits) -> Result<()> {
    if request.limits.is_empty() || !matches!(row.state, State::Running | State::Paused) {
        return Ok(());
    }
    let runtime = inner.runtime(&row.runtime)?;
    let changed = inner.with_deadline(runtime.change_limits(&row.id, &request.limits)).await;
    changed.map_err(|error| match error {
        Error::Limit { limit, reason, remedy } => {
            let message = format!("the limit `{limit}` cannot be changed, so nothing was changed");
            Problem::new(Code::LimitUnavailable, message).because(reason).remedied_by(remedy)
        }
        error => runtime_problem(&error),
    })
}

/// The network with the new limits on traffic.
fn changed_network(row: &SandboxRow, request: &ChangeLimits) -> Result<Option<Network>> {
    if request.network_limits.is_none() {
        return Ok(row.request.network.clone());
    }
    let mut network = row.request.network.clone().ok_or_else(|| without_network(&row.id))?;
    network.limits = network.limits.with(request.network_limits);
    network.policy()?;
    Ok(Some(network))
}
