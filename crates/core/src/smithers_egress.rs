//! The network part of a `<Sandbox>`: the egress contract of Smithers ("Egress controls"). It is
//! parsed, normalized, converted to an environment and a policy, and redacted for storage.
//! Enforcement is not here.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};
use url::Url;

use crate::access::Effect;
use crate::address::{Class, classify};
use crate::network::{AllowedHost, HOST_LOOPBACK, Host, escaped};

/// The path of a certificate authority that is given as text, below the root of the request bundle.
pub const CA_FILE: &str = ".smithers/egress/ca.crt";
/// The same file as a process in a sandbox sees it.
pub const CA_FILE_INSIDE: &str = "/workspace/.smithers/egress/ca.crt";
/// Replaces a value that is not stored.
pub const REDACTED: &str = "[redacted]";

/// The longest name or key, in bytes.
const NAME_BYTES: usize = 512;
/// The longest value, in bytes.
const VALUE_BYTES: usize = 64 << 10;

/// The normalized contract, as a provider receives it in `request.egress`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// Environment variables inside.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The proxy for `http:` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// The proxy for `https:` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// The hosts that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// A certificate authority to trust, as PEM text. Never together with `ca_cert_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_pem: Option<String>,
    /// The path of one that exists inside already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_path: Option<String>,
    /// The secret of each placeholder.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_bindings: BTreeMap<String, String>,
    /// The only hosts that may be reached, besides the proxies. Smithers does not have this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_hosts: Option<Vec<AllowedHost>>,
}

/// Why a contract is refused; the code is `INVALID_INPUT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not an object.
    #[error("egress is not an object")]
    NotAnObject,
    /// A field has another type.
    #[error("egress.{field} is not {expected}")]
    Field {
        /// The field, with its own fields after a dot.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A text that is not a host.
    #[error("egress.allowHosts: {host:?}: {reason}")]
    Host {
        /// The text, shortened.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Both forms of a certificate authority are given.
    #[error("egress.caCertPem and egress.caCertPath exclude each other")]
    TwoAuthorities,
}

impl Contract {
    /// The fields of the prop.
    pub const FIELDS: [&str; 8] = [
        "env",
        "httpProxy",
        "httpsProxy",
        "noProxy",
        "caCertPem",
        "caCertPath",
        "secretBindings",
        "allowHosts",
    ];

    /// Parses the prop. Unknown fields are for providers and stay in the raw value.
    ///
    /// # Errors
    /// [`Error`] names the invalid field.
    pub fn parse(raw: &Value) -> Result<Self, Error> {
        let Value::Object(raw) = raw else { return Err(Error::NotAnObject) };
        let contract = Self {
            env: pairs(raw, "env", is_variable)?,
            http_proxy: text(raw, "httpProxy")?,
            https_proxy: text(raw, "httpsProxy")?,
            no_proxy: hosts(raw)?,
            ca_cert_pem: text(raw, "caCertPem")?,
            ca_cert_path: text(raw, "caCertPath")?,
            secret_bindings: pairs(raw, "secretBindings", |name| !name.is_empty())?,
            allow_hosts: allowed(raw)?,
        };
        if contract.ca_cert_pem.is_some() && contract.ca_cert_path.is_some() {
            return Err(Error::TwoAuthorities);
        }
        Ok(contract)
    }

    /// The hosts that a sandbox with a network may reach by this contract, and the default for all
    /// other names: only the hosts that it names or, if it names none, every name with only public
    /// addresses and every public address. The proxies are included in both cases, except for one
    /// on a loopback address, which is the sandbox's own, and for addresses that a proxy cannot
    /// have.
    pub fn network_rules(&self) -> (Effect, Vec<AllowedHost>) {
        let (default, hosts) = match &self.allow_hosts {
            Some(hosts) => (Effect::Deny, hosts.clone()),
            None => (Effect::Allow, PUBLIC.iter().filter_map(|all| all.parse().ok()).collect()),
        };
        let proxies = [&self.http_proxy, &self.https_proxy].into_iter().flatten();
        let proxies = proxies.filter_map(|proxy| host_of(proxy));
        (default, hosts.into_iter().chain(proxies).collect())
    }

    /// The contract for a sandbox of this machine. Its proxies on a loopback address are those of the
    /// machine, which has another name inside, [`HOST_LOOPBACK`]: there, a loopback address is the
    /// sandbox's own.
    #[must_use]
    pub fn on_this_machine(mut self) -> Self {
        for proxy in [&mut self.http_proxy, &mut self.https_proxy].into_iter().flatten() {
            if let Some(named) = named_on_machine(proxy) {
                *proxy = named;
            }
        }
        self
    }

    /// The ports of this machine's loopback that the proxies are at, after
    /// [`on_this_machine`](Self::on_this_machine).
    pub fn machine_ports(&self) -> BTreeSet<u16> {
        let proxies = [&self.http_proxy, &self.https_proxy].into_iter().flatten();
        let port = |proxy: &String| {
            let url = proxy_url(proxy)?;
            (url.host_str() == Some(HOST_LOOPBACK)).then(|| port_of(&url)).flatten()
        };
        proxies.filter_map(port).collect()
    }

    /// The variables that a process inside gets in addition to its own: `env`, the proxies under
    /// their usual names, and `NODE_EXTRA_CA_CERTS`.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let authority = match (&self.ca_cert_path, &self.ca_cert_pem) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(_)) => Some(CA_FILE_INSIDE.to_owned()),
            (None, None) => None,
        };
        let own = [
            ("HTTP_PROXY", self.http_proxy.clone()),
            ("HTTPS_PROXY", self.https_proxy.clone()),
            ("NO_PROXY", self.no_proxy.clone()),
            ("NODE_EXTRA_CA_CERTS", authority),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.env.clone().into_iter().chain(own).collect()
    }
}

/// The part of the raw prop that may be stored: the names of its fields and variables, but no
/// value, neither side of a binding, and nothing of an unknown field.
pub fn redacted(raw: &Value) -> Value {
    let Value::Object(raw) = raw else { return Value::from(REDACTED) };
    let field = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            ("env", Value::Object(env)) => {
                env.keys().map(|name| (name.clone(), Value::from(REDACTED))).collect()
            }
            ("secretBindings", Value::Object(bindings)) => (1..=bindings.len())
                .map(|number| (format!("binding_{number}"), Value::from(REDACTED)))
                .collect(),
            ("caCertPath", path) => path.clone(),
            ("allowHosts", hosts) if allowed(raw).is_ok() => hosts.clone(),
            _ => Value::from(REDACTED),
        };
        (name.clone(), value)
    };
    Value::Object(raw.iter().map(field).collect())
}

/// Every address; a rule about a block this large does not allow the non-public ones in it.
const PUBLIC: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The URL of a proxy, which may lack its scheme.
fn proxy_url(proxy: &str) -> Option<Url> {
    let proxy = proxy.trim();
    let with_scheme = if proxy.contains("://") { proxy } else { &format!("http://{proxy}") };
    Url::parse(with_scheme).ok()
}

/// The port of a proxy.
fn port_of(url: &Url) -> Option<u16> {
    // The port of SOCKS (RFC 1928).
    let usual = if url.scheme().starts_with("socks") { Some(1080) } else { None };
    url.port_or_known_default().or(usual)
}

/// A proxy on a loopback address with the name of this machine's loopback; `None` for another one.
fn named_on_machine(proxy: &str) -> Option<String> {
    let mut url = proxy_url(proxy)?;
    let is_loopback = match Host::parse(url.host_str()?).ok()? {
        Host::Address(address) => address.is_loopback(),
        Host::Name(name) => name.as_str() == "localhost",
    };
    if !is_loopback {
        return None;
    }
    url.set_host(Some(HOST_LOOPBACK)).ok()?;
    let text = url.to_string();
    // Programs that take the text apart themselves do not expect a path that was not there.
    let has_path = proxy.trim_end().ends_with('/');
    Some(if has_path { text } else { text.trim_end_matches('/').to_owned() })
}

/// The host of a proxy, as an allow rule.
fn host_of(proxy: &str) -> Option<AllowedHost> {
    let parsed = proxy_url(proxy)?;
    let host = Host::parse(parsed.host_str()?).ok()?;
    if let Host::Address(address) = host
        && !matches!(classify(address), Class::Public | Class::Private)
    {
        return None;
    }
    Some(AllowedHost::new(&host, port_of(&parsed)))
}

fn allowed(raw: &Map<String, Value>) -> Result<Option<Vec<AllowedHost>>, Error> {
    let hosts = match raw.get("allowHosts") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(hosts)) => hosts,
        Some(_) => {
            let (field, expected) = ("allowHosts".to_owned(), "a list of hosts");
            return Err(Error::Field { field, expected });
        }
    };
    let host = |host: &Value| {
        let text = host.as_str().unwrap_or_default();
        text.parse().map_err(|reason| Error::Host { host: escaped(text), reason })
    };
    hosts.iter().map(host).collect::<Result<_, _>>().map(Some)
}

/// Whether an environment variable can have this name (POSIX, "Environment Variables").
fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn text(raw: &Map<String, Value>, field: &str) -> Result<Option<String>, Error> {
    match raw.get(field) {
        // An optional prop may be computed: `process.env.SOMETHING` may be absent.
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if is_value(text) => Ok(Some(text.clone())),
        Some(_) => {
            Err(Error::Field { field: field.to_owned(), expected: "a string of at most 64 KiB" })
        }
    }
}

fn pairs(
    raw: &Map<String, Value>,
    field: &str,
    is_name: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, String>, Error> {
    let pairs = match raw.get(field) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(pairs)) => pairs,
        Some(_) => return Err(Error::Field { field: field.to_owned(), expected: "an object" }),
    };
    let pair = |(name, value): (&String, &Value)| {
        // The name is not reported, because it may be a placeholder of a secret.
        let wrong = |expected| Error::Field { field: format!("{field} (one of it)"), expected };
        if name.len() > NAME_BYTES || name.contains('\0') || !is_name(name) {
            return Err(wrong("with a valid name of at most 512 bytes"));
        }
        match value {
            Value::String(value) if is_value(value) => Ok((name.clone(), value.clone())),
            _ => Err(wrong("a string of at most 64 KiB")),
        }
    };
    pairs.iter().map(pair).collect()
}

fn hosts(raw: &Map<String, Value>) -> Result<Option<String>, Error> {
    let Some(Value::Array(hosts)) = raw.get("noProxy") else { return text(raw, "noProxy") };
    let expected = "a list of hosts";
    let wrong = || Error::Field { field: "noProxy".to_owned(), expected };
    let host = |host: &Value| {
        let host = host.as_str().filter(|host| is_value(host) && !host.contains(','));
        host.map(str::to_owned).ok_or_else(wrong)
    };
    let joined = hosts.iter().map(host).collect::<Result<Vec<_>, _>>()?.join(",");
    if joined.len() > VALUE_BYTES { Err(wrong()) } else { Ok(Some(joined)) }
}

fn is_value(text: &str) -> bool {
    text.len() <= VALUE_BYTES && !text.contains('\0')
}

#[cfg(test)]
mod tests;
