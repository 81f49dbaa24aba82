//! The interface for the network policy of a sandbox (`egress`), and the policy in the form of
//! OpenSandbox.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::{ChangeNetwork, Network, Sandbox};
use stockade_core::access::Effect;
use stockade_core::network::{AllowedHost, Target, is_host_loopback};

use super::request::JsonBody;
use super::target::{self, EGRESS_TOKEN, PortState};
use super::unavailable;
use crate::failure::{Failure, invalid, unsupported};
use crate::openapi::{Api, Security, get};

/// A network policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    #[serde(default)]
    default_action: Option<Action>,
    #[serde(default)]
    egress: Option<Vec<Rule>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    action: Action,
    target: String,
}

/// A target is a name. Addresses, and the loopback of this machine, are not for clients of other
/// machines to open.
fn host(target: &str) -> Result<AllowedHost, Failure> {
    match target.parse::<Target>() {
        Ok(Target::Exact(name)) if !is_host_loopback(&name) => {}
        Ok(Target::Subdomains(_)) => {}
        Ok(_) => return Err(unsupported(format_args!("the target {target:?}, which is no name"))),
        Err(error) => return Err(invalid(format!("the target {target:?} is invalid: {error}"))),
    }
    target.parse().map_err(|error| invalid(format!("the target {target:?} is invalid: {error}")))
}

/// The network of a new sandbox with that policy.
pub(super) fn network(policy: Policy) -> Result<Network, Failure> {
    let mut network = Network::default();
    if policy.default_action == Some(Action::Allow) {
        network.default = Effect::Allow;
    }
    for rule in policy.egress.unwrap_or_default() {
        match rule.action {
            Action::Allow => network.allow.push(host(&rule.target)?),
            Action::Deny => return Err(unsupported("a rule that denies a target")),
        }
    }
    Ok(network)
}

/// The paths of the interface.
pub(super) fn routes() -> Api<PortState> {
    Api::new(Security::Token(EGRESS_TOKEN))
        .route(
            "/policy",
            get(show)
                .patch(change)
                .body::<Vec<Rule>>(&json!([{ "action": "allow", "target": "example.com" }]))
                .delete(remove)
                .body::<Vec<String>>(&json!(["example.com"])),
        )
        .route("/health", get(health))
        .merge(unavailable::egress())
        .fallback(unavailable::unknown)
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

/// The policy of a sandbox, and how it is enforced.
pub(super) fn status(sandbox: &Sandbox) -> Json<Value> {
    let rules = sandbox.network.as_ref().map(|network| &network.policy);
    let egress: Vec<_> = rules
        .map(|policy| policy.rules())
        .unwrap_or_default()
        .iter()
        .map(|rule| json!({ "action": rule.action, "target": rule.target.to_string() }))
        .collect();
    let default = rules.map_or(Effect::Deny, |policy| policy.default_effect());
    let mode = if default == Effect::Deny { "deny_all" } else { "allow_all" };
    Json(json!({
        "status": "ok",
        "mode": mode,
        "enforcementMode": "proxy",
        "policy": { "defaultAction": default, "egress": egress },
    }))
}

/// The change that adds rules; the first of several for one target counts.
pub(super) fn additions(sandbox: &Sandbox, rules: &[Rule]) -> Result<ChangeNetwork, Failure> {
    let mut request = ChangeNetwork::new(sandbox.id.clone());
    let mut seen: Vec<&str> = Vec::new();
    for rule in rules {
        if seen.contains(&rule.target.as_str()) {
            continue;
        }
        seen.push(&rule.target);
        match rule.action {
            Action::Allow => request.allow.push(host(&rule.target)?),
            Action::Deny if is_allowed(sandbox, &rule.target) => {
                request.refuse.push(host(&rule.target)?);
            }
            Action::Deny => return Err(unsupported("a rule that denies a target")),
        }
    }
    Ok(request)
}

/// The change that removes the rules for targets.
pub(super) fn removals(sandbox: &Sandbox, targets: &[String]) -> Result<ChangeNetwork, Failure> {
    let mut request = ChangeNetwork::new(sandbox.id.clone());
    for name in targets.iter().filter(|name| is_allowed(sandbox, name)) {
        request.refuse.push(host(name)?);
    }
    Ok(request)
}

/// The change after which a sandbox has exactly this policy.
pub(super) fn replacement(sandbox: &Sandbox, policy: Policy) -> Result<ChangeNetwork, Failure> {
    let wanted = network(policy)?;
    let mut request = ChangeNetwork::new(sandbox.id.clone());
    let Some(current) = sandbox.network.as_ref().map(|network| &network.policy) else {
        // The change itself is refused then, with the reason.
        request.allow = wanted.allow;
        return Ok(request);
    };
    if current.default_effect() != wanted.default {
        return Err(unsupported("another `defaultAction` than that of the sandbox"));
    }
    for rule in current.rules() {
        let kept = wanted.allow.iter().any(|host| *host.target() == rule.target);
        if !kept {
            request.refuse.push(host(&rule.target.to_string())?);
        }
    }
    request.allow = wanted.allow;
    Ok(request)
}

async fn show(Extension(target): Extension<target::Target>) -> Json<Value> {
    status(&target.sandbox)
}

async fn change(
    State(state): State<PortState>,
    Extension(target): Extension<target::Target>,
    JsonBody(rules): JsonBody<Vec<Rule>>,
) -> Result<Json<Value>, Failure> {
    let request = additions(&target.sandbox, &rules)?;
    Ok(status(&state.sandboxes.change_network(&target.caller, request).await?))
}

async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<target::Target>,
    JsonBody(targets): JsonBody<Vec<String>>,
) -> Result<Json<Value>, Failure> {
    let request = removals(&target.sandbox, &targets)?;
    Ok(status(&state.sandboxes.change_network(&target.caller, request).await?))
}

/// Whether a rule allows exactly this target, and the default denies it.
fn is_allowed(sandbox: &Sandbox, target: &str) -> bool {
    sandbox.network.as_ref().is_some_and(|network| {
        let mut rules = network.policy.rules().iter();
        network.policy.default_effect() == Effect::Deny
            && rules.any(|rule| rule.target.to_string().eq_ignore_ascii_case(target))
    })
}
