//! The network policy of a sandbox: which hosts it may connect to. Only the rules are here; code
//! that connects checks the name, and again every address that the name resolves to.
//!
//! - Any deny beats any allow; the order of rules never matters. The default decides where no rule
//!   matches.
//! - A rule names a host (`api.example.com`), everything below a name and not the name itself
//!   (`*.example.com`), an address, or a block of addresses; if it names ports, it applies to those
//!   only.
//! - An address literal instead of a name needs a rule with that address, whatever the default is:
//!   otherwise it would bypass every rule about a name.
//! - A rule about methods or paths is about requests of HTTP to names: the connection is read, and
//!   each request is checked by itself.
//! - `*` stands for every name and every public address.
//! - A name that resolves to an address of the local machine or of a private network is refused
//!   even if the name is allowed, unless a rule allows exactly that address, or a block within the
//!   addresses of its class, or the rule that allows the name is *internal*: then this name may lead
//!   to a private network, and no other name and no address is opened.
//! - [`HOST_LOOPBACK`] is the loopback of the machine that Stockade runs on. Only a rule that names it
//!   and its ports allows it.

mod allowed_host;
pub mod binding;
mod block;
mod coverage;
mod denied;
#[cfg(test)]
mod denied_forms;
pub mod document;
mod hint;
mod misdirected;
mod name;
mod refusal;
pub mod request_match;
pub mod secret;
#[cfg(test)]
mod tests;
mod traffic_limits;
mod trust;
mod upstream;
pub mod variables;
mod wanted;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

pub use allowed_host::AllowedHost;
pub use block::{Block, InvalidBlock};
pub use denied::{DeniedConnection, DeniedConnections, MAX_DENIED, Transport};
pub use misdirected::{MAX_MISDIRECTED, Misdirection};
use name::as_text;
pub(crate) use name::escaped;
pub use name::{Host, InvalidName, Name};
pub use refusal::{Evidence, Reason, Refusal};
use request_match::canonical_path;
pub use request_match::{PathPattern, Requests};
pub use traffic_limits::{MAX_CONNECTIONS, MIN_BANDWIDTH, TrafficLimits};
pub use trust::{TRUSTED_INSIDE, trust_variables};
pub use upstream::Upstream;
pub use wanted::{MAX_WANTED, WantedHost, WantedHosts};

use crate::access::Effect;
use crate::address::{Class, classify};
use crate::error::{Code, Problem};

/// The name of the loopback of the machine that Stockade runs on.
pub const HOST_LOOPBACK: &str = "host.stockade.internal";

/// The most rules of a policy.
pub const MAX_RULES: usize = 512;
/// The most ports of a rule.
pub const MAX_PORTS: usize = 64;

/// The paths at which systems keep the certificates of trusted authorities, in one file.
pub const AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The hosts that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every name and every public address.
    Any,
    /// The host with that name.
    Exact(Name),
    /// Every host below that name, but not the host with that name.
    Subdomains(Name),
    /// Every address of a block.
    Block(Block),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(parent) = text.strip_prefix("*.") {
            return Name::parse(parent).map(Self::Subdomains).map_err(|error| error.to_string());
        }
        // Only a block has a slash, and only an IPv6 address a colon.
        if text.contains(['/', ':']) {
            return text.parse().map(Self::Block).map_err(|error: InvalidBlock| error.to_string());
        }
        match Host::parse(text).map_err(|error| error.to_string())? {
            Host::Name(name) => Ok(Self::Exact(name)),
            Host::Address(address) => Ok(Self::Block(Block::from_address(address))),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => name.fmt(f),
            Self::Subdomains(name) => write!(f, "*.{name}"),
            Self::Block(block) => block.fmt(f),
        }
    }
}

as_text!(Target);

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What the rule does.
    pub action: Effect,
    /// The hosts.
    pub target: Target,
    /// The ports; all if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Whether the names that it allows may lead to a private network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// The requests, if it is not about all traffic.
    #[serde(default, skip_serializing_if = "Requests::is_all")]
    pub requests: Requests,
}

impl Rule {
    /// A rule about all traffic to a target at all ports.
    pub fn new(action: Effect, target: Target) -> Self {
        let (ports, requests) = (Vec::new(), Requests::default());
        Self { action, target, ports, internal: false, requests }
    }

    /// What it is about, in words.
    pub fn subject(&self) -> String {
        if self.requests.is_all() {
            self.target.to_string()
        } else {
            format!("{} {}", self.target, self.requests)
        }
    }

    /// What is wrong with the rule by itself.
    fn fault(&self) -> Option<String> {
        if self.ports.len() > MAX_PORTS {
            return Some(format!("a rule has at most {MAX_PORTS} ports"));
        }
        if self.ports.contains(&0) {
            return Some("0 is not a port".to_owned());
        }
        let is_name = matches!(self.target, Target::Exact(_) | Target::Subdomains(_));
        if self.internal && (self.action == Effect::Deny || !is_name) {
            return Some("only a rule that allows a name can be internal".to_owned());
        }
        if !self.requests.is_all() && !is_name {
            return Some("only a rule about names can be about methods or paths".to_owned());
        }
        if let Some(fault) = self.requests.fault() {
            return Some(fault.to_owned());
        }
        let is_host = matches!(&self.target, Target::Exact(name) if is_host_loopback(name));
        if is_host && self.action == Effect::Allow && self.ports.is_empty() {
            return Some(format!("a rule that allows {HOST_LOOPBACK} must name its ports"));
        }
        if is_host && self.internal {
            return Some(format!("{HOST_LOOPBACK} needs no internal rule"));
        }
        None
    }
    /// Whether it denies everything that another rule denies.
    pub(crate) fn denies_all_of(&self, other: &Self) -> bool {
        let has_ports = self.ports.is_empty()
            || !other.ports.is_empty() && other.ports.iter().all(|port| self.matches_port(*port));
        self.target == other.target && has_ports && self.requests.covers(&other.requests)
    }

    /// Whether some traffic may be about both rules. If in doubt, the answer is yes.
    pub(crate) fn may_share(&self, other: &Self) -> bool {
        let share_port = self.ports.is_empty()
            || other.ports.is_empty()
            || self.ports.iter().any(|port| other.ports.contains(port));
        let share_target = match (&self.target, &other.target) {
            (Target::Exact(one), Target::Exact(other)) => one == other,
            (Target::Exact(name), Target::Subdomains(parent))
            | (Target::Subdomains(parent), Target::Exact(name)) => name.is_below(parent),
            (Target::Subdomains(one), Target::Subdomains(other)) => {
                one == other || one.is_below(other) || other.is_below(one)
            }
            _ => true,
        };
        share_port && share_target && self.requests.overlaps(&other.requests)
    }

    fn matches_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Whether it denies that port or, without one, all ports.
    fn denies_port(&self, port: Option<u16>) -> bool {
        port.map_or(self.ports.is_empty(), |port| self.matches_port(port))
    }

    /// Whether it allows that port or, without one, at least one port.
    fn allows_port(&self, port: Option<u16>) -> bool {
        port.is_none_or(|port| self.matches_port(port))
    }

    fn matches_name(&self, name: &Name) -> bool {
        // What allows much does not allow the host's own loopback by accident.
        let is_wide = self.action == Effect::Allow && is_host_loopback(name);
        match &self.target {
            Target::Any => !is_wide,
            Target::Exact(own) => own == name,
            Target::Subdomains(parent) => !is_wide && name.is_below(parent),
            Target::Block(_) => false,
        }
    }

    const fn block(&self) -> Option<&Block> {
        match &self.target {
            Target::Block(block) => Some(block),
            Target::Any | Target::Exact(_) | Target::Subdomains(_) => None,
        }
    }

    /// Whether it applies to an address of this class.
    fn matches_address(&self, address: IpAddr, class: Class) -> bool {
        match &self.target {
            Target::Any => class.is_public(),
            Target::Block(block) => block.contains_address(address),
            Target::Exact(_) | Target::Subdomains(_) => false,
        }
    }
}

/// Whether a name is [`HOST_LOOPBACK`].
pub fn is_host_loopback(name: &Name) -> bool {
    name.as_str() == HOST_LOOPBACK
}

/// Whether an internal rule lets names lead to addresses of this class. Those of one link are not
/// among them, nor are services that give credentials to machines: they need a rule for the address.
const fn is_internal_network(class: Class) -> bool {
    matches!(class, Class::Private | Class::Carrier)
}

/// A rule that is refused; the code is `RULE_INVALID`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network rule {index}: {reason}")]
pub struct InvalidRule {
    /// Its index, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl From<InvalidRule> for Problem {
    fn from(invalid: InvalidRule) -> Self {
        Self::new(Code::RuleInvalid, format!("the network rule {} is invalid", invalid.index))
            .because(invalid.reason)
    }
}

/// Limits that are refused; the code is `RULE_INVALID`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network limits: {0}")]
pub struct InvalidLimits(String);

impl From<InvalidLimits> for Problem {
    fn from(invalid: InvalidLimits) -> Self {
        Self::new(Code::RuleInvalid, "the network limits are invalid").because(invalid.0)
    }
}

/// The policy of one sandbox. The default value denies everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    default: Effect,
    rules: Vec<Rule>,
    #[serde(skip_serializing_if = "TrafficLimits::is_none")]
    limits: TrafficLimits,
}

impl Default for Policy {
    fn default() -> Self {
        Self { default: Effect::Deny, rules: Vec::new(), limits: TrafficLimits::default() }
    }
}

impl Policy {
    /// A policy of validated rules.
    ///
    /// # Errors
    /// [`InvalidRule`] for a rule over the limit, or with too many ports or the port 0.
    pub fn new(default: Effect, rules: Vec<Rule>) -> Result<Self, InvalidRule> {
        for (index, rule) in rules.iter().enumerate() {
            let invalid = |reason| Err(InvalidRule { index, reason });
            if index >= MAX_RULES {
                return invalid(format!("a policy has at most {MAX_RULES} rules"));
            }
            if let Some(fault) = rule.fault() {
                return invalid(fault);
            }
        }
        Ok(Self { default, rules, limits: TrafficLimits::default() })
    }

    /// The same policy with these limits.
    ///
    /// # Errors
    /// [`InvalidLimits`].
    pub fn with_limits(self, limits: TrafficLimits) -> Result<Self, InvalidLimits> {
        match limits.fault() {
            Some(fault) => Err(InvalidLimits(fault)),
            None => Ok(Self { limits, ..self }),
        }
    }

    /// How much traffic there may be.
    pub const fn limits(&self) -> TrafficLimits {
        self.limits
    }

    /// A policy from rules that were parsed as JSON values.
    ///
    /// # Errors
    /// [`InvalidRule`] for the first one with another shape, and as [`Policy::new`].
    pub fn from_values(
        default: Effect,
        rules: Vec<serde_json::Value>,
    ) -> Result<Self, InvalidRule> {
        let rule = |(index, value)| {
            serde_json::from_value(value)
                .map_err(|error| InvalidRule { index, reason: error.to_string() })
        };
        Self::new(default, rules.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?)
    }

    /// The effect where no rule matches the host.
    pub const fn default_effect(&self) -> Effect {
        self.default
    }

    /// The rules, in the order they were given.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether a connection to a port of a host may be requested. For a name, this does not check
    /// its addresses: call [`Policy::check_resolved`] for that.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, host: &Host, port: u16) -> Result<(), Refusal> {
        match host {
            Host::Name(name) => self.check_name(name, Some(port)),
            Host::Address(address) => self.check_address(*address, port),
        }
    }

    /// Whether a name may be looked up: at least one port of it may be requested.
    ///
    /// # Errors
    /// Why not.
    pub fn check_lookup(&self, name: &Name) -> Result<(), Refusal> {
        self.check_name(name, None)
    }

    fn check_name(&self, name: &Name, port: Option<u16>) -> Result<(), Refusal> {
        let host = || Host::Name(name.clone());
        let mut is_known = false;
        let mut is_allowed = self.default == Effect::Allow && !is_host_loopback(name);
        for rule in self.rules.iter().filter(|rule| rule.matches_name(name)) {
            match rule.action {
                // A rule about requests does not deny the connection.
                Effect::Deny if rule.requests.is_all() && rule.denies_port(port) => {
                    return Err(Refusal::Denied { host: host(), rule: rule.target.to_string() });
                }
                Effect::Deny => {}
                Effect::Allow => {
                    is_known = true;
                    is_allowed |= rule.allows_port(port);
                }
            }
        }
        match port {
            _ if is_allowed => Ok(()),
            Some(port) if is_known => Err(Refusal::PortNotAllowed { host: host(), port }),
            _ => Err(Refusal::NotAllowed { host: host() }),
        }
    }

    /// Whether requests to a port of a host must be read, because a rule is about some of them.
    pub fn reads_requests(&self, name: &Name, port: u16) -> bool {
        self.rules.iter().any(|rule| {
            !rule.requests.is_all() && rule.matches_name(name) && rule.matches_port(port)
        })
    }

    /// Whether any rule is about requests, so that connections may have to be read.
    pub fn has_request_rules(&self) -> bool {
        self.rules.iter().any(|rule| !rule.requests.is_all())
    }

    /// Whether a request may be sent to a port of a host that may be connected to.
    ///
    /// # Errors
    /// Why not; also for a path that two servers could read differently, if a rule is about requests.
    pub fn check_request(
        &self,
        name: &Name,
        port: u16,
        (method, target): (&str, &str),
    ) -> Result<(), Refusal> {
        if !self.reads_requests(name, port) {
            return Ok(());
        }
        // Some servers take `get` for `GET`, and some do not.
        if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Err(Refusal::InvalidRequest {
                what: "its method is not in capitals, and a rule is about paths or methods",
            });
        }
        let path = if target == "*" && method == "OPTIONS" {
            "/"
        } else {
            canonical_path(target).map_err(|_| Refusal::InvalidRequest {
                what: "its path can be read differently, and a rule is about paths or methods",
            })?
        };
        let host = || Host::Name(name.clone());
        let is_about = |rule: &&Rule| {
            let requests = &rule.requests;
            rule.matches_name(name)
                && rule.matches_port(port)
                && match rule.action {
                    Effect::Deny => requests.may_match(method, path),
                    Effect::Allow => requests.matches(method, path),
                }
        };
        let mut is_allowed = self.default == Effect::Allow && !is_host_loopback(name);
        for rule in self.rules.iter().filter(is_about) {
            match rule.action {
                Effect::Deny => {
                    return Err(Refusal::Denied { host: host(), rule: rule.subject() });
                }
                Effect::Allow => is_allowed = true,
            }
        }
        if is_allowed {
            return Ok(());
        }
        let (method, path) = (escaped(method), escaped(path));
        Err(Refusal::RequestNotAllowed { host: host(), method, path })
    }

    fn check_address(&self, address: IpAddr, port: u16) -> Result<(), Refusal> {
        let host = Host::Address(address);
        self.check_denied(&host, Some(port), address)?;
        let class = classify(address);
        if self.grants(address, Some(port), class) {
            return Ok(());
        }
        if self.grants(address, None, class) {
            return Err(Refusal::PortNotAllowed { host, port });
        }
        if self.allow_rules_for(address).next().is_some() {
            return Err(Refusal::InternalAddress { host, port: Some(port), address, class });
        }
        Err(Refusal::AddressNotAllowed { address })
    }

    /// Whether the addresses of an allowed name are allowed, at one port or, without one, at any
    /// port. Each address counts: one refused address makes the name refused.
    ///
    /// # Errors
    /// Why not, for the first such address.
    pub fn check_resolved(
        &self,
        name: &Name,
        port: Option<u16>,
        addresses: &[IpAddr],
    ) -> Result<(), Refusal> {
        let host = Host::Name(name.clone());
        if is_host_loopback(name) && addresses.iter().all(|address| address.is_loopback()) {
            return self.check_name(name, port);
        }
        for address in addresses {
            let (address, class) = (address.to_canonical(), classify(*address));
            self.check_denied(&host, port, address)?;
            let is_granted = || {
                self.grants(address, port, class)
                    || is_internal_network(class) && self.allows_internal(name, port)
            };
            if !class.is_public() && !is_granted() {
                return Err(Refusal::InternalAddress { host, port, address, class });
            }
        }
        Ok(())
    }

    /// Whether a rule allows exactly this address: such a rule permits any class.
    pub fn allows_exactly(&self, address: IpAddr, port: u16) -> bool {
        let is_exact = |rule: &Rule| rule.block().is_some_and(|block| block.is_exactly(address));
        self.allow_rules_for(address).any(|rule| is_exact(rule) && rule.matches_port(port))
    }

    /// Whether a name may lead to a private network, at a port or, without one, at any.
    pub fn allows_internal(&self, name: &Name, port: Option<u16>) -> bool {
        let allows = |rule: &&Rule| rule.action == Effect::Allow && rule.matches_name(name);
        self.rules.iter().filter(allows).any(|rule| rule.internal && rule.allows_port(port))
    }

    /// The rules that allow an address, or a block that contains it.
    fn allow_rules_for(&self, address: IpAddr) -> impl Iterator<Item = &Rule> {
        let class = classify(address);
        let is_about = move |rule: &&Rule| {
            rule.action == Effect::Allow && rule.matches_address(address, class)
        };
        self.rules.iter().filter(is_about)
    }

    fn grants(&self, address: IpAddr, port: Option<u16>, class: Class) -> bool {
        let grants = |rule: &Rule| {
            let block = rule.block();
            rule.allows_port(port)
                && (class.is_public()
                    || block
                        .is_some_and(|block| block.is_exactly(address) || block.is_in_class(class)))
        };
        self.allow_rules_for(address).any(grants)
    }

    fn check_denied(&self, host: &Host, port: Option<u16>, address: IpAddr) -> Result<(), Refusal> {
        let denies = |rule: &&Rule| {
            rule.action == Effect::Deny
                && rule.denies_port(port)
                && match &rule.target {
                    Target::Any => true,
                    _ => rule.block().is_some_and(|block| block.matches(address)),
                }
        };
        match self.rules.iter().find(denies) {
            Some(rule) => {
                Err(Refusal::Denied { host: host.clone(), rule: rule.target.to_string() })
            }
            None => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            default: Effect,
            #[serde(default)]
            rules: Vec<serde_json::Value>,
            #[serde(default)]
            limits: TrafficLimits,
        }
        let Raw { default, rules, limits } = Raw::deserialize(deserializer)?;
        let policy = Self::from_values(default, rules).map_err(de::Error::custom)?;
        policy.with_limits(limits).map_err(de::Error::custom)
    }
}
