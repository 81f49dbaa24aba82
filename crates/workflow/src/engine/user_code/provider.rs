//! Providers of sandboxes: the interface that the user's code and programs of the host implement.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::authoring::ChildRequest;
use crate::engine::task_error::TaskError;
use crate::journal::WorkflowRef;

/// The functions that a provider may call while it works.
#[async_trait]
pub(crate) trait ProviderHost: Send + Sync {
    /// Reports that the provider is alive, with its progress: JSON of at most a megabyte.
    async fn heartbeat(&self, data: Value);

    /// Executes a workflow as a child of the provider's run: from its start, or the rest of it.
    /// Dropping the future aborts it.
    ///
    /// # Errors
    /// If it cannot be executed. A run that fails is a result, not an error.
    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError>;
}

/// A provider by its id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderName {
    pub(crate) id: String,
    /// Whether the user's code contains it: as an object, or registered under this id.
    pub(crate) is_known: bool,
}

/// The answer of `executeChildWorkflow`.
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

/// Counts a request to a provider while it is running.
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
