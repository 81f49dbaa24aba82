//! `change_injections`: credentials that the egress process puts into requests, and their bindings.
//! Values go to the process, which has the only copy; no workflow is started, so that none is
//! recorded. Bindings are recorded once the process has accepted them, so that a refusal changes
//! nothing.

use stockade_api::{
    Caller, ChangeInjections, GetSandbox, Network, Result, Sandbox, SecretValue, credential_name,
};
use stockade_core::event::{NetworkChange, Payload};
use stockade_core::{Code, Operation, Problem, State};
use stockade_egress_control::Values;

use super::query;
use crate::events;
use crate::failure::store_problem;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::store::audit;

/// Changes them.
pub(crate) async fn change(
    service: &Service,
    caller: &Caller,
    mut request: ChangeInjections,
) -> Result<Sandbox> {
    let id = request.id.clone();
    let inner = &service.inner;
    changed(&service.owned_sandbox(caller, &id, Operation::Renew).await?, &request)?;
    // From here on no other operation changes it.
    let _driver = inner.lock_sandbox(&id).await?;
    let owned = service.owned_sandbox(caller, &id, Operation::Renew).await?;
    let network = changed(&owned, &request)?;
    if !matches!(owned.state, State::Running | State::Paused) {
        let message = format!("the sandbox {id} is {}, and has no egress process", owned.state);
        return Err(Problem::new(Code::InvalidState, message)
            .because("values are in the memory of the egress process only")
            .remedied_by(format!("stockade start {id}")));
    }
    let mut values = Values::default();
    let new = std::mem::take(&mut request.add_credentials);
    let replaced = std::mem::take(&mut request.replace_credentials);
    for (name, SecretValue(value)) in new.into_iter().chain(replaced) {
        values.add(credential_name(&name), value);
    }
    inner.ensure_network(&owned).await?;
    let mut row = (*owned).clone();
    row.request.network = Some(network.clone());
    let (policy, bindings) = (network.policy()?, row.bindings()?);
    let accepted = inner.egress.change_with(&id, policy.clone(), bindings, values).await;
    let recorded = match accepted {
        Ok(()) => {
            let payload =
                Payload::NetworkChanged(NetworkChange { policy, secrets: network.secrets.clone() });
            let operation = uuid::Uuid::now_v7().simple().to_string();
            let mut statements = vec![row.change_network(network)];
            statements.push(events::statement(&operation, &owned, payload));
            let record = caller.start_record.as_deref();
            statements.extend(record.map(|record| audit::insert(record, inner.host())));
            inner.store.execute(statements).await.map(drop).map_err(store_problem)
        }
        Err(problem) => Err(problem),
    };
    if let Err(problem) = recorded {
        // The process gets what is recorded again; values that it had stay.
        let _ = inner.apply_network(&owned).await;
        return Err(problem);
    }
    inner.egress.deliver(&id, inner.options.deadline).await?;
    query::get(service, caller, GetSandbox { id, metrics: false }).await
}

/// The network after the change.
fn changed(owned: &OwnedSandbox, request: &ChangeInjections) -> Result<Network> {
    let network = owned.request.network.as_ref().ok_or_else(|| {
        let message = format!("the sandbox {} was created without network access", owned.id);
        Problem::new(Code::Conflict, message)
            .because("the network of a sandbox is created with the sandbox")
            .remedied_by("stockade create --net policy")
    })?;
    let own = network.injections.clone();
    let injections = match (own, request.clear) {
        (None, true) => return Err(none(owned)),
        (Some(_), true) => None,
        (own, false) => Some(own.unwrap_or_default().changed(request)?),
    };
    let network = Network { injections, ..network.clone() };
    network.check_secrets()?;
    Ok(network)
}

fn none(owned: &OwnedSandbox) -> Problem {
    let message = format!("the sandbox {} has no credentials for its requests", owned.id);
    Problem::new(Code::NotFound, message)
}
