//! What a workflow or a step fails with.

use serde::{Deserialize, Serialize};

use crate::Json;

/// What a workflow or a step fails with; recorded, and given again on replay. It holds no
/// secret: it is kept in the store as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// A stable word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Whether the same may succeed when it is tried again; such a step is retried as often as
    /// its options say.
    pub retryable: bool,
    /// More for programs; null when there is nothing more.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub details: Json,
}

impl Failure {
    /// A failure that is not worth another try.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), retryable: false, details: Json::Null }
    }

    /// The same, worth another try.
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
