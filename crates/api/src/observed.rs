//! Operations that another part sees, before and after each of them.

use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Caller, Origin, Problem, Result};

/// Sees operations.
#[async_trait]
pub trait Observe: Debug + Send + Sync {
    /// Whether the operation with this name changes something, so that it is seen before it starts.
    fn is_change(&self, operation: &str) -> bool;

    /// Whether the answer of the operation with this name is needed after it.
    fn needs_answer(&self, operation: &str) -> bool;

    /// Sees a change before it starts. Returns the caller with which it is executed.
    ///
    /// # Errors
    /// Why it is refused.
    async fn before(&self, caller: &Caller, operation: &str, request: &Value) -> Result<Caller>;

    /// Sees the end of an operation: its answer, if that is needed, or its problem. Also called for an
    /// operation that changes nothing if it has a problem.
    async fn after(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
        end: std::result::Result<Value, &Problem>,
    );
}

/// Records requests that were refused before they became an operation.
#[async_trait]
pub trait RecordRefusal: Debug + Send + Sync {
    /// Records one: where it came from, its method and path, and why it was refused.
    async fn record_refusal(&self, origin: &Origin, request: &str, problem: &Problem);
}

/// The operations of `inner`, which `observer` sees.
#[derive(Debug, Clone)]
pub struct Observed<T, O> {
    /// Executes them.
    pub inner: T,
    /// Sees them.
    pub observer: O,
}

impl<T, O: Observe> Observed<T, O> {
    /// The caller with which an operation is executed.
    pub(crate) async fn before(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Caller> {
        if !self.observer.is_change(operation) {
            return Ok(caller.clone());
        }
        self.observer.before(caller, operation, request).await
    }

    /// Sees the end of an operation.
    pub(crate) async fn after<A: Sync>(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
        (answer, written): (&Result<A>, impl FnOnce(&A) -> Value + Send),
    ) {
        let end = match answer {
            Err(problem) => Err(problem),
            Ok(_) if !self.observer.is_change(operation) => return,
            Ok(answer) if self.observer.needs_answer(operation) => Ok(written(answer)),
            Ok(_) => Ok(Value::Null),
        };
        self.observer.after(caller, operation, request, end).await;
    }
}
