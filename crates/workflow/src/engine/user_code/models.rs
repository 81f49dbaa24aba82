//! Models over HTTP, as agents of the user's code ask them.

use async_trait::async_trait;

use crate::authoring::{ModelAnswer, ModelRequest};
use crate::engine::task_error::TaskError;

/// Sends the requests of agents to models.
#[async_trait]
pub(crate) trait ModelHost: std::fmt::Debug + Send + Sync {
    /// Sends a request, and returns the response, whatever its status is. Dropping the future aborts it.
    ///
    /// # Errors
    /// A request that the user has not allowed, or to which there is no response.
    async fn ask(&self, request: ModelRequest) -> Result<ModelAnswer, TaskError>;
}
