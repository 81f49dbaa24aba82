//! Recorded operations: their ids and records.

use serde::{Deserialize, Serialize};
use stockade_core::{Problem, SandboxId};

/// The id of a recorded operation. FireFlow and DBOS call it a workflow id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub String);

impl std::fmt::Display for OperationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ById {
    /// The id.
    pub id: SandboxId,
}

/// The status of a recorded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationStatus {
    /// It waits for its turn.
    Waiting,
    /// It is running.
    Running,
    /// It has succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The record of an operation (FireFlow's `ISandboxWorkflowHandle`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationInfo {
    /// Its id.
    pub workflow_id: OperationId,
    /// Its name, such as `sandbox.execute`.
    pub name: String,
    /// Its status.
    pub status: OperationStatus,
    /// Its response.
    pub result: Option<serde_json::Value>,
    /// Why it failed.
    pub error: Option<Problem>,
}
