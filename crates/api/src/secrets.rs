//! The secrets of a sandbox: which hosts receive them, and their values. Bindings are recorded; a
//! value is passed in memory to the egress process, and recorded nowhere.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stockade_core::SandboxId;
use zeroize::Zeroizing;

/// The value of a secret. It is erased from memory after its use, and not printed.
#[derive(Clone)]
pub struct SecretValue(pub Zeroizing<String>);

impl SecretValue {
    /// A value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

impl PartialEq for SecretValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl Eq for SecretValue {}

impl Serialize for SecretValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    /// The error for another type does not contain what was there instead.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Zeroizing::<String>::deserialize(deserializer);
        value.map(Self).map_err(|_| serde::de::Error::custom("the value of a secret is no text"))
    }
}

/// Gives the egress process the values of secrets that a sandbox has. Not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecrets {
    /// The sandbox.
    pub id: SandboxId,
    /// The values, by the names of the secrets.
    pub values: BTreeMap<String, SecretValue>,
}

/// A secret of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretStatus {
    /// Its name, which is that of the variable with the placeholder.
    pub name: String,
    /// The hosts that receive it, as `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// What programs inside have instead of the value.
    pub placeholder: String,
    /// Whether its value must be given again: requests that need it are refused until then.
    pub missing: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_request_and_in_no_other_text() {
        let text = r#"{"id":"a","values":{"KEY":"sk-value"}}"#;
        let request: SetSecrets = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert!(!format!("{request:?}").contains("sk-value"));
        let wrong = r#"{"id":"a","values":{"KEY":["sk-value"]}}"#;
        let error = serde_json::from_str::<SetSecrets>(wrong).unwrap_err();
        assert!(!error.to_string().contains("sk-value"), "{error}");
    }
}
