//! Credentials that never enter a sandbox: the hosts to which one is bound, and the part of a
//! request in which it is put. Values are not here.

use serde::{Deserialize, Serialize};

use super::request_match::{Requests, canonical_path};
use super::variables::obeyed_by;
use super::{MAX_PORTS, Name, Policy, Target};
use crate::access::Effect;
use crate::{Code, Problem};

/// The most credentials of one sandbox, and the most hosts of one of them.
pub const MAX_BINDINGS: usize = 64;
const MAX_HOSTS: usize = 64;
/// A placeholder is long enough not to occur in other text by chance.
const PLACEHOLDER_BYTES: std::ops::RangeInclusive<usize> = 16..=512;
const HEADER_BYTES: usize = 128;
const PREFIX_BYTES: usize = 64;
/// The port of HTTP over TLS.
pub(super) const PORT: u16 = 443;

/// Headers that define the framing or the destination of a message: a binding must not set them.
const RESERVED: &[&str] = &[
    "accept-charset",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "expect",
    "forwarded",
    "host",
    "if-range",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "sec-websocket-extensions",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// Where a credential is put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum CredentialSlot {
    /// It replaces this text, in any header. Programs inside have the text instead of the value.
    Placeholder(String),
    /// In a header of that name, after this prefix (`Bearer `). A value that programs inside have
    /// put there is removed.
    Header {
        /// The header.
        name: String,
        /// The text before the value.
        #[serde(default)]
        prefix: String,
    },
    /// As a parameter of that name in the query of the target. One that programs inside have put
    /// there is removed.
    Query {
        /// The parameter.
        name: String,
    },
}

/// One credential, bound to hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binding {
    /// Its name, chosen by its owner.
    pub credential: String,
    /// The hosts that receive it: names, or everything below a name.
    pub hosts: Vec<Target>,
    /// The ports at which TLS is intercepted: 443 if none is named.
    #[serde(default = "default_ports")]
    pub ports: Vec<u16>,
    /// Where it is put.
    pub place: CredentialSlot,
    /// The requests that receive it, if not all.
    #[serde(default, skip_serializing_if = "Requests::is_all")]
    pub requests: Requests,
    /// Whether traffic with its placeholder to other hosts is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

fn default_ports() -> Vec<u16> {
    vec![PORT]
}

/// Bindings that are refused; the code is `INVALID_INPUT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBinding {
    /// There are too many.
    #[error("a sandbox has at most {MAX_BINDINGS} credentials")]
    TooMany,
    /// One is invalid by itself.
    #[error("the binding of credential {credential:?} is invalid: {reason}")]
    Refused {
        /// The credential.
        credential: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No rule of the policy allows a host by its name.
    #[error("credential {credential:?} is bound to {host}, which no rule of the policy allows")]
    NotAllowed {
        /// The credential.
        credential: String,
        /// The host.
        host: String,
    },
}

impl From<InvalidBinding> for Problem {
    fn from(invalid: InvalidBinding) -> Self {
        let problem = Self::new(Code::InvalidInput, invalid.to_string());
        match invalid {
            InvalidBinding::NotAllowed { host, .. } => {
                problem.remedied_by(format!("--allow {host}"))
            }
            InvalidBinding::TooMany | InvalidBinding::Refused { .. } => problem,
        }
    }
}

impl Binding {
    /// Whether a host receives the credential at a port.
    pub fn applies_to(&self, name: &Name, port: u16) -> bool {
        let is_host = |host: &Target| match host {
            Target::Exact(own) => own == name,
            Target::Subdomains(parent) => name.is_below(parent),
            Target::Any | Target::Block(_) => false,
        };
        self.ports.contains(&port) && self.hosts.iter().any(is_host)
    }

    /// Whether a request to one of its hosts receives the credential. A path that servers read
    /// differently is none of its paths.
    pub fn applies_to_request(&self, method: &str, target: &str) -> bool {
        if self.requests.is_all() {
            return true;
        }
        canonical_path(target).is_ok_and(|path| self.requests.matches(method, path))
    }

    /// How specific its target for a name is: an exact name is more specific than names below one,
    /// and a longer name than a shorter one.
    pub fn specificity(&self, name: &Name) -> usize {
        let of = |host: &Target| match host {
            Target::Exact(own) if own == name => Some(usize::MAX),
            Target::Subdomains(parent) if name.is_below(parent) => Some(parent.as_str().len()),
            _ => None,
        };
        self.hosts.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Whether it is bound to no host and port that another binding is not bound to, in the same
    /// place.
    pub fn is_within(&self, other: &Self) -> bool {
        self.place == other.place
            && other.requests.covers(&self.requests)
            && self.ports.iter().all(|port| other.ports.contains(port))
            && self.hosts.iter().all(|host| other.hosts.iter().any(|own| covers(own, host)))
    }

    /// Whether it would be ambiguous which of two credentials is put in the same place.
    fn collides_with(&self, other: &Self) -> bool {
        match (&self.place, &other.place) {
            (CredentialSlot::Placeholder(own), CredentialSlot::Placeholder(other)) => {
                own.contains(other.as_str()) || other.contains(own.as_str())
            }
            (CredentialSlot::Header { name: own, .. }, CredentialSlot::Header { name, .. }) => {
                own.eq_ignore_ascii_case(name) && self.is_ambiguous_with(other)
            }
            (CredentialSlot::Query { name: own }, CredentialSlot::Query { name }) => {
                own == name && self.is_ambiguous_with(other)
            }
            _ => false,
        }
    }

    /// Whether some request could receive either, and neither target is more specific.
    fn is_ambiguous_with(&self, other: &Self) -> bool {
        self.ports.iter().any(|port| other.ports.contains(port))
            && self.requests.overlaps(&other.requests)
            && self.hosts.iter().any(|host| other.hosts.contains(host))
    }

    /// Whether some host receives both credentials.
    pub fn shares_host(&self, other: &Self) -> bool {
        let overlaps = |host| self.hosts.iter().any(|own| overlap(own, host));
        self.ports.iter().any(|port| other.ports.contains(port)) && other.hosts.iter().any(overlaps)
    }

    fn check(&self) -> Result<(), &'static str> {
        if obeyed_by(&self.credential).is_some() {
            return Err("programs obey the variable of its name");
        }
        if self.hosts.is_empty() || self.hosts.len() > MAX_HOSTS {
            return Err("it has no hosts, or too many");
        }
        if self.hosts.iter().any(|host| matches!(host, Target::Any | Target::Block(_))) {
            return Err(
                "a credential can be bound to names only, not to addresses or to all hosts",
            );
        }
        if self.ports.is_empty() || self.ports.len() > MAX_PORTS {
            return Err("it has no ports, or too many");
        }
        if let Some(fault) = self.requests.fault() {
            return Err(fault);
        }
        match &self.place {
            CredentialSlot::Placeholder(text) => {
                let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
                if !is_plain || !PLACEHOLDER_BYTES.contains(&text.len()) {
                    return Err("a placeholder has 16 to 512 visible characters of ASCII");
                }
            }
            CredentialSlot::Header { name, prefix } => {
                let is_token =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
                if name.is_empty() || name.len() > HEADER_BYTES || !name.bytes().all(is_token) {
                    return Err("its header name is invalid");
                }
                if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                    return Err(
                        "its header is controlled by the HTTP connection and cannot be set",
                    );
                }
                let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
                if prefix.len() > PREFIX_BYTES || !prefix.bytes().all(is_plain) {
                    return Err("its prefix is too long or is not ASCII text");
                }
            }
            CredentialSlot::Query { name } => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                if name.is_empty() || name.len() > HEADER_BYTES || !name.bytes().all(is_plain) {
                    return Err("the name of its parameter is invalid");
                }
            }
        }
        Ok(())
    }
}

/// Whether some name matches both targets.
fn overlap(one: &Target, other: &Target) -> bool {
    match (one, other) {
        (Target::Exact(one), Target::Exact(other)) => one == other,
        (Target::Exact(name), Target::Subdomains(parent))
        | (Target::Subdomains(parent), Target::Exact(name)) => name.is_below(parent),
        (Target::Subdomains(one), Target::Subdomains(other)) => {
            one == other || one.is_below(other) || other.is_below(one)
        }
        (Target::Any | Target::Block(_), _) | (_, Target::Any | Target::Block(_)) => false,
    }
}

/// Whether a target of names contains all names of another one.
fn covers(one: &Target, other: &Target) -> bool {
    match (one, other) {
        (Target::Exact(own), Target::Exact(name)) => own == name,
        (Target::Subdomains(parent), Target::Exact(name)) => name.is_below(parent),
        (Target::Subdomains(parent), Target::Subdomains(name)) => {
            name == parent || name.is_below(parent)
        }
        _ => false,
    }
}

/// Validates the bindings of one sandbox, also against its policy: each host must be allowed by a
/// rule that names it; a default is not enough.
///
/// # Errors
/// [`InvalidBinding`] for the first invalid one.
pub fn check_bindings(bindings: &[Binding], policy: &Policy) -> Result<(), InvalidBinding> {
    if bindings.len() > MAX_BINDINGS {
        return Err(InvalidBinding::TooMany);
    }
    for (index, binding) in bindings.iter().enumerate() {
        let credential = || binding.credential.clone();
        let refused = |reason| Err(InvalidBinding::Refused { credential: credential(), reason });
        if let Err(reason) = binding.check() {
            return refused(reason);
        }
        let collides = |other: &Binding| other.collides_with(binding);
        if bindings.get(..index).unwrap_or_default().iter().any(collides) {
            return refused("another credential uses the same header or placeholder");
        }
        for host in &binding.hosts {
            if !binding.ports.iter().all(|port| policy.names_target(host, *port)) {
                let host = host.to_string();
                return Err(InvalidBinding::NotAllowed { credential: credential(), host });
            }
        }
    }
    Ok(())
}

impl Policy {
    /// Whether a rule allows all hosts of a target by their names.
    fn names_target(&self, target: &Target, port: u16) -> bool {
        self.rules().iter().any(|rule| {
            let is_allowed = rule.action == Effect::Allow && rule.allows_port(Some(port));
            is_allowed && covers(&rule.target, target)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy() -> Policy {
        let allow = |target: &str| json!({"action": "allow", "target": target});
        let rules = vec![allow("api.example"), allow("*.hub.example"), allow("10.0.0.0/8")];
        let plain = json!({"action": "allow", "target": "plain.example", "ports": [80]});
        Policy::from_values(Effect::Allow, [rules, vec![plain]].concat()).unwrap()
    }

    fn check(host: &str, slot: serde_json::Value) -> Result<(), String> {
        let binding = json!({"credential": "c", "hosts": [host], "place": slot});
        let binding = serde_json::from_value(binding).map_err(|error| error.to_string())?;
        check_bindings(&[binding], &policy()).map_err(|error| error.to_string())
    }

    fn header(name: &str) -> serde_json::Value {
        json!({"header": {"name": name, "prefix": "Bearer "}})
    }

    #[test]
    fn a_credential_is_bound_to_hosts_that_a_rule_names() {
        for host in
            ["api.example", "API.example.", "a.hub.example", "*.hub.example", "*.a.hub.example"]
        {
            assert_eq!(check(host, header("Authorization")), Ok(()), "{host}");
        }
        for host in [
            "*",
            "api.*.com",
            "*github.com",
            "http://x",
            "10.1.2.3",
            "10.0.0.0/8",
            "other.example",
            "*.example",
            "hub.example",
            "*.api.example",
            "plain.example",
        ] {
            assert!(check(host, header("Authorization")).is_err(), "{host}");
        }
    }

    #[test]
    fn a_binding_is_within_one_for_as_many_hosts() {
        let binding = |hosts: &[&str], port: u16| -> Binding {
            let binding = json!({
                "credential": "c", "hosts": hosts, "ports": [port], "place": header("X-Key")
            });
            serde_json::from_value(binding).unwrap()
        };
        let own = binding(&["a.example", "*.b.example"], 443);
        for (hosts, port, is_within) in [
            (&["a.example"][..], 443, true),
            (&["x.b.example", "a.example"], 443, true),
            (&["*.x.b.example"], 443, true),
            (&["a.example"], 444, false),
            (&["b.example"], 443, false),
            (&["*.a.example"], 443, false),
            (&["a.example", "c.example"], 443, false),
        ] {
            assert_eq!(binding(hosts, port).is_within(&own), is_within, "{hosts:?}");
        }
        let elsewhere = Binding {
            place: CredentialSlot::Placeholder("placeholder-00001".to_owned()),
            ..binding(&["a.example"], 443)
        };
        assert!(!elsewhere.is_within(&own));
    }

    #[test]
    fn headers_of_the_message_are_nobodys() {
        for name in [
            "Host",
            "Content-Length",
            "Content-Type",
            "Transfer-Encoding",
            "Connection",
            "Upgrade",
            "TE",
            "Trailer",
            "Range",
            "Accept-Encoding",
            "Proxy-Authorization",
            "Proxy-Authenticate",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "hOsT",
            "",
            "a b",
            "a:",
            "a\r\nb",
        ] {
            assert!(check("api.example", header(name)).is_err(), "{name}");
        }
        assert_eq!(check("api.example", header("X-Api-Key")), Ok(()));
        let broken = json!({"header": {"name": "X-Key", "prefix": "a\r\nHost: "}});
        assert!(check("api.example", broken).is_err());
    }

    #[test]
    fn a_placeholder_is_no_ordinary_word() {
        for (text, is_good) in
            [("sk-placeholder-0001", true), ("short", false), ("with a blank in the middle", false)]
        {
            let answered = check("api.example", json!({"placeholder": text}));
            assert_eq!(answered.is_ok(), is_good, "{text}");
        }
    }

    #[test]
    fn a_place_is_one_credentials() {
        let binding = |host: &str, place: &serde_json::Value| -> Binding {
            let binding = json!({"credential": "c", "hosts": [host], "place": place});
            serde_json::from_value(binding).unwrap()
        };
        let word = |text: &str| json!({ "placeholder": text });
        for (one, other, is_good) in [
            (("api.example", header("X-Key")), ("a.hub.example", header("x-key")), true),
            (("api.example", header("X-Key")), ("api.example", header("X-Other")), true),
            (("api.example", header("X-Key")), ("api.example", header("x-key")), false),
            (("*.hub.example", header("X-Key")), ("*.a.hub.example", header("x-key")), true),
            (("*.hub.example", header("X-Key")), ("*.hub.example", header("x-key")), false),
            (("api.example", word("placeholder-0001")), ("api.example", header("x-key")), true),
            (
                ("api.example", word("placeholder-0001")),
                ("api.example", word("placeholder-0002")),
                true,
            ),
            (
                ("api.example", word("placeholder-0001")),
                ("a.hub.example", word("placeholder-00012")),
                false,
            ),
        ] {
            let bindings = [binding(one.0, &one.1), binding(other.0, &other.1)];
            assert_eq!(check_bindings(&bindings, &policy()).is_ok(), is_good, "{bindings:?}");
        }
        let many = vec![binding("api.example", &header("X-Key")); MAX_BINDINGS + 1];
        assert_eq!(check_bindings(&many, &policy()), Err(InvalidBinding::TooMany));
    }
}
