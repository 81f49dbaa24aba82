//! What a `<Sandbox>` says of its way to the network: the egress contract of Smithers ("Egress
//! controls"). Read here, made uniform, turned into an environment and a policy, and stripped of what
//! nobody may store. What lets traffic through is not here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use url::Url;

use crate::access::Effect;
use crate::address::{Class, classify};
use crate::network::{Allowed, Host, shown};

/// Where a certificate authority that is given as text lies, below the request bundle's root.
pub const CA_FILE: &str = ".smithers/egress/ca.crt";
/// The same file as a process in a sandbox sees it.
pub const CA_FILE_INSIDE: &str = "/workspace/.smithers/egress/ca.crt";
/// What stands for a value that is not stored.
pub const REDACTED: &str = "[redacted]";

/// The longest name or key, in bytes.
const NAME_BYTES: usize = 512;
/// The longest value, in bytes.
const VALUE_BYTES: usize = 64 << 10;

/// The uniform contract, as a provider receives it in `request.egress`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// Variables of the environment inside.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The proxy for `http:` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// The proxy for `https:` addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// The hosts that are reached without a proxy, with commas between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// A certificate authority to trust, as PEM text. Never together with `ca_cert_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_pem: Option<String>,
    /// Where one lies that is inside already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_path: Option<String>,
    /// Which placeholder stands for which secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_bindings: BTreeMap<String, String>,
    /// The only hosts that may be reached, besides the proxies. Smithers does not have this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_hosts: Option<Vec<Allowed>>,
}

/// Why a contract is refused: the code is `INVALID_INPUT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not an object.
    #[error("egress is not an object")]
    NotAnObject,
    /// A field is of another kind.
    #[error("egress.{field} is not {expected}")]
    Field {
        /// The field, with its own fields after a dot.
        field: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A host that is none.
    #[error("egress.allowHosts: {host:?}: {reason}")]
    Host {
        /// What stands there, shortened.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Both forms of a certificate authority are given.
    #[error("egress.caCertPem and egress.caCertPath exclude each other")]
    TwoAuthorities,
}

impl Contract {
    /// Reads the prop. Fields that it does not know are for providers and stay in the raw value.
    ///
    /// # Errors
    /// [`Error`] names the field that is not what it should be.
    pub fn read(raw: &Value) -> Result<Self, Error> {
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

    /// Whom a sandbox reaches by this contract that has a network, and what becomes of all other
    /// names: the hosts that it names and no other or, where it says nothing of hosts, every name that
    /// leads to public addresses alone and every public address. The proxies are among them in each
    /// case, but for one that is on a loopback, which is the sandbox's own, and for addresses that no
    /// proxy has.
    pub fn reach(&self) -> (Effect, Vec<Allowed>) {
        let (default, hosts) = match &self.allow_hosts {
            Some(hosts) => (Effect::Deny, hosts.clone()),
            None => (Effect::Allow, PUBLIC.iter().filter_map(|all| all.parse().ok()).collect()),
        };
        let proxies = [&self.http_proxy, &self.https_proxy].into_iter().flatten();
        let proxies = proxies.filter_map(|proxy| host_of(proxy));
        (default, hosts.into_iter().chain(proxies).collect())
    }

    /// The variables that a process inside gets after its own ones: `env`, the proxies under their
    /// usual names, and `NODE_EXTRA_CA_CERTS`.
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

/// What of the raw prop may be stored: the names of its fields and variables. No value is, nor is
/// either side of a binding, and of a field that is not known nothing is.
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

/// Every address; what is not public among them is granted by no rule about so many.
const PUBLIC: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The host of a proxy, as it is to be allowed.
fn host_of(proxy: &str) -> Option<Allowed> {
    let proxy = proxy.trim();
    let parsed = if proxy.contains("://") {
        Url::parse(proxy)
    } else {
        Url::parse(&format!("http://{proxy}"))
    };
    let parsed = parsed.ok()?;
    let host = Host::parse(parsed.host_str()?).ok()?;
    if let Host::Address(address) = host
        && !matches!(classify(address), Class::Public | Class::Private)
    {
        return None;
    }
    // Those of SOCKS listen there (RFC 1928).
    let usual = if parsed.scheme().starts_with("socks") { Some(1080) } else { None };
    Some(Allowed::of(&host, parsed.port_or_known_default().or(usual)))
}

fn allowed(raw: &Map<String, Value>) -> Result<Option<Vec<Allowed>>, Error> {
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
        text.parse().map_err(|reason| Error::Host { host: shown(text), reason })
    };
    hosts.iter().map(host).collect::<Result<_, _>>().map(Some)
}

/// Whether the environment can have a variable of this name (POSIX, "Environment Variables").
fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn text(raw: &Map<String, Value>, field: &str) -> Result<Option<String>, Error> {
    match raw.get(field) {
        // An optional prop that is computed: `process.env.SOMETHING` may be absent.
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
        // A name may be a secret's placeholder: it is not told.
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
