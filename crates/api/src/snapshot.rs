//! Snapshots of a sandbox's files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{SandboxId, SnapshotId, Time};

use crate::sandbox::CreateSandbox;

/// Takes a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeSnapshot {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// Its id; generated when absent.
    #[serde(default)]
    pub id: Option<SnapshotId>,
    /// A name for people. It need not be unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The properties of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// The sandbox from which it was taken.
    pub sandbox_id: SandboxId,
    /// When it was taken.
    pub created_at: Time,
    /// The size of its files, in bytes.
    pub size_bytes: u64,
    /// Its name, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Creates a sandbox from the files of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restore {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The properties of the sandbox.
    #[serde(default)]
    pub sandbox: CreateSandbox,
}
