//! The failure of a workflow or a step.

use serde::{Deserialize, Serialize};

use crate::Json;

/// The failure of a workflow or a step; recorded, and returned again on replay. It must not contain
/// secrets: the store keeps it as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// A stable code for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether a retry may succeed; such a step is retried as often as its options allow.
    pub retryable: bool,
    /// Details for programs; null when there are none.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub details: Json,
}

impl Failure {
    /// A failure that is not retryable.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retryable: false, details: Json::Null }
    }

    /// The same, retryable.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The same with details for programs.
    #[must_use]
    pub fn with_details(mut self, details: Json) -> Self {
        self.details = details;
        self
    }
}
