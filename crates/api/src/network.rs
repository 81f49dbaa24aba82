//! The network of a sandbox: the requested policy, and its status.

use serde::{Deserialize, Serialize};
use stockade_core::access::Effect;
use stockade_core::network::{AllowedHost, DeniedConnection, Misdirection, Policy, Rule};
use stockade_core::{Code, Problem, SandboxId};

use crate::Result;

/// The requested network of a sandbox. The default allows no host, but denied connections are
/// recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Network {
    /// The allowed hosts, as `HOST` or `HOST:PORT`: a name, `*.NAME` for everything below a name,
    /// an address, or a block of addresses.
    pub allow: Vec<AllowedHost>,
    /// The names that are allowed also if they lead to a private network, as `NAME` or `NAME:PORT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_internal: Vec<AllowedHost>,
    /// The effect for other names: `deny` or, for every name with only public addresses, `allow`.
    #[serde(skip_serializing_if = "is_deny")]
    pub default: Effect,
}

impl Default for Network {
    fn default() -> Self {
        Self { allow: Vec::new(), allow_internal: Vec::new(), default: Effect::Deny }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_deny(effect: &Effect) -> bool {
    *effect == Effect::Deny
}

impl Network {
    /// The same as a policy.
    ///
    /// # Errors
    /// [`Code::RuleInvalid`] if it exceeds a limit, or an internal host is no name.
    pub fn policy(&self) -> Result<Policy> {
        let mut rules: Vec<_> = self.allow.iter().cloned().map(Rule::from).collect();
        for host in &self.allow_internal {
            let rule = host.clone().into_internal_rule().map_err(|reason| {
                let message = format!("{host} cannot be an internal host");
                Problem::new(Code::RuleInvalid, message).because(reason)
            })?;
            rules.push(rule);
        }
        Ok(Policy::new(self.default, rules)?)
    }
}

/// Changes the network of a sandbox that has one: adds and removes allowed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeNetwork {
    /// The sandbox.
    pub id: SandboxId,
    /// The hosts to add, as in [`Network::allow`].
    #[serde(default)]
    pub allow: Vec<AllowedHost>,
    /// The internal hosts to add, as in [`Network::allow_internal`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_internal: Vec<AllowedHost>,
    /// The allowed hosts to remove, written as they were added.
    #[serde(default)]
    pub refuse: Vec<AllowedHost>,
}

impl Network {
    /// The network with added and removed hosts.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if a host to remove is not among its hosts; as [`Network::policy`].
    pub fn with_changes(&self, changes: &ChangeNetwork) -> Result<Self> {
        let ChangeNetwork { allow, allow_internal, refuse, .. } = changes;
        let mut changed = self.clone();
        for host in refuse {
            let count = |network: &Self| network.allow.len() + network.allow_internal.len();
            let before = count(&changed);
            changed.allow.retain(|own| own != host);
            changed.allow_internal.retain(|own| own != host);
            if count(&changed) == before {
                let message = format!("{host} is not among the allowed hosts");
                let known = self.allow.iter().chain(&self.allow_internal);
                let known: Vec<_> = known.map(ToString::to_string).collect();
                return Err(Problem::new(Code::InvalidInput, message)
                    .because(format!("allowed hosts: {}", known.join(", "))));
            }
        }
        let add = |hosts: &mut Vec<AllowedHost>, new: &[AllowedHost]| {
            for host in new.iter().filter(|host| !refuse.contains(host)) {
                if !hosts.contains(host) {
                    hosts.push(host.clone());
                }
            }
        };
        add(&mut changed.allow, allow);
        add(&mut changed.allow_internal, allow_internal);
        changed.policy()?;
        Ok(changed)
    }
}

/// The network status of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The hosts that it may connect to.
    pub policy: Policy,
    /// Its denied connections, each kind once; only in a response about one sandbox. `times` counts
    /// since the start of the server.
    #[serde(default)]
    pub refused: Vec<DeniedConnection>,
    /// The secrets whose placeholder was sent to a host that they are not bound to, since the start
    /// of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misdirected: Vec<Misdirection>,
    /// How many more denied connections are not listed, or were lost.
    #[serde(default)]
    pub lost: u64,
    /// The number of connections that were made outside, since the start of the server.
    #[serde(default)]
    pub connections: u64,
    /// The number of bytes that the ended ones sent outside.
    #[serde(default)]
    pub sent_bytes: u64,
    /// The number of bytes that the ended ones received from outside.
    #[serde(default)]
    pub received_bytes: u64,
    /// Why no traffic is allowed at the moment, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

impl NetworkStatus {
    /// The status of a sandbox without any recorded traffic.
    pub const fn new(policy: Policy) -> Self {
        Self {
            policy,
            refused: Vec::new(),
            misdirected: Vec::new(),
            lost: 0,
            connections: 0,
            sent_bytes: 0,
            received_bytes: 0,
            closed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_are_written_as_they_are_typed() {
        for (value, policy) in [
            (json!({}), json!({ "default": "deny", "rules": [] })),
            (
                json!({ "allow": ["A.example:443", "10.0.0.0/8"] }),
                json!({ "default": "deny", "rules": [
                    { "action": "allow", "target": "a.example", "ports": [443] },
                    { "action": "allow", "target": "10.0.0.0/8" },
                ] }),
            ),
            (
                json!({ "allow": [], "default": "allow" }),
                json!({ "default": "allow", "rules": [] }),
            ),
        ] {
            let network: Network = serde_json::from_value(value).unwrap();
            assert_eq!(json!(network.policy().unwrap()), policy);
            let again = serde_json::to_string(&network).unwrap();
            assert_eq!(serde_json::from_str::<Network>(&again).unwrap(), network);
        }
        for value in [
            json!("a.example"),
            json!({ "allow": "a.example" }),
            json!({ "allow": ["localhost:80"] }),
            json!({ "allow": ["https://a.example"] }),
            json!({ "deny": [] }),
            json!({ "default": "public" }),
        ] {
            assert!(serde_json::from_value::<Network>(value.clone()).is_err(), "{value}");
        }
        for refused in ["*", "10.0.0.5", "host.stockade.internal:80"] {
            let network: Network =
                serde_json::from_value(json!({ "allowInternal": [refused] })).unwrap();
            assert_eq!(network.policy().unwrap_err().code, Code::RuleInvalid, "{refused}");
        }
        let internal: Network =
            serde_json::from_value(json!({ "allowInternal": ["mirror.test:80"] })).unwrap();
        assert!(internal.policy().unwrap().rules()[0].internal);
        let many = Network { allow: vec!["a.example".parse().unwrap(); 513], ..Network::default() };
        assert_eq!(many.policy().unwrap_err().code, Code::RuleInvalid);
    }

    #[test]
    fn hosts_come_and_go_as_they_are_written() {
        let hosts = |texts: &[&str]| -> Vec<AllowedHost> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let network = Network { allow: hosts(&["a.test", "b.test:443"]), ..Network::default() };
        let change = |allow: &[&str], refuse: &[&str]| {
            let changes = ChangeNetwork {
                id: SandboxId::new("a").unwrap(),
                allow: hosts(allow),
                allow_internal: Vec::new(),
                refuse: hosts(refuse),
            };
            network.with_changes(&changes).map(|changed| changed.allow)
        };
        assert_eq!(change(&[], &[]), Ok(hosts(&["a.test", "b.test:443"])));
        assert_eq!(
            change(&["c.test", "A.test"], &[]),
            Ok(hosts(&["a.test", "b.test:443", "c.test"]))
        );
        assert_eq!(change(&["c.test"], &["a.test"]), Ok(hosts(&["b.test:443", "c.test"])));
        // If a host is both added and removed, it is removed.
        assert_eq!(change(&["a.test"], &["a.test"]), Ok(hosts(&["b.test:443"])));
        for unknown in ["c.test", "b.test", "a.test:443", "*.test"] {
            let problem = change(&[], &[unknown]).unwrap_err();
            assert_eq!(problem.code, Code::InvalidInput, "{unknown}");
            assert!(problem.cause.unwrap().contains("b.test:443"));
        }
        let many: Vec<_> = (0..600).map(|number| format!("h{number}.test")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(change(&many, &[]).unwrap_err().code, Code::RuleInvalid);
    }
}
