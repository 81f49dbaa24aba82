//! The credentials of one sandbox: how they are put into outgoing requests, and redacted from
//! responses.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::network::binding::{Binding, CredentialSlot, InvalidBinding, check_bindings};
use stockade_core::network::secret::value::{self, Contained, WeakValue};
use stockade_core::network::{Host, Name, Policy, Refusal};
use stockade_egress_control::Credential;
use zeroize::Zeroizing;

use crate::authority::{self, Authority};
use crate::first_bytes::http::{self, Head};
use crate::placeholders::Placeholder;
use crate::redaction::{self, Redaction};

/// Replaces a credential without a placeholder in a response.
const REDACTED: &str = "[redacted]";

/// Why credentials are refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Their bindings are invalid.
    #[error(transparent)]
    Binding(#[from] InvalidBinding),
    /// A value cannot be the value of a header.
    #[error(
        "the value of credential {0:?} is empty, too long, or not one line of visible ASCII characters"
    )]
    Value(String),
    /// A value can be guessed.
    #[error("the value of credential {0:?} can be guessed: {1}")]
    Weak(String, WeakValue),
    /// The value of one credential contains that of another one for the same host.
    #[error("the value of credential {outer:?} contains that of credential {inner:?}")]
    Contained {
        /// The one with the longer value.
        outer: String,
        /// The other one.
        inner: String,
    },
    /// There is no certificate authority for them.
    #[error(transparent)]
    Authority(#[from] authority::Error),
}

/// The credentials of one sandbox.
#[derive(Debug)]
pub(crate) struct Credentials {
    all: Vec<Credential>,
    pub(crate) authority: Arc<Authority>,
}

impl Credentials {
    /// Validates credentials against a policy, and creates an authority for the hosts that they are
    /// bound to.
    pub(crate) fn new(all: Vec<Credential>, policy: &Policy) -> Result<Self, Error> {
        check(&all, policy)?;
        Ok(Self { all, authority: Arc::new(Authority::new()?) })
    }

    /// Other credentials, with the same authority. Those without a value have the value of before,
    /// unless they are bound to more hosts than before.
    pub(crate) fn with(&self, mut all: Vec<Credential>, policy: &Policy) -> Result<Self, Error> {
        for credential in all.iter_mut().filter(|credential| credential.value.is_none()) {
            let binding = &credential.binding;
            // The owner of an injected credential binds it again without its value.
            let is_injected = |own: &Binding| !matches!(own.place, CredentialSlot::Placeholder(_));
            let is_same = |old: &&Credential| {
                old.binding.credential == binding.credential
                    && (binding.is_within(&old.binding)
                        || is_injected(binding) && is_injected(&old.binding))
            };
            let old = self.all.iter().find(|old| is_same(old) && old.value.is_some());
            credential.value = old.and_then(|old| old.value.clone());
        }
        check(&all, policy)?;
        Ok(Self { all, authority: Arc::clone(&self.authority) })
    }

    /// The names of the credentials without a value.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = self.all.iter().filter(|credential| credential.value.is_none());
        let names: BTreeSet<_> =
            missing.map(|credential| credential.binding.credential.clone()).collect();
        names.into_iter().collect()
    }

    /// Whether each binding still has its rule under another policy.
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), InvalidBinding> {
        check_bindings(&bindings(&self.all), policy)
    }

    /// The placeholders of the secrets that are not bound to a port of a host.
    pub(crate) fn elsewhere(&self, host: &Host, port: u16) -> Vec<Placeholder> {
        let is_bound = |binding: &Binding| match host {
            Host::Name(name) => binding.applies_to(name, port),
            Host::Address(_) => false,
        };
        let elsewhere = self.all.iter().map(|credential| &credential.binding);
        let placeholder = |binding: &Binding| match &binding.place {
            CredentialSlot::Placeholder(text) => Some(Placeholder {
                secret: binding.credential.clone(),
                text: text.clone(),
                strict: binding.strict,
            }),
            CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => None,
        };
        elsewhere.filter(|binding| !is_bound(binding)).filter_map(placeholder).collect()
    }

    /// Whether requests to a host are intercepted.
    pub(crate) fn apply_to(&self, name: &Name, port: u16) -> bool {
        self.for_host(name, port).next().is_some()
    }

    fn for_host<'a>(&'a self, name: &'a Name, port: u16) -> impl Iterator<Item = &'a Credential> {
        self.all.iter().filter(move |credential| credential.binding.applies_to(name, port))
    }

    /// The credentials that a request receives: of several for one place, that whose target is the
    /// most specific.
    fn for_request<'a>(&'a self, name: &'a Name, port: u16, head: &Head) -> Vec<&'a Credential> {
        let (method, target) = (head.method.clone(), head.target.clone());
        // A server may take it for another request than the one that its first line says.
        let is_uncertain = head.overrides_itself();
        let all: Vec<_> = self
            .for_host(name, port)
            .filter(|own| own.binding.applies_to_request(&method, &target))
            .filter(|own| own.binding.requests.is_all() || !is_uncertain)
            .collect();
        let is_best = |own: &&Credential| {
            !all.iter().any(|other| {
                has_same_place(&own.binding.place, &other.binding.place)
                    && other.binding.specificity(name) > own.binding.specificity(name)
            })
        };
        all.iter().copied().filter(|own| is_best(own)).collect()
    }

    /// Puts the credentials of a host into a request to it. Returns the redaction for its response: of
    /// all credentials of the host, which may repeat what it received before.
    ///
    /// # Errors
    /// [`Refusal::SecretMissing`] if it needs a credential that has no value.
    pub(crate) fn insert_into(
        &self,
        name: &Name,
        port: u16,
        head: &mut Head,
    ) -> Result<Redaction, Refusal> {
        let mut redaction = Redaction::default();
        for Credential { binding, value } in self.for_host(name, port) {
            if let Some(value) = value {
                add_value(&mut redaction, &binding.place, value.as_bytes());
            }
        }
        for Credential { binding, value } in self.for_request(name, port, head) {
            let Some(value) = value else {
                let is_needed = match &binding.place {
                    CredentialSlot::Placeholder(placeholder) => {
                        head.contains(placeholder.as_bytes())
                    }
                    CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => true,
                };
                if is_needed {
                    let secret = binding.credential.clone();
                    return Err(Refusal::SecretMissing { secret, host: Host::Name(name.clone()) });
                }
                continue;
            };
            match &binding.place {
                CredentialSlot::Placeholder(placeholder) => {
                    let (placeholder, value) = (placeholder.as_bytes(), value.as_bytes());
                    head.replace(placeholder, value);
                    for (now, before) in head.replace_in_basic(placeholder, value) {
                        redaction.add(&now, &before);
                    }
                }
                CredentialSlot::Header { name, prefix } => {
                    let value = Zeroizing::new(format!("{prefix}{}", value.as_str()));
                    head.set(name, value.as_bytes());
                }
                CredentialSlot::Query { name } => {
                    head.set_parameter(name, &redaction::percent_encoded(value.as_bytes()));
                }
            }
        }
        Ok(redaction)
    }
}

/// Adds a value and its forms to what is redacted.
fn add_value(redaction: &mut Redaction, place: &CredentialSlot, value: &[u8]) {
    let instead = match place {
        CredentialSlot::Placeholder(placeholder) => placeholder.as_bytes(),
        CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => REDACTED.as_bytes(),
    };
    redaction.add(value, instead);
    redaction.add_forms(value, instead);
    if let CredentialSlot::Header { prefix, .. } = place
        && prefix.as_bytes().eq_ignore_ascii_case(http::BASIC)
        && let Ok(decoded) = STANDARD.decode(value).map(Zeroizing::new)
    {
        add_parts(redaction, &decoded);
    }
}

/// Whether two credentials would be put in the same part of a request.
fn has_same_place(one: &CredentialSlot, other: &CredentialSlot) -> bool {
    match (one, other) {
        (CredentialSlot::Header { name, .. }, CredentialSlot::Header { name: other, .. }) => {
            name.eq_ignore_ascii_case(other)
        }
        (CredentialSlot::Query { name }, CredentialSlot::Query { name: other }) => name == other,
        _ => false,
    }
}

/// A host may repeat a user name and a password as it has decoded them, or the password alone.
fn add_parts(redaction: &mut Redaction, decoded: &[u8]) {
    if decoded.is_empty() {
        return;
    }
    redaction.add(decoded, REDACTED.as_bytes());
    let password =
        decoded.iter().position(|byte| *byte == b':').and_then(|at| decoded.get(at + 1..));
    if let Some(password) = password.filter(|password| password.len() >= value::LEAST_BYTES) {
        redaction.add(password, REDACTED.as_bytes());
        redaction.add_forms(password, REDACTED.as_bytes());
    }
}

fn bindings(all: &[Credential]) -> Vec<Binding> {
    all.iter().map(|credential| credential.binding.clone()).collect()
}

fn check(all: &[Credential], policy: &Policy) -> Result<(), Error> {
    check_bindings(&bindings(all), policy)?;
    let with_value = || {
        all.iter().filter_map(|own| own.value.as_ref().map(|value| (&own.binding, value.as_str())))
    };
    for (binding, value) in with_value() {
        if !value::can_be_sent(value) {
            return Err(Error::Value(binding.credential.clone()));
        }
        value::check(value).map_err(|weak| Error::Weak(binding.credential.clone(), weak))?;
    }
    let pairs: Vec<_> = with_value().collect();
    match value::contained(&pairs) {
        Some(Contained { outer, inner }) => {
            Err(Error::Contained { outer: outer.to_owned(), inner: inner.to_owned() })
        }
        None => Ok(()),
    }
}
