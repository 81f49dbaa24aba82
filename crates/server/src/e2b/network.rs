//! The network of a sandbox: in the request for one, and `PUT /sandboxes/{id}/network`.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use stockade_api::{ChangeNetwork, Network};
use stockade_core::access::Effect;
use stockade_core::address::Class;
use stockade_core::network::{AllowedHost, Rule, Target, TrafficLimits, is_host_loopback};

use super::App;
use super::failure::Refused;
use super::request::{Id, JsonBody, Owner, find};
use super::secrets;
use crate::auth::PUBLIC;
use crate::failure::{invalid, unsupported};
use crate::relay::masked_host;
use crate::traffic_limits::Limits;

/// Stands for every address.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The network of a new sandbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    #[serde(default)]
    allow_out: Option<Vec<String>>,
    #[serde(default)]
    deny_out: Option<Vec<String>>,
    #[serde(default)]
    dns_servers: Option<Vec<String>>,
    #[serde(default)]
    egress_proxy: Option<Value>,
    #[serde(default)]
    rules: Option<BTreeMap<String, Value>>,
    /// Whether ports need no token.
    #[serde(default)]
    allow_public_traffic: Option<bool>,
    #[serde(default)]
    mask_request_host: Option<String>,
    #[serde(default)]
    https_ports: Option<Vec<u16>>,
    /// How much traffic there may be. This is no member of E2B.
    #[serde(default)]
    limits: Option<Limits>,
}

/// The new network of a sandbox. What it does not name is cleared.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Update {
    #[serde(flatten)]
    config: Config,
    #[serde(default, rename = "allow_internet_access", alias = "allowInternetAccess")]
    allow_internet_access: Option<bool>,
}

impl Config {
    /// Whether ports need no token, if the request says so.
    pub(super) const fn has_public_ports(&self) -> Option<bool> {
        self.allow_public_traffic
    }

    /// The host that programs inside see instead of that of a request to a port.
    pub(super) fn masked_host(&self) -> Result<Option<String>, Refused> {
        let Some(mask) = self.mask_request_host.as_deref().filter(|mask| !mask.is_empty()) else {
            return Ok(None);
        };
        // One with the longest port is one with every port.
        masked_host(mask, u16::MAX)?;
        Ok(Some(mask.to_owned()))
    }

    fn refuse_unsupported(&self) -> Result<(), Refused> {
        let is_set = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let requested = [
            (self.dns_servers.as_ref().is_some_and(|it| !it.is_empty()), "`dnsServers`"),
            (is_set(&self.egress_proxy), "`egressProxy`"),
            (self.https_ports.as_ref().is_some_and(|it| !it.is_empty()), "`httpsPorts`"),
        ];
        match requested.iter().find(|(requested, _)| *requested) {
            Some((_, what)) => Err(unsupported(what).into()),
            None => Ok(()),
        }
    }
}

/// The network that a configuration means: names that are allowed win over a denial of everything.
pub(super) fn network(config: Config) -> Result<Network, Refused> {
    config.refuse_unsupported()?;
    let limits = config.limits.map(TrafficLimits::from).unwrap_or_default();
    let mut network = Network { default: Effect::Allow, limits, ..Network::default() };
    for target in config.deny_out.unwrap_or_default() {
        if EVERYTHING.contains(&target.as_str()) {
            network.default = Effect::Deny;
        } else {
            network.deny.push(host(&target)?);
        }
    }
    for target in config.allow_out.unwrap_or_default() {
        if EVERYTHING.contains(&target.as_str()) {
            network.default = Effect::Allow;
            continue;
        }
        // The loopback of this machine is not for clients of other machines to open.
        match target.parse::<Target>() {
            Ok(Target::Exact(name)) if !is_host_loopback(&name) => {}
            Ok(Target::Subdomains(_)) => {}
            Ok(Target::Block(block)) if block.is_in_class(Class::Public) => {}
            _ => {
                let what = format!("`allowOut` {target:?}, no name and not only public addresses,");
                return Err(unsupported(what).into());
            }
        }
        network.allow.push(host(&target)?);
    }
    secrets::add_rules(&mut network, config.rules.unwrap_or_default())?;
    Ok(network)
}

fn host(target: &str) -> Result<AllowedHost, Refused> {
    target
        .parse()
        .map_err(|error| invalid(format!("the host {target:?} is invalid: {error}")).into())
}

/// `PUT /sandboxes/{id}/network`.
pub(super) async fn replace(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(Update { config, allow_internet_access }): JsonBody<Update>,
) -> Result<StatusCode, Refused> {
    if config.rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
        return Err(unsupported("a change of `rules`").into());
    }
    if config.has_public_ports() == Some(true) {
        let what = "`allowPublicTraffic` of a sandbox that exists, whose ports need a token,";
        let is_public = find(&app, &principal, &id).await?.metadata.contains_key(PUBLIC);
        if !is_public {
            return Err(unsupported(what).into());
        }
    }
    if config.mask_request_host.is_some() {
        return Err(unsupported("a change of `maskRequestHost`").into());
    }
    let mut wanted = network(config)?;
    if allow_internet_access == Some(false) {
        wanted.default = Effect::Deny;
    }
    let sandbox = find(&app, &principal, &id).await?;
    let mut request = ChangeNetwork::new(id);
    if let Some(current) = sandbox.network.as_ref().map(|network| &network.policy) {
        if current.default_effect() != wanted.default {
            return Err(
                unsupported("another default of the network than that of the sandbox").into()
            );
        }
        for rule in current.rules() {
            let host = written(rule)?;
            match rule.action {
                Effect::Allow if !wanted.allow.contains(&host) => request.refuse.push(host),
                Effect::Deny if !wanted.deny.contains(&host) => request.remove_denied.push(host),
                Effect::Allow | Effect::Deny => {}
            }
        }
    }
    request.allow = wanted.allow;
    request.deny = wanted.deny;
    request.limits = Some(wanted.limits);
    app.sandboxes.change_network(&principal.caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The host of a rule, as it was added.
fn written(rule: &Rule) -> Result<AllowedHost, Refused> {
    Ok(crate::opensandbox::written(rule)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(config: Value) -> Result<Network, Refused> {
        network(serde_json::from_value(config).unwrap())
    }

    #[test]
    fn traffic_has_limits() {
        let limited = parsed(json!({ "limits": { "bytes": 5000, "connections": 4 } })).unwrap();
        assert_eq!((limited.limits.bytes, limited.limits.connections), (Some(5000), Some(4)));
        let unknown = json!({ "limits": { "byte": 5000 } });
        assert!(serde_json::from_value::<Config>(unknown).is_err());
    }

    #[test]
    fn everything_is_the_default() {
        assert_eq!(parsed(json!({})).unwrap().default, Effect::Allow);
        let closed = parsed(json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["example.com"] }));
        let closed = closed.unwrap();
        assert_eq!((closed.default, closed.allow.len()), (Effect::Deny, 1));
        let open = parsed(json!({ "denyOut": ["example.com"] })).unwrap();
        assert_eq!((open.default, open.deny.len()), (Effect::Allow, 1));
    }

    #[test]
    fn public_addresses_can_be_allowed() {
        let config = json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["8.8.8.8", "9.9.9.0/24"] });
        let network = parsed(config).unwrap();
        let allowed: Vec<_> = network.allow.iter().map(ToString::to_string).collect();
        assert_eq!(
            (network.default, allowed),
            (Effect::Deny, vec!["8.8.8.8".to_owned(), "9.9.9.0/24".to_owned()])
        );
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        for refused in [
            json!({ "allowOut": ["localhost"] }),
            json!({ "allowOut": ["10.0.0.1"] }),
            json!({ "allowOut": ["127.0.0.0/8"] }),
            json!({ "allowOut": ["192.168.0.0/16"] }),
            json!({ "allowOut": ["169.254.169.254"] }),
            json!({ "allowOut": ["8.0.0.0/4"] }),
            json!({ "allowOut": ["::1"] }),
            json!({ "dnsServers": ["1.1.1.1"] }),
            json!({ "rules": { "a": [] } }),
        ] {
            assert!(parsed(refused.clone()).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_mask_is_a_host() {
        let masked = |mask: &str| {
            let config = Config { mask_request_host: Some(mask.to_owned()), ..Config::default() };
            config.masked_host().ok()
        };
        for host in ["a.example", "a.example:${PORT}", "localhost:3000"] {
            assert_eq!(masked(host), Some(Some(host.to_owned())));
        }
        assert_eq!(masked(""), Some(None));
        for other in ["a b", "http://a/", "u@a", "a:b", "a\r\nb", "${PORT}x:${PORT}${PORT}"] {
            assert_eq!(masked(other), None, "{other:?}");
        }
    }
}
