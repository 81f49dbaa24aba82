//! The vault: secrets of an owner, which are stored sealed. A value is given once, and no response
//! contains it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{Bytes, OwnerId, SandboxId, Time};

use crate::secret_value::{SecretValue, values};

/// Stores a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSecret {
    /// Its name, which no other secret of the owner has.
    pub name: String,
    /// Its type, which determines its fields: `string` with the field `value` when absent.
    #[serde(default = "string_type", rename = "type")]
    pub kind: String,
    /// The values, by the names of the fields. Never recorded.
    #[serde(deserialize_with = "values")]
    pub values: BTreeMap<String, SecretValue>,
}

fn string_type() -> String {
    "string".to_owned()
}

/// Stores a secret that was sealed by FireFlow's predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportSecret {
    /// Its name, which no other secret of the owner has.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The envelope: JSON with `encrypted`, `hkdfNonce` and `publicKey`. Never recorded.
    pub envelope: SecretValue,
    /// The private key that it was sealed for, as base64url. Never recorded.
    pub recipient_key: SecretValue,
}

/// Replaces the values of a secret. Commands that have the old ones keep them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateSecret {
    /// Its id or name.
    pub id: String,
    /// The new values, by the names of the fields. Never recorded.
    #[serde(deserialize_with = "values")]
    pub values: BTreeMap<String, SecretValue>,
}

/// Removes a secret. Commands that have it keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSecret {
    /// Its id or name.
    pub id: String,
}

/// The properties of a secret; never a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredSecret {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_id: OwnerId,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The names of its fields.
    pub fields: Vec<String>,
    /// Its version: each rotation adds one.
    pub version: u64,
    /// When it was created.
    pub created_at: Time,
    /// When its values were last replaced.
    pub updated_at: Time,
}

/// The secrets of an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredSecrets {
    /// The secrets, by name.
    pub secrets: Vec<StoredSecret>,
}

/// On whose behalf a secret is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SecretScope {
    /// That of the caller of the operation.
    #[default]
    Caller,
    /// That of the owner of the flow that the operation is part of.
    FlowOwner,
}

/// A field of a stored secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretReference {
    /// The secret: its id or name, or the path of a `.ffsecret` file.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The content of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The field; the only one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// On whose behalf.
    #[serde(default)]
    pub scope: SecretScope,
}

impl SecretReference {
    /// A reference to the only field of a secret of the caller.
    pub fn new(reference: impl Into<String>) -> Self {
        Self { reference: reference.into(), content: None, field: None, scope: SecretScope::Caller }
    }
}

/// A variable of one command that has a field of a stored secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretMapping {
    /// The variable.
    pub env: String,
    /// The field.
    #[serde(flatten)]
    pub secret: SecretReference,
}

/// Writes a field of a stored secret to a file in a sandbox. The file must be on a file system in
/// memory, which no snapshot contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteSecretFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path of the file.
    pub path: Bytes,
    /// The field.
    pub secret: SecretReference,
    /// The permission bits; 0600 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// The user who owns it; the one that commands run as when absent.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group; needs `uid`.
    #[serde(default)]
    pub gid: Option<u32>,
}
