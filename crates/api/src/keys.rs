//! API keys: what clients on other hosts authenticate with, and how a server finds the owner of one.

use std::fmt::Debug;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{OwnerId, Time};

use crate::Result;

/// Creates an API key. Only a caller with the admin scope may do that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CreateKey {
    /// What the key is for, in words.
    pub name: Option<String>,
    /// The owner of what is created with the key; the caller when absent.
    pub owner_id: Option<OwnerId>,
    /// Whether requests with the key have the admin scope.
    pub admin: bool,
    /// After how many seconds the key expires; never when absent.
    pub expires_in_seconds: Option<f64>,
}

/// The properties of an API key. The key itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Its id, which is no secret.
    pub id: String,
    /// What it is for, in words.
    pub name: Option<String>,
    /// The owner of what is created with it.
    pub owner_id: OwnerId,
    /// Whether requests with it have the admin scope.
    pub admin: bool,
    /// When it was created.
    pub created_at: Time,
    /// When it expires; never when absent.
    pub expires_at: Option<Time>,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
}

/// A new API key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    /// The key. No later response contains it.
    pub key: String,
    /// Its properties.
    #[serde(flatten)]
    pub properties: ApiKey,
}

impl Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("properties", &self.properties).finish_non_exhaustive()
    }
}

/// Lists API keys, the newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListKeys {
    /// Also those that have expired or were revoked.
    pub all: bool,
}

/// API keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyList {
    /// The keys, the newest first.
    pub keys: Vec<ApiKey>,
}

/// Revokes an API key: it is refused from then on. Has no effect on one that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeKey {
    /// The id of the key.
    pub id: String,
}

/// How a server finds the owner of a key.
#[async_trait]
pub trait KeyDirectory: Debug + Send + Sync {
    /// The properties of this key, if it may be used now.
    async fn find_key(&self, key: &str) -> Result<Option<ApiKey>>;

    /// The properties of the key with this id, if it may be used now.
    async fn find_key_by_id(&self, id: &str) -> Result<Option<ApiKey>>;

    /// Waits until the key with this id may not be used any more: it was revoked, or has expired.
    async fn until_unusable(&self, id: &str);

    /// Whether there is a key that may be used now.
    async fn has_keys(&self) -> Result<bool>;

    /// The secret of this server from which the access tokens of sandboxes are derived.
    async fn token_secret(&self) -> Result<[u8; 32]>;
}
