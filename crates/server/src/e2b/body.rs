//! Sandboxes in the form of E2B.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use stockade_api::{ExpiryAction, Sandbox};
use stockade_core::access::Effect;
use stockade_core::{State, Time};

use super::{App, ENVD_VERSION, RESERVED};
use crate::auth::{PUBLIC, Principal, Scope};
use crate::inside::usage;
use crate::relay::MASKED_HOST;

/// The metadata with the template that a client has named.
pub(super) const TEMPLATE: &str = "e2b.dev/template";
/// The metadata of a sandbox that a request resumes.
pub(super) const AUTO_RESUME: &str = "e2b.dev/auto-resume";
/// The value of a flag in metadata.
pub(super) const YES: &str = "true";
/// The client in answers; no such thing exists here.
const CLIENT: &str = "stockade";
/// The end of a sandbox that never expires, in the year 9999: the last day that is one in every time zone, so that each client can
/// read it.
const NEVER_MS: i64 = 253_402_128_000_000;
/// The templates that are the programs of the server's machine.
pub(super) const HOST_TEMPLATES: [&str; 2] = ["base", "code-interpreter-v1"];

/// The state of a sandbox, for clients: one that has not started yet or has ended has none.
pub(super) const fn state(state: State) -> Option<&'static str> {
    match state {
        State::Running => Some("running"),
        State::Paused | State::Stopped => Some("paused"),
        State::New | State::Creating | State::Error | State::Terminated => None,
    }
}

/// The template of a sandbox.
pub(super) fn template(sandbox: &Sandbox) -> String {
    let named = sandbox.metadata.get(TEMPLATE).cloned();
    let image = || {
        let image = sandbox.image.strip_prefix("snapshot:").unwrap_or(&sandbox.image);
        if image == "host" { "base".to_owned() } else { image.to_owned() }
    };
    named.unwrap_or_else(image)
}

/// Whether a client of E2B has created a sandbox.
pub(crate) fn is_of_client(sandbox: &Sandbox) -> bool {
    sandbox.metadata.contains_key(TEMPLATE)
}

/// The metadata that clients have set.
pub(super) fn metadata(sandbox: &Sandbox) -> BTreeMap<&str, &str> {
    let all = sandbox.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| !name.starts_with(RESERVED)).collect()
}

fn whole(number: f64) -> u64 {
    // A fraction of a processor counts as one.
    let mut count = 1;
    while f64::from(count) < number && count < u32::MAX {
        count += 1;
    }
    u64::from(count)
}

/// A sandbox in a list.
pub(super) fn listed(sandbox: &Sandbox) -> Value {
    let template = template(sandbox);
    let volumes: Vec<_> = sandbox
        .volumes
        .iter()
        .map(|mount| json!({ "name": mount.name.as_str(), "path": mount.inside.to_string_lossy() }))
        .collect();
    let mut body = json!({
        "templateID": template,
        "sandboxID": sandbox.id.as_str(),
        "clientID": CLIENT,
        "startedAt": sandbox.created_at,
        "endAt": sandbox.expires_at.unwrap_or_else(|| Time::from_ms(NEVER_MS)),
        "cpuCount": whole(usage::cpu_count(sandbox)),
        "memoryMB": usage::memory_bytes(sandbox) >> 20,
        "diskSizeMB": sandbox.limits.disk_bytes.unwrap_or(0) >> 20,
        "state": state(sandbox.state).unwrap_or("paused"),
        "envdVersion": ENVD_VERSION,
        "metadata": metadata(sandbox),
        "volumeMounts": volumes,
    });
    if HOST_TEMPLATES.contains(&template.as_str()) {
        body["alias"] = template.into();
    }
    body
}

/// What a client needs to use a sandbox.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Credentials {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "sandboxID")]
    sandbox: String,
    #[serde(rename = "clientID")]
    client: &'static str,
    envd_version: &'static str,
    envd_access_token: String,
    traffic_access_token: String,
    domain: String,
}

impl Credentials {
    /// The credentials of a principal for its sandbox.
    pub(super) fn new(app: &App, principal: &Principal, sandbox: &Sandbox) -> Self {
        let token = app.auth.token(principal, sandbox, Scope::Envd);
        app.tokens.add(&sandbox.id, &token);
        app.auth.note_public(principal, sandbox);
        Self {
            template: template(sandbox),
            sandbox: sandbox.id.to_string(),
            client: CLIENT,
            envd_version: ENVD_VERSION,
            envd_access_token: token,
            traffic_access_token: app.auth.token(principal, sandbox, Scope::EveryPort),
            domain: domain(app),
        }
    }
}

/// The domain of the ports of sandboxes, with the port of the server.
pub(super) fn domain(app: &App) -> String {
    match app.site.port {
        Some(port) => format!("{}:{port}", app.site.domain),
        None => app.site.domain.clone(),
    }
}

/// Everything about a sandbox, for its owner.
pub(super) fn detail(app: &App, principal: &Principal, sandbox: &Sandbox) -> Value {
    let mut body = listed(sandbox);
    let Credentials { envd_access_token, domain, .. } = Credentials::new(app, principal, sandbox);
    body["envdAccessToken"] = envd_access_token.into();
    body["domain"] = domain.into();
    let on_timeout = match sandbox.on_expiry {
        ExpiryAction::Terminate => "kill",
        ExpiryAction::Stop | ExpiryAction::Pause => "pause",
    };
    let resumes = sandbox.metadata.contains_key(AUTO_RESUME);
    body["lifecycle"] = json!({ "onTimeout": on_timeout, "autoResume": resumes });
    let policy = sandbox.network.as_ref().map(|network| &network.policy);
    let is_open = policy.is_some_and(|policy| policy.default_effect() == Effect::Allow);
    body["allowInternetAccess"] = is_open.into();
    let hosts = |effect: Effect| -> Vec<String> {
        let rules = policy.map(|policy| policy.rules()).unwrap_or_default().iter();
        rules.filter(|rule| rule.action == effect).map(|rule| rule.target.to_string()).collect()
    };
    body["network"] = json!({
        "allowOut": hosts(Effect::Allow),
        "denyOut": hosts(Effect::Deny),
        "allowPublicTraffic": sandbox.metadata.contains_key(PUBLIC),
        "maskRequestHost": sandbox.metadata.get(MASKED_HOST),
    });
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_expires_ends_late() {
        assert_eq!(Time::from_ms(NEVER_MS).to_string(), "9999-12-30T00:00:00.000Z");
    }

    #[test]
    fn processors_are_counted_in_whole_numbers() {
        assert_eq!([0.5, 1.0, 1.5, 2.0].map(whole), [1, 1, 2, 2]);
    }
}
