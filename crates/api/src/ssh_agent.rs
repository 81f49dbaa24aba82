//! The ssh agent of a sandbox: what it may sign, and where the keys are. A key is never in a request.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vault::SecretReference;

/// An ssh agent outside of a sandbox, which signs only what is named here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshAgent {
    /// The permissions.
    pub allow: Vec<SshPermission>,
    /// Stored secrets of the type `ssh`, whose keys are used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretReference>,
    /// Files with private keys on the server's machine, as absolute paths. Only the user of the server
    /// may name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_keys: Vec<PathBuf>,
    /// The socket of the caller's own agent on that machine. Only the user of the server may name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers_agent: Option<PathBuf>,
}

/// One permission: to log in at hosts, or to sign messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SshPermission {
    /// The fingerprint of the key: `SHA256:…`.
    pub key: String,
    /// The keys of the hosts at which it may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
    /// The users as whom it may log in there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The namespaces of the messages that it may sign.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// Whether the ssh agent of a sandbox answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshAgentStatus {
    /// The fingerprints of the keys that it may use.
    pub keys: Vec<String>,
    /// Why it does not answer, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl SshAgent {
    /// The fingerprints of the keys that it may use, each once.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.allow.iter().map(|allowed| allowed.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}
