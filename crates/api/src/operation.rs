//! Recorded operations: their ids and records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{Problem, SandboxId};

/// The id of a recorded operation. FireFlow and DBOS call it a workflow id.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct OperationId(pub String);

/// How many characters a short id has.
const SHORT: usize = 8;

impl OperationId {
    /// A short id, which follows from this one: the part that differs most.
    #[must_use]
    pub fn short(&self) -> &str {
        let Self(id) = self;
        let short = match id.strip_prefix("key-") {
            Some(hash) => hash.get(..SHORT),
            // The first characters of a generated id are a time.
            None => id.len().checked_sub(SHORT).and_then(|from| id.get(from..)),
        };
        short.unwrap_or(id)
    }
}

impl std::fmt::Display for OperationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ById {
    /// The id.
    pub id: SandboxId,
}

/// The status of a recorded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_the_part_that_differs() {
        let short = |id: &str| OperationId(id.to_owned()).short().to_owned();
        assert_eq!(short("key-0123456789abcdef0123456789abcdef01234567"), "01234567");
        assert_eq!(short("0199a0b0c0d0700080000000f00dcafe"), "f00dcafe");
        assert_eq!(short("key-1"), "key-1");
        assert_eq!(short("one"), "one");
        assert_eq!(short("ééééé"), "éééé");
    }
}
