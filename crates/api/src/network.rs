//! What a sandbox reaches: what is asked for, and what is known of it.

use serde::{Deserialize, Serialize};
use stockade_core::access::Effect;
use stockade_core::network::{Allowed, Policy, Refused, Rule};
use stockade_core::{Code, Problem, SandboxId};

use crate::Result;

/// What a sandbox is to reach. With no field set: nothing, though there is somebody to tell what was
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Network {
    /// Which hosts, as `HOST` or `HOST:PORT`: a name, `*.NAME` for everything below a name, an
    /// address, or a block of addresses.
    pub allow: Vec<Allowed>,
    /// What becomes of names that are not among them: `deny` or, for every name that leads to public
    /// addresses alone, `allow`.
    #[serde(skip_serializing_if = "is_deny")]
    pub default: Effect,
}

impl Default for Network {
    fn default() -> Self {
        Self { allow: Vec::new(), default: Effect::Deny }
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
    /// [`Code::RuleInvalid`] where there is too much of it.
    pub fn policy(&self) -> Result<Policy> {
        let rules = self.allow.iter().cloned().map(Rule::from).collect();
        Ok(Policy::new(self.default, rules)?)
    }
}

/// Another network for a sandbox that has one: what it may reach besides, and what no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeNetwork {
    /// Which sandbox.
    pub id: SandboxId,
    /// Which hosts it may reach from now on, as in [`Network::allow`].
    #[serde(default)]
    pub allow: Vec<Allowed>,
    /// Which of those that it may reach it may not any more, written as they were allowed.
    #[serde(default)]
    pub refuse: Vec<Allowed>,
}

impl Network {
    /// The network with more hosts and without others.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] where one of the others is not among
    /// its hosts; as [`Network::policy`].
    pub fn changed(&self, allow: &[Allowed], refuse: &[Allowed]) -> Result<Self> {
        let mut changed = self.clone();
        for host in refuse {
            let before = changed.allow.len();
            changed.allow.retain(|own| own != host);
            if changed.allow.len() == before {
                let message = format!("{host} is not among the allowed hosts");
                let known: Vec<_> = self.allow.iter().map(ToString::to_string).collect();
                return Err(Problem::new(Code::InvalidInput, message)
                    .because(format!("allowed hosts: {}", known.join(", "))));
            }
        }
        for host in allow.iter().filter(|host| !refuse.contains(host)) {
            if !changed.allow.contains(host) {
                changed.allow.push(host.clone());
            }
        }
        changed.policy()?;
        Ok(changed)
    }
}

/// What is known of what a sandbox reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// Whom it may reach.
    pub policy: Policy,
    /// What it was refused, each thing once; only where one sandbox is asked for. `times` counts from
    /// the start of the server on.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// How much more was refused than is told, or was lost.
    #[serde(default)]
    pub lost: u64,
    /// How many connections were made outside, from the start of the server on.
    #[serde(default)]
    pub connections: u64,
    /// How many bytes were sent outside by those that have ended.
    #[serde(default)]
    pub sent_bytes: u64,
    /// How many bytes came from outside by those that have ended.
    #[serde(default)]
    pub received_bytes: u64,
    /// Why nothing is let through at this moment, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

impl Reached {
    /// What is known of one of which nothing was heard.
    pub const fn by(policy: Policy) -> Self {
        Self {
            policy,
            refused: Vec::new(),
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
            json!({ "allow": ["*"] }),
            json!({ "allow": ["https://a.example"] }),
            json!({ "deny": [] }),
            json!({ "default": "public" }),
        ] {
            assert!(serde_json::from_value::<Network>(value.clone()).is_err(), "{value}");
        }
        let many = Network { allow: vec!["a.example".parse().unwrap(); 513], ..Network::default() };
        assert_eq!(many.policy().unwrap_err().code, Code::RuleInvalid);
    }

    #[test]
    fn hosts_come_and_go_as_they_are_written() {
        let hosts = |texts: &[&str]| -> Vec<Allowed> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let network = Network { allow: hosts(&["a.test", "b.test:443"]), ..Network::default() };
        let change = |allow: &[&str], refuse: &[&str]| {
            network.changed(&hosts(allow), &hosts(refuse)).map(|changed| changed.allow)
        };
        assert_eq!(change(&[], &[]), Ok(hosts(&["a.test", "b.test:443"])));
        assert_eq!(
            change(&["c.test", "A.test"], &[]),
            Ok(hosts(&["a.test", "b.test:443", "c.test"]))
        );
        assert_eq!(change(&["c.test"], &["a.test"]), Ok(hosts(&["b.test:443", "c.test"])));
        // Who says both means the safer one.
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
