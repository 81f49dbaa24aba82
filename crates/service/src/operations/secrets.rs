//! `set_secrets`: passes the values of secrets to the egress process, which has the only copy. No
//! workflow is started, so that no value is recorded; nothing is repeated after a crash, and the
//! caller gives the values again. References to stored secrets are recorded, and come back by themselves.

use stockade_api::{Caller, GetSandbox, Result, Sandbox, SecretValue, SetSecrets};
use stockade_core::{Code, Operation, Problem, State};
use stockade_egress_control::Values;

use super::query;
use crate::delivery::{Delivery, Principal};
use crate::failure::{invalid, store_problem};
use crate::service::Service;

/// Gives the values.
pub(crate) async fn set(
    service: &Service,
    caller: &Caller,
    request: SetSecrets,
) -> Result<Sandbox> {
    let SetSecrets { id, values, stored } = request;
    let inner = &service.inner;
    let owned = service.owned_sandbox(caller, &id, Operation::Renew).await?;
    if values.is_empty() && stored.is_empty() {
        return Err(invalid("`values` names no secret"));
    }
    let bindings = owned.bindings()?;
    for name in values.keys().chain(stored.iter().map(|mapping| &mapping.env)) {
        if !bindings.iter().any(|binding| binding.credential == *name) {
            let message = format!("the sandbox {id} has no secret {name}");
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("stockade secret set {id} {name}@HOST")));
        }
    }
    if !matches!(owned.state, State::Running | State::Paused) {
        let message = format!("the sandbox {id} is {}, and has no egress process", owned.state);
        return Err(Problem::new(Code::InvalidState, message)
            .because("values are in the memory of the egress process only")
            .remedied_by(format!("stockade start {id}")));
    }
    // From here on no other operation changes it.
    let _driver = inner.lock_sandbox(&id).await?;
    let owned = service.owned_sandbox(caller, &id, Operation::Renew).await?;
    inner.ensure_network(&owned).await?;
    let mut given = Values::default();
    let explicit: Vec<_> = values.keys().cloned().collect();
    for (name, SecretValue(value)) in values {
        given.add(name, value);
    }
    let principal =
        Principal { caller: caller.owner.clone(), flow_owner: caller.flow_owner.clone() };
    let operation = uuid::Uuid::now_v7().simple().to_string();
    let delivery = Delivery { inner, principal: &principal, sandbox: &id, operation: &operation };
    for (name, value) in delivery.variables(&stored).await? {
        given.add(name, value);
    }
    let network = owned.request.network.clone().unwrap_or_default().with_stored(&stored, &explicit);
    network.check_secrets()?;
    inner.egress.give_values(&id, given).await?;
    if Some(&network) != owned.request.network.as_ref() {
        // The reference is recorded, so that the value comes back with a new egress process.
        let mut row = (*owned).clone();
        row.request.network = Some(network.clone());
        let statements = vec![row.change_network(network)];
        inner.store.execute(statements).await.map_err(store_problem)?;
    }
    inner.egress.deliver(&id, inner.options.deadline).await?;
    query::get(service, caller, GetSandbox { id, metrics: false }).await
}
