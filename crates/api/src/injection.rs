//! Credentials that are put into the requests of a sandbox by bindings, as in the credential vault of
//! OpenSandbox: the programs inside have neither a value nor a placeholder. Bindings are recorded with
//! the sandbox, values are in the memory of the egress process only.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::network::binding::{Binding, CredentialSlot};
use stockade_core::network::{Requests, Target};
use stockade_core::{Code, Problem, SandboxId};

use crate::Result;
use crate::secret_value::{SecretValue, values};

/// Where a credential is put into a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
#[serde(deny_unknown_fields)]
pub enum InjectionPlace {
    /// In `Authorization`, after `Bearer`.
    Bearer {
        /// The credential.
        credential: String,
    },
    /// In `Authorization`, after `Basic`; its value is the base64 of a name and a password.
    Basic {
        /// The credential.
        credential: String,
    },
    /// In a header.
    ApiKey {
        /// The header.
        name: String,
        /// The credential.
        credential: String,
    },
    /// In headers.
    CustomHeaders {
        /// The headers.
        headers: Vec<InjectedHeader>,
    },
    /// In a parameter of the query.
    Query {
        /// The parameter.
        name: String,
        /// The credential.
        credential: String,
    },
}

/// A header with a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectedHeader {
    /// The header.
    pub name: String,
    /// The credential.
    pub credential: String,
}

/// One binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Injection {
    /// Its name.
    pub name: String,
    /// The hosts: names, or everything below a name.
    #[schemars(with = "Vec<String>")]
    pub hosts: Vec<Target>,
    /// The ports.
    pub ports: Vec<u16>,
    /// The requests.
    #[serde(default, skip_serializing_if = "Requests::is_all")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub requests: Requests,
    /// Where the credential is put.
    pub place: InjectionPlace,
}

impl Injection {
    /// The credentials that it uses, each with its place.
    fn places(&self) -> Vec<(&str, CredentialSlot)> {
        let header = |name: &str, prefix: &str| CredentialSlot::Header {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
        };
        match &self.place {
            InjectionPlace::Bearer { credential } => {
                vec![(credential, header("Authorization", "Bearer "))]
            }
            InjectionPlace::Basic { credential } => {
                vec![(credential, header("Authorization", "Basic "))]
            }
            InjectionPlace::ApiKey { name, credential } => vec![(credential, header(name, ""))],
            InjectionPlace::CustomHeaders { headers } => {
                let one = |own: &'_ InjectedHeader| header(&own.name, "");
                headers.iter().map(|own| (own.credential.as_str(), one(own))).collect()
            }
            InjectionPlace::Query { name, credential } => {
                vec![(credential, CredentialSlot::Query { name: name.clone() })]
            }
        }
    }
}

/// The bindings of a sandbox, and the names of its credentials, each with the revision in which it was
/// added or replaced last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Injections {
    /// Counts the changes, from 1.
    pub revision: u64,
    /// The credentials.
    pub credentials: BTreeMap<String, u64>,
    /// The bindings.
    pub bindings: Vec<Injection>,
    /// Their revisions, by name.
    pub binding_revisions: BTreeMap<String, u64>,
}

impl Injections {
    /// The bindings in the form of the egress process: one for each use of a credential, under
    /// [`credential_name`].
    pub fn bindings(&self) -> Vec<Binding> {
        let of = |injection: &Injection| {
            let own = injection.places().into_iter().map(|(credential, place)| Binding {
                credential: credential_name(credential),
                hosts: injection.hosts.clone(),
                ports: injection.ports.clone(),
                place,
                requests: injection.requests.clone(),
                strict: false,
            });
            own.collect::<Vec<_>>()
        };
        self.bindings.iter().flat_map(of).collect()
    }

    /// The same after a change; the first one is that of nothing.
    ///
    /// # Errors
    /// [`Code::Conflict`] for another revision than the expected one, or a name that is taken;
    /// [`Code::NotFound`] for one that is not there; [`Code::InvalidInput`] for a credential that a
    /// binding uses and that is not there.
    pub fn changed(&self, change: &ChangeInjections) -> Result<Self> {
        if change.expected_revision.is_some_and(|expected| expected != self.revision) {
            let message = "the credentials were changed meanwhile";
            return Err(Problem::new(Code::Conflict, message)
                .because(format!("their revision is {}", self.revision)));
        }
        let mut changed = self.clone();
        changed.revision = self.revision.saturating_add(1);
        let revision = changed.revision;
        for name in &change.remove_credentials {
            changed.credentials.remove(name).ok_or_else(|| unknown("credential", name))?;
        }
        for name in change.replace_credentials.keys() {
            let own = changed.credentials.get_mut(name);
            *own.ok_or_else(|| unknown("credential", name))? = revision;
        }
        for name in change.add_credentials.keys() {
            check_name("credential", name)?;
            if changed.credentials.insert(name.clone(), revision).is_some() {
                return Err(taken("credential", name));
            }
        }
        for name in &change.remove_bindings {
            let before = changed.bindings.len();
            changed.bindings.retain(|own| own.name != *name);
            changed.binding_revisions.remove(name);
            if changed.bindings.len() == before {
                return Err(unknown("binding", name));
            }
        }
        for new in &change.replace_bindings {
            let own = changed.bindings.iter_mut().find(|own| own.name == new.name);
            *own.ok_or_else(|| unknown("binding", &new.name))? = new.clone();
            changed.binding_revisions.insert(new.name.clone(), revision);
        }
        for new in &change.add_bindings {
            check_name("binding", &new.name)?;
            if changed.binding_revisions.insert(new.name.clone(), revision).is_some() {
                return Err(taken("binding", &new.name));
            }
            changed.bindings.push(new.clone());
        }
        for injection in &changed.bindings {
            if let InjectionPlace::CustomHeaders { headers } = &injection.place {
                let names: BTreeSet<_> =
                    headers.iter().map(|own| own.name.to_ascii_lowercase()).collect();
                if headers.is_empty() || names.len() != headers.len() {
                    let message =
                        format!("the binding {} has no headers, or one twice", injection.name);
                    return Err(Problem::new(Code::InvalidInput, message));
                }
            }
            for (credential, _) in injection.places() {
                if !changed.credentials.contains_key(credential) {
                    let message = format!(
                        "the binding {} uses the credential {credential}, which is not there",
                        injection.name
                    );
                    return Err(Problem::new(Code::InvalidInput, message));
                }
            }
        }
        Ok(changed)
    }
}

/// The name of a credential for the egress process: no secret of a variable has one like it.
pub fn credential_name(credential: &str) -> String {
    format!("credential:{credential}")
}

fn unknown(what: &str, name: &str) -> Problem {
    let name: String = name.chars().take(128).collect();
    Problem::new(Code::NotFound, format!("there is no {what} {name:?}"))
}

fn taken(what: &str, name: &str) -> Problem {
    Problem::new(Code::Conflict, format!("there is a {what} {name:?} already"))
}

fn check_name(what: &str, name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(is_plain) {
        let message =
            format!("the name of a {what} must have 1 to 128 letters, digits, `-`, `_` and `.`");
        return Err(Problem::new(Code::InvalidInput, message));
    }
    Ok(())
}

/// Changes the credentials and bindings of a sandbox, all or nothing. Not recorded as an operation:
/// values are in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeInjections {
    /// The sandbox.
    pub id: SandboxId,
    /// The revision that is changed; the current one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    /// New credentials with their values.
    #[serde(default, deserialize_with = "values")]
    pub add_credentials: BTreeMap<String, SecretValue>,
    /// Credentials whose values are replaced.
    #[serde(default, deserialize_with = "values")]
    pub replace_credentials: BTreeMap<String, SecretValue>,
    /// The names of credentials that are removed; no binding may use them.
    #[serde(default)]
    pub remove_credentials: Vec<String>,
    /// New bindings.
    #[serde(default)]
    pub add_bindings: Vec<Injection>,
    /// Bindings that are replaced.
    #[serde(default)]
    pub replace_bindings: Vec<Injection>,
    /// The names of bindings that are removed.
    #[serde(default)]
    pub remove_bindings: Vec<String>,
    /// Removes everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear: bool,
}

impl ChangeInjections {
    /// A request that changes nothing.
    pub const fn new(id: SandboxId) -> Self {
        Self {
            id,
            expected_revision: None,
            add_credentials: BTreeMap::new(),
            replace_credentials: BTreeMap::new(),
            remove_credentials: Vec::new(),
            add_bindings: Vec::new(),
            replace_bindings: Vec::new(),
            remove_bindings: Vec::new(),
            clear: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(value: serde_json::Value) -> ChangeInjections {
        let mut all = json!({"id": "box"});
        all.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn binding(name: &str, credential: &str) -> serde_json::Value {
        json!({
            "name": name, "hosts": ["api.example"], "ports": [443],
            "place": {"type": "bearer", "credential": credential},
        })
    }

    #[test]
    fn a_change_is_whole_or_refused() {
        let first = Injections::default()
            .changed(&change(json!({
                "addCredentials": {"token": "value"}, "addBindings": [binding("b", "token")],
            })))
            .unwrap();
        assert_eq!((first.revision, first.bindings().len()), (1, 1));
        for (refused, code) in [
            (json!({"removeCredentials": ["token"]}), Code::InvalidInput),
            (json!({"removeCredentials": ["other"]}), Code::NotFound),
            (json!({"addCredentials": {"token": "x"}}), Code::Conflict),
            (json!({"addBindings": [binding("b", "token")]}), Code::Conflict),
            (json!({"addBindings": [binding("c", "other")]}), Code::InvalidInput),
            (json!({"replaceBindings": [binding("c", "token")]}), Code::NotFound),
            (json!({"expectedRevision": 2}), Code::Conflict),
        ] {
            let problem = first.changed(&change(refused.clone())).unwrap_err();
            assert_eq!(problem.code, code, "{refused}");
        }
        let second = first
            .changed(&change(json!({
                "expectedRevision": 1, "removeBindings": ["b"], "removeCredentials": ["token"],
            })))
            .unwrap();
        assert_eq!((second.revision, second.credentials.len()), (2, 0));
    }
}
