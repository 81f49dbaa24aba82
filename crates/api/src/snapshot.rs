//! Snapshots of a sandbox's files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stockade_core::{SandboxId, SnapshotId};

use crate::sandbox::CreateSandbox;

/// A snapshot that is taken now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeSnapshot {
    /// Of which sandbox.
    pub sandbox_id: SandboxId,
    /// Its id; one is made when absent.
    #[serde(default)]
    pub id: Option<SnapshotId>,
}

/// What is known of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// The sandbox that it is of.
    pub sandbox_id: SandboxId,
    /// When it was taken.
    pub created_at: Timestamp,
    /// What its files take, in bytes.
    pub size_bytes: u64,
}

/// A new sandbox whose files are those of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restore {
    /// Which snapshot.
    pub snapshot_id: SnapshotId,
    /// The sandbox.
    #[serde(default)]
    pub sandbox: CreateSandbox,
}
