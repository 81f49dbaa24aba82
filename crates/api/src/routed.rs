//! Operations that another server may execute.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Caller, Result, Sandboxes};

/// Decides which server executes an operation.
#[async_trait]
pub trait Route: Debug + Send + Sync {
    /// The operations of the server that executes a request; `None` if this one does.
    ///
    /// # Errors
    /// If that server cannot be reached.
    async fn route(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Option<Arc<dyn Sandboxes>>>;
}

/// The operations of `inner`, of which some are executed by another server.
#[derive(Debug, Clone)]
pub struct Routed<T, R> {
    /// Executes those of this server.
    pub inner: T,
    /// Chooses the server.
    pub router: R,
}
