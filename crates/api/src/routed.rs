//! Operations that another server may execute.

use std::fmt::Debug;
use std::pin::Pin;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Caller, Problem, Result};

/// Decides which server executes an operation.
#[async_trait]
pub trait Route: Debug + Send + Sync {
    /// The operations of another server.
    type Operations: Debug + Send + Sync;

    /// The operations of the server that executes a request; `None` if this one does.
    ///
    /// # Errors
    /// If that server cannot be reached.
    async fn route(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Option<Elsewhere<Self::Operations>>>;
}

/// Another server, which executes a request.
pub struct Elsewhere<T> {
    /// Its operations.
    pub operations: T,
    /// Ends when it does not answer any more.
    pub gone: Pin<Box<dyn Future<Output = Problem> + Send>>,
}

impl<T: Debug> Debug for Elsewhere<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elsewhere").field("operations", &self.operations).finish_non_exhaustive()
    }
}

/// The answer of another server, or why there is none.
pub(crate) async fn answer_of<T>(
    gone: impl Future<Output = Problem> + Send,
    answer: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    tokio::select! {
        answer = answer => answer,
        problem = gone => Err(problem),
    }
}

/// The operations of `inner`, of which some are executed by another server.
#[derive(Debug, Clone)]
pub struct Routed<T, R> {
    /// Executes those of this server.
    pub inner: T,
    /// Chooses the server.
    pub router: R,
}
