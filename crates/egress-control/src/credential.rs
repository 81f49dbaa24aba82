//! A credential with its value. The egress process puts it into requests and checks both; the owner
//! only passes it on.

use serde::{Deserialize, Serialize};
use stockade_core::network::binding::Binding;
use zeroize::Zeroizing;

/// One credential with its value.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The binding.
    pub binding: Binding,
    /// The value, which is erased from memory after its use.
    pub value: Zeroizing<String>,
}

impl Credential {
    /// A credential with this value.
    pub fn new(binding: Binding, value: String) -> Self {
        Self { binding, value: Zeroizing::new(value) }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("binding", &self.binding).finish_non_exhaustive()
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        self.binding == other.binding && *self.value == *other.value
    }
}

impl Eq for Credential {}
