//! `change_network`: changes the network policy of a sandbox. The change is recorded first, so that
//! a process that serves the sandbox from then on uses it, and then applied.

use std::sync::Arc;

use stockade_api::{Caller, ChangeNetwork, Network, Result, Sandbox};
use stockade_core::event::{NetworkChange, Payload};
use stockade_core::{Code, Operation, Problem, SandboxId};
use stockade_durable::{Context, Failure, Step, StepOptions};

use super::record_with_next;
use crate::elsewhere;
use crate::events;
use crate::failure::to_failure;
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::service::Service;
use crate::spec;
use crate::store::sandboxes::SandboxRow;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.change_network";

/// Changes a sandbox's network policy. Connections that it no longer allows are closed.
pub(crate) async fn change_network(
    service: &Service,
    caller: &Caller,
    request: ChangeNetwork,
) -> Result<Sandbox> {
    let owned = service.owned_sandbox(caller, &request.id, Operation::Renew).await?;
    elsewhere::check_network(caller, &request)?;
    changed_network(&owned, &request)?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ChangeNetwork>,
) -> std::result::Result<Sandbox, Failure> {
    let request = &input.request;
    context.hold(inner.lock_sandbox(&request.id).await.map_err(to_failure)?);
    let found = inner.acl(&context, &input.owner, &request.id, Operation::Renew).await?;
    let mut row = (*found).clone();
    let network: Network = context
        .transact("record", StepOptions::default(), async |_: Step| {
            let mut row = (*found).clone();
            let network = changed_network(&row, request).map_err(to_failure)?;
            if row.request.network.as_ref() == Some(&network) {
                return Ok((network, Vec::new()));
            }
            let policy = network.policy().map_err(to_failure)?;
            let secrets = network.secrets.clone();
            let change = row.change_network(network.clone());
            let payload = Payload::NetworkChanged(NetworkChange { policy, secrets });
            Ok((network, vec![change, events::record(&context, &row, payload)]))
        })
        .await?;
    row.request.network = Some(network);
    apply(&inner, &context, &row).await?;
    Ok(row.to_sandbox(None))
}

/// The step that sends a changed network to the egress process, after it was recorded.
pub(super) async fn apply(
    inner: &Inner,
    context: &Context,
    row: &SandboxRow,
) -> std::result::Result<(), Failure> {
    context
        .step_with("tell", record_with_next(), async |_: Step| {
            let applied =
                inner.terminations.run_unless_terminated(&row.id, inner.apply_network(row)).await;
            applied.map_err(to_failure)?.map_err(to_failure)
        })
        .await
}

/// The problem with a change of a network that does not exist.
pub(super) fn without_network(id: &SandboxId) -> Problem {
    let message = format!("the sandbox {id} was created without network access");
    Problem::new(Code::Conflict, message)
        .because("the network of a sandbox is created with the sandbox")
        .remedied_by("stockade create --net policy")
}

fn changed_network(row: &SandboxRow, request: &ChangeNetwork) -> Result<Network> {
    let network = row.request.network.as_ref().ok_or_else(|| without_network(&row.id))?;
    let network = network.with_changes(request)?;
    spec::check_secret_names(&network, &row.request.environment)?;
    Ok(network)
}
