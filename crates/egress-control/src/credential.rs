//! A credential with its value. The egress process puts it into requests and checks both; the owner
//! only passes it on. The owner of a persistent sandbox does not keep values: it names credentials
//! without one, and the process uses the value that it has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_core::network::binding::Binding;
use zeroize::Zeroizing;

/// Values of credentials by name. Each is erased from memory after its use.
#[derive(Clone, Default)]
pub struct Values(BTreeMap<String, Zeroizing<String>>);

impl Values {
    /// Adds a value; a later one under the same name replaces it.
    pub fn add(&mut self, name: String, value: Zeroizing<String>) {
        self.0.insert(name, value);
    }

    /// Gives each credential that is named here its value.
    pub(crate) fn give(self, credentials: &mut [Credential]) {
        for credential in credentials {
            // Several bindings may use one.
            if let Some(value) = self.0.get(&credential.binding.credential) {
                credential.value = Some(value.clone());
            }
        }
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// One credential, with its value or without.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The binding.
    pub binding: Binding,
    /// The value, which is erased from memory after its use. Without one the process uses the value
    /// that it has under this name, if the credential is bound to no more than before; otherwise the
    /// value is missing.
    #[serde(default)]
    pub value: Option<Zeroizing<String>>,
}

impl Credential {
    /// A credential with this value.
    pub fn new(binding: Binding, value: String) -> Self {
        Self { binding, value: Some(Zeroizing::new(value)) }
    }

    /// A credential whose value the process has, or must be given.
    pub const fn without_value(binding: Binding) -> Self {
        Self { binding, value: None }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("binding", &self.binding).finish_non_exhaustive()
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        let has_value = match (&self.value, &other.value) {
            (Some(own), Some(other)) => own.as_bytes() == other.as_bytes(),
            (None, None) => true,
            _ => false,
        };
        self.binding == other.binding && has_value
    }
}

impl Eq for Credential {}
