//! The interface for the network policy of a sandbox (`egress`), and the policy in the form of
//! OpenSandbox.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::{ChangeNetwork, Network, Sandbox};
use stockade_core::access::Effect;
use stockade_core::address::Class;
use stockade_core::network::{self, AllowedHost, Target, TrafficLimits, is_host_loopback};

use super::request::JsonBody;
use super::target::{self, EGRESS_TOKEN, PortState};
use super::{credentials, unavailable};
use crate::failure::{Failure, invalid, unsupported};
use crate::openapi::{Api, Security, get};
use crate::traffic_limits::Limits;

/// A network policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    #[serde(default)]
    default_action: Option<Action>,
    #[serde(default)]
    egress: Option<Vec<Rule>>,
    /// How much traffic there may be. This is no member of OpenSandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
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

/// A target is a name, or public addresses. Others, and the loopback of this machine, are not for clients of other
/// machines to open.
fn host(target: &str) -> Result<AllowedHost, Failure> {
    match target.parse::<Target>() {
        Ok(Target::Exact(name)) if !is_host_loopback(&name) => {}
        Ok(Target::Subdomains(_)) => {}
        Ok(Target::Block(block)) if block.is_in_class(Class::Public) => {}
        Ok(_) => {
            let what = format!("the target {target:?}, no name and not only public addresses,");
            return Err(unsupported(what));
        }
        Err(error) => return Err(invalid(format!("the target {target:?} is invalid: {error}"))),
    }
    target.parse().map_err(|error| invalid(format!("the target {target:?} is invalid: {error}")))
}

/// A target that is denied may be of any kind.
fn denied(target: &str) -> Result<AllowedHost, Failure> {
    target.parse().map_err(|error| invalid(format!("the target {target:?} is invalid: {error}")))
}

/// The network of a new sandbox with that policy.
pub(super) fn network(policy: Policy) -> Result<Network, Failure> {
    let limits = policy.limits.map(TrafficLimits::from).unwrap_or_default();
    let mut network = Network { limits, ..Network::default() };
    if policy.default_action == Some(Action::Allow) {
        network.default = Effect::Allow;
    }
    let mut seen: Vec<String> = Vec::new();
    for Rule { action, target } in policy.egress.unwrap_or_default() {
        if seen.contains(&target) {
            continue;
        }
        match action {
            Action::Allow => network.allow.push(host(&target)?),
            Action::Deny => network.deny.push(denied(&target)?),
        }
        seen.push(target);
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
        .merge(credentials::routes())
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
    let mut policy = json!({ "defaultAction": default, "egress": egress });
    let limits = rules.map(|policy| policy.limits()).filter(|limits| !limits.is_none());
    if let Some(limits) = limits {
        policy["limits"] = json!(limits);
    }
    Json(json!({
        "status": "ok",
        "mode": mode,
        "enforcementMode": "proxy",
        "policy": policy,
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
            Action::Deny => request.deny.push(denied(&rule.target)?),
        }
    }
    Ok(request)
}

/// The change that removes the rules for targets.
pub(super) fn removals(sandbox: &Sandbox, targets: &[String]) -> Result<ChangeNetwork, Failure> {
    let mut request = ChangeNetwork::new(sandbox.id.clone());
    for name in targets {
        for rule in current(sandbox).filter(|rule| is_about(rule, name)) {
            match rule.action {
                Effect::Allow => request.refuse.push(written(rule)?),
                Effect::Deny => request.remove_denied.push(written(rule)?),
            }
        }
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
        request.deny = wanted.deny;
        request.limits = Some(wanted.limits);
        return Ok(request);
    };
    if current.default_effect() != wanted.default {
        return Err(unsupported("another `defaultAction` than that of the sandbox"));
    }
    for rule in current.rules() {
        let host = written(rule)?;
        match rule.action {
            Effect::Allow if !wanted.allow.contains(&host) => request.refuse.push(host),
            Effect::Deny if !wanted.deny.contains(&host) => request.remove_denied.push(host),
            Effect::Allow | Effect::Deny => {}
        }
    }
    request.allow = wanted.allow;
    request.deny = wanted.deny;
    request.limits = Some(wanted.limits);
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

/// The rules of a sandbox.
fn current(sandbox: &Sandbox) -> impl Iterator<Item = &network::Rule> {
    sandbox.network.iter().flat_map(|network| network.policy.rules())
}

/// Whether a rule is about exactly this target.
fn is_about(rule: &network::Rule, target: &str) -> bool {
    rule.target.to_string().eq_ignore_ascii_case(target)
}

/// The host of a rule, as it was added.
pub(crate) fn written(rule: &network::Rule) -> Result<AllowedHost, Failure> {
    let target = rule.target.to_string();
    let text = match rule.ports.first() {
        Some(port) if target.contains(':') => format!("[{target}]:{port}"),
        Some(port) => format!("{target}:{port}"),
        None => target,
    };
    text.parse().map_err(|error| invalid(format!("the rule {text:?} is unknown: {error}")))
}
