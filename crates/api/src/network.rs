//! The network of a sandbox: the requested policy, and its status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::access::Effect;
use stockade_core::network::binding::{Binding, InvalidBinding, check_bindings};
use stockade_core::network::secret::{self, BoundSecret};
use stockade_core::network::{
    AllowedHost, DeniedConnection, Misdirection, Policy, Rule, TrafficLimits, Upstream,
};
use stockade_core::{Code, Problem, SandboxId};

use crate::Result;
use crate::injection::Injections;
use crate::secrets::SecretStatus;
use crate::vault::{SecretMapping, SecretScope};

/// The requested network of a sandbox. The default allows no host, but denied connections are
/// recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Network {
    /// The allowed hosts, as `HOST` or `HOST:PORT`: a name, `*.NAME` for everything below a name,
    /// an address, or a block of addresses.
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<AllowedHost>,
    /// The names that are allowed also if they lead to a private network, as `NAME` or `NAME:PORT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub allow_internal: Vec<AllowedHost>,
    /// The denied hosts, in the same form: a denied host is denied whatever else is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub deny: Vec<AllowedHost>,
    /// The effect for other names: `deny` or, for every name with only public addresses, `allow`.
    #[serde(skip_serializing_if = "is_deny")]
    pub default: Effect,
    /// Further rules, which may also be about methods and paths of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub rules: Vec<Rule>,
    /// How much traffic there may be.
    #[serde(skip_serializing_if = "TrafficLimits::is_none")]
    pub limits: TrafficLimits,
    /// Credentials that are put into requests, by bindings. Values are not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injections: Option<Injections>,
    /// The secrets, as `NAME@HOST` or `NAME@HOST:PORT`: commands have a placeholder in the variable
    /// `NAME`, and requests to the host contain the value, which [`SetSecrets`](crate::SetSecrets)
    /// gives. Values are not here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub secrets: Vec<BoundSecret>,
    /// Secrets whose values are those of stored secrets of the owner: `env` is the name of one of
    /// `secrets`. The values are fetched each time that the egress process is started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stored_secrets: Vec<SecretMapping>,
    /// Whether traffic with the placeholder of a secret to other hosts is refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict_secrets: bool,
    /// The proxy of the host's network through which hosts are reached. It is stored, so it has no
    /// password. It resolves the names, so their addresses are not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub upstream_proxy: Option<Upstream>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_internal: Vec::new(),
            deny: Vec::new(),
            default: Effect::Deny,
            rules: Vec::new(),
            limits: TrafficLimits::default(),
            injections: None,
            secrets: Vec::new(),
            stored_secrets: Vec::new(),
            strict_secrets: false,
            upstream_proxy: None,
        }
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
    /// [`Code::RuleInvalid`] if it exceeds a limit, an internal host is no name, or a limit on traffic
    /// is invalid.
    pub fn policy(&self) -> Result<Policy> {
        let mut rules: Vec<_> = self.allow.iter().cloned().map(Rule::from).collect();
        for host in &self.allow_internal {
            let rule = host.clone().into_internal_rule().map_err(|reason| {
                let message = format!("{host} cannot be an internal host");
                Problem::new(Code::RuleInvalid, message).because(reason)
            })?;
            rules.push(rule);
        }
        let denied = self.deny.iter().cloned().map(Rule::from);
        rules.extend(denied.map(|rule| Rule { action: Effect::Deny, ..rule }));
        rules.extend(self.rules.iter().cloned());
        Ok(Policy::new(self.default, rules)?.with_limits(self.limits)?)
    }

    /// Checks its proxy, which is stored.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if it has a password.
    pub fn check_upstream_proxy(&self) -> Result<()> {
        match &self.upstream_proxy {
            Some(proxy) if proxy.authorization().is_some() => {
                let message = "the proxy of a persistent sandbox cannot have a user and a password";
                Err(Problem::new(Code::InvalidInput, message)
                    .because("they would be stored in the record of the sandbox")
                    .remedied_by("--upstream-proxy http://HOST:PORT"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the bindings of its secrets.
    ///
    /// # Errors
    /// As [`Network::bindings`].
    pub fn check_secrets(&self) -> Result<()> {
        let bindings = self.bindings(sample_placeholder)?;
        for (index, SecretMapping { env, secret }) in self.stored_secrets.iter().enumerate() {
            let invalid = |message: String| Err(Problem::new(Code::InvalidInput, message));
            if !bindings.iter().any(|binding| binding.credential == *env) {
                return invalid(format!(
                    "the stored secret for {env} is for no secret of the sandbox"
                ));
            }
            if self.stored_secrets.iter().take(index).any(|other| other.env == *env) {
                return invalid(format!("there are two stored secrets for {env}"));
            }
            if secret.scope != SecretScope::Caller {
                return invalid(format!("the stored secret for {env} must be the owner's own"));
            }
        }
        Ok(())
    }

    /// The same network with these stored secrets instead of those for the same names, and without
    /// those for `forgotten` names.
    #[must_use]
    pub fn with_stored(&self, stored: &[SecretMapping], forgotten: &[String]) -> Self {
        let mut changed = self.clone();
        let is_replaced = |name: &String| {
            forgotten.contains(name) || stored.iter().any(|mapping| mapping.env == *name)
        };
        changed.stored_secrets.retain(|own| !is_replaced(&own.env));
        changed.stored_secrets.extend(stored.iter().cloned());
        changed
    }

    /// The bindings of its secrets. `placeholder` is what programs inside have instead of the value
    /// of a secret: the same each time.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if they contradict each other, or the policy does not allow one of
    /// their hosts.
    pub fn bindings(&self, placeholder: impl FnMut(&str) -> String) -> Result<Vec<Binding>> {
        let invalid =
            |error: secret::InvalidSecrets| Problem::new(Code::InvalidInput, error.to_string());
        let mut bindings = secret::bindings(&self.secrets, placeholder).map_err(invalid)?;
        for binding in &mut bindings {
            binding.strict = self.strict_secrets;
        }
        bindings.extend(self.injections.iter().flat_map(Injections::bindings));
        check_bindings(&bindings, &self.policy()?)?;
        Ok(bindings)
    }
}

/// Changes the network of a sandbox that has one: adds and removes allowed hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeNetwork {
    /// The sandbox.
    pub id: SandboxId,
    /// The hosts to add, as in [`Network::allow`].
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<AllowedHost>,
    /// The internal hosts to add, as in [`Network::allow_internal`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub allow_internal: Vec<AllowedHost>,
    /// The allowed hosts to remove, written as they were added. Secrets are no longer bound to them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub refuse: Vec<AllowedHost>,
    /// The hosts to deny, as in [`Network::deny`]. They are no longer among the allowed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub deny: Vec<AllowedHost>,
    /// The denied hosts to remove, written as they were added. One that is added to the allowed ones
    /// is removed in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub remove_denied: Vec<AllowedHost>,
    /// Secrets to add, as in [`Network::secrets`]. The hosts of a secret that the sandbox has are
    /// replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub secrets: Vec<BoundSecret>,
    /// The names of secrets to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_secrets: Vec<String>,
    /// Whether traffic with the placeholder of a secret to other hosts is refused; unchanged when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict_secrets: Option<bool>,
    /// How much traffic there may be; unchanged when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TrafficLimits>,
}

impl ChangeNetwork {
    /// A request that changes nothing.
    pub const fn new(id: SandboxId) -> Self {
        Self {
            id,
            allow: Vec::new(),
            allow_internal: Vec::new(),
            refuse: Vec::new(),
            deny: Vec::new(),
            remove_denied: Vec::new(),
            secrets: Vec::new(),
            remove_secrets: Vec::new(),
            strict_secrets: None,
            limits: None,
        }
    }
}

impl Network {
    /// The network with the requested changes.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if a host or secret to remove is not there; as [`Network::policy`] and
    /// [`Network::bindings`].
    pub fn with_changes(&self, change: &ChangeNetwork) -> Result<Self> {
        let ChangeNetwork { id, allow, allow_internal, refuse, .. } = change;
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
        let is_allowed = |host: &AllowedHost| allow.contains(host) || allow_internal.contains(host);
        changed.deny.retain(|own| !change.remove_denied.contains(own) && !is_allowed(own));
        let denies = |host: &AllowedHost| change.deny.contains(host);
        changed.allow.retain(|own| !denies(own));
        changed.allow_internal.retain(|own| !denies(own));
        add(&mut changed.deny, &change.deny);
        let policy = changed.policy()?;
        // Who may not connect to a host has no secret for it either.
        if !refuse.is_empty() || !change.deny.is_empty() {
            changed.secrets.retain(|own| is_bindable(own, &policy));
        }
        for name in &change.remove_secrets {
            let before = changed.secrets.len();
            changed.secrets.retain(|own| own.name != *name);
            if changed.secrets.len() == before {
                let message = format!("the sandbox {id} has no secret {name}");
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by(format!("stockade show {id}")));
            }
        }
        changed.secrets.retain(|own| !change.secrets.iter().any(|new| new.name == own.name));
        for secret in &change.secrets {
            if !is_bindable(secret, &policy) {
                let host = &secret.host;
                let message = format!(
                    "the secret {} is bound to {host}, which no rule of the policy allows",
                    secret.name
                );
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by(format!("stockade allow {id} {host}")));
            }
            if !changed.secrets.contains(secret) {
                changed.secrets.push(secret.clone());
            }
        }
        if let Some(strict) = change.strict_secrets {
            changed.strict_secrets = strict;
        }
        let bindings = changed.bindings(sample_placeholder)?;
        let is_there = |name: &String| bindings.iter().any(|own| own.credential == *name);
        changed.stored_secrets.retain(|own| is_there(&own.env));
        if let Some(limits) = change.limits {
            changed.limits = limits;
        }
        changed.check_secrets()?;
        Ok(changed)
    }
}

/// Whether a policy allows a secret to be bound to its host.
fn is_bindable(secret: &BoundSecret, policy: &Policy) -> bool {
    let bindings = secret::bindings(std::slice::from_ref(secret), sample_placeholder);
    bindings.is_ok_and(|bindings| {
        let invalid = check_bindings(&bindings, policy).err();
        !matches!(invalid, Some(InvalidBinding::NotAllowed { .. }))
    })
}

/// A placeholder for bindings that are only checked.
fn sample_placeholder(name: &str) -> String {
    format!("stockade-{name}-for-a-check")
}

/// The network status of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The hosts that it may connect to.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub policy: Policy,
    /// The proxy through which hosts are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub upstream_proxy: Option<Upstream>,
    /// Its denied connections, each kind once; only in a response about one sandbox. `times` counts
    /// since the start of the server.
    #[serde(default)]
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub refused: Vec<DeniedConnection>,
    /// The secrets whose placeholder was sent to a host that they are not bound to, since the start
    /// of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub misdirected: Vec<Misdirection>,
    /// Its secrets; only in a response about one sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretStatus>,
    /// The credentials that are put into its requests, and their bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injections: Option<Injections>,
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
            upstream_proxy: None,
            refused: Vec::new(),
            misdirected: Vec::new(),
            secrets: Vec::new(),
            injections: None,
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
            json!({ "default": "public" }),
        ] {
            assert!(serde_json::from_value::<Network>(value.clone()).is_err(), "{value}");
        }
        for refused in ["*", "10.0.0.5", "host.stockade.internal:80"] {
            let network: Network =
                serde_json::from_value(json!({ "allowInternal": [refused] })).unwrap();
            assert_eq!(network.policy().unwrap_err().code, Code::RuleInvalid, "{refused}");
        }
        let limited: Network =
            serde_json::from_value(json!({ "limits": { "bytes": 5, "bandwidth": 1 } })).unwrap();
        assert_eq!(limited.policy().unwrap_err().code, Code::RuleInvalid);
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
            let id = SandboxId::new("a").unwrap();
            let (allow, refuse) = (hosts(allow), hosts(refuse));
            let request = ChangeNetwork { allow, refuse, ..ChangeNetwork::new(id) };
            network.with_changes(&request).map(|changed| changed.allow)
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

    #[test]
    fn limits_change_and_stay() {
        let network: Network =
            serde_json::from_value(json!({ "allow": ["a.test"], "limits": { "bytes": 5 } }))
                .unwrap();
        let change = |limits: serde_json::Value| {
            let request = json!({ "id": "box", "limits": limits });
            network.with_changes(&serde_json::from_value(request).unwrap())
        };
        assert_eq!(change(json!(null)).unwrap().limits.bytes, Some(5));
        let changed = change(json!({ "connections": 3 })).unwrap();
        assert_eq!(json!(changed.policy().unwrap())["limits"], json!({ "connections": 3 }));
        assert_eq!(change(json!({ "connections": 0 })).unwrap_err().code, Code::RuleInvalid);
    }

    #[test]
    fn secrets_come_and_go_with_their_hosts() {
        let network: Network = serde_json::from_value(json!({
            "allow": ["a.test", "b.test", "*.c.test"],
            "secrets": ["A_KEY@a.test", "B_KEY@b.test", "B_KEY@x.c.test"],
        }))
        .unwrap();
        let change = |request: serde_json::Value| {
            let mut request = request;
            request["id"] = json!("box");
            let request: ChangeNetwork = serde_json::from_value(request).unwrap();
            let changed = network.with_changes(&request)?;
            let secrets = changed.secrets.iter().map(ToString::to_string);
            Ok::<Vec<String>, Problem>(secrets.collect())
        };
        for (request, expected) in [
            (json!({}), &["A_KEY@a.test", "B_KEY@b.test", "B_KEY@x.c.test"][..]),
            (json!({"refuse": ["a.test"]}), &["B_KEY@b.test", "B_KEY@x.c.test"]),
            (json!({"refuse": ["*.c.test"]}), &["A_KEY@a.test", "B_KEY@b.test"]),
            (json!({"removeSecrets": ["B_KEY"]}), &["A_KEY@a.test"]),
            // The new hosts are all hosts: the new value does not go to the old ones.
            (
                json!({"secrets": ["A_KEY@b.test"]}),
                &["B_KEY@b.test", "B_KEY@x.c.test", "A_KEY@b.test"],
            ),
            (
                json!({"allow": ["d.test"], "secrets": ["D_KEY@d.test"]}),
                &["A_KEY@a.test", "B_KEY@b.test", "B_KEY@x.c.test", "D_KEY@d.test"],
            ),
        ] {
            assert_eq!(change(request.clone()).unwrap(), expected, "{request}");
        }
        let unbound = change(json!({"secrets": ["D_KEY@d.test:8443"]})).unwrap_err();
        assert_eq!(unbound.remediation.as_deref(), Some("stockade allow box d.test:8443"));
        let refused = json!({"refuse": ["a.test"], "secrets": ["A_KEY@a.test"]});
        assert_eq!(change(refused).unwrap_err().code, Code::InvalidInput);
        for request in [
            json!({"removeSecrets": ["C_KEY"]}),
            json!({"secrets": ["D_KEY@a.test", "D_KEY@b.test:444"]}),
        ] {
            assert_eq!(change(request.clone()).unwrap_err().code, Code::InvalidInput, "{request}");
        }
        let text = serde_json::to_string(&Network::default()).unwrap();
        assert!(!text.contains("ecrets"), "records of before stay as they are: {text}");
    }
}
