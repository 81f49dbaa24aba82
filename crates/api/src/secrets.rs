//! The secrets of a sandbox: which hosts receive them, and their values. Bindings are recorded; a
//! value is passed in memory to the egress process, and recorded nowhere.

use std::collections::BTreeMap;

use crate::secret_value::{SecretValue, values};
use crate::vault::SecretMapping;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;

/// Gives the egress process the values of secrets that a sandbox has. Not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecrets {
    /// The sandbox.
    pub id: SandboxId,
    /// The values, by the names of the secrets.
    #[serde(default, deserialize_with = "values")]
    pub values: BTreeMap<String, SecretValue>,
    /// Secrets of the sandbox whose values are those of stored secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<SecretMapping>,
}

/// A secret of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        let wrong = r#"{"id":"a","values":"sk-value"}"#;
        let error = serde_json::from_str::<SetSecrets>(wrong).unwrap_err();
        assert!(!error.to_string().contains("sk-value"), "{error}");
    }
}
