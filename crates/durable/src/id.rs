//! The id of a workflow.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Identifies one workflow permanently: starting another one under the same id joins the first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkflowId(String);

/// A text that is not a valid workflow id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the workflow id is invalid: {why}")]
pub struct InvalidId {
    /// What is wrong with it.
    pub why: &'static str,
}

/// The longest id in bytes.
const MAX_BYTES: usize = 200;

impl WorkflowId {
    /// Checks an id: 1 to 200 bytes without control characters, else [`InvalidId`].
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidId> {
        let id = id.into();
        let why = if id.is_empty() {
            "it is empty"
        } else if id.len() > MAX_BYTES {
            "it is longer than 200 bytes"
        } else if id.chars().any(char::is_control) {
            "it contains a control character"
        } else {
            return Ok(Self(id));
        };
        Err(InvalidId { why })
    }

    /// A unique id; later ones sort after earlier ones.
    pub fn unique() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for WorkflowId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for WorkflowId {
    type Error = InvalidId;

    fn try_from(id: String) -> Result<Self, InvalidId> {
        Self::new(id)
    }
}

impl From<WorkflowId> for String {
    fn from(id: WorkflowId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_bounded_text() {
        for good in ["a", "sandbox-watcher:1", "ü", &"x".repeat(200)] {
            assert_eq!(WorkflowId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "\u{7f}", "a\0", &"x".repeat(201)] {
            assert!(WorkflowId::new(bad).is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<WorkflowId>("\"\"").is_err());
        assert!(WorkflowId::unique() < WorkflowId::unique());
    }
}
