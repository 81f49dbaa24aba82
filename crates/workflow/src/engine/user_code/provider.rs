//! Providers of sandboxes, as the user's code and programs of the host implement them.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::authoring::ChildRequest;
use crate::engine::trouble::Trouble;
use crate::journal::WorkflowRef;

/// What a provider may call while it works.
#[async_trait]
pub(crate) trait ProviderHost: Send + Sync {
    /// Reports that the provider is alive, with its progress: JSON of at most a megabyte.
    async fn heartbeat(&self, data: Value);

    /// Executes a workflow as a child of the provider's run: from its beginning, or what is left of
    /// it. Dropping this gives it up.
    ///
    /// # Errors
    /// When it cannot be executed. A run that fails is a result.
    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, Trouble>;
}

/// A provider by its id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderName {
    pub(crate) id: String,
    /// Whether the user's code has it: as an object, or registered under this id.
    pub(crate) is_known: bool,
}

/// What `executeChildWorkflow` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChildResult {
    pub(crate) run_id: String,
    /// `finished`, `failed` or `cancelled`.
    pub(crate) status: &'static str,
    pub(crate) output: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Value>,
}

/// Counts a request to a provider while it is under way.
pub(crate) struct ActiveGuard<'a>(&'a AtomicUsize);

impl<'a> ActiveGuard<'a> {
    pub(crate) fn new(number: &'a AtomicUsize) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
