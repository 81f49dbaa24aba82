//! How nested sandboxes are ended: always before the one that encloses them.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::inner_sandbox::remove_files;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::attempt::{SandboxAttempt, failed};
use crate::engine::sandbox::handle::SandboxHandle;
use crate::engine::sandbox::review;
use crate::engine::state::EngineState;
use crate::engine::task_error::TaskError;
use crate::schedule::Key;
use crate::store::sandboxes::{self, NestedSandbox, Stage};

/// The data that is needed to end nested sandboxes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NestedCleanup<'a> {
    pub(crate) state: &'a EngineState,
    pub(crate) owner: &'a str,
    /// The project's directory.
    pub(crate) root: &'a Path,
}

impl NestedCleanup<'_> {
    /// Ends the sandboxes nested in the sandbox of an attempt of a run, by the attempt's name. A
    /// sandbox that cannot be ended now ends with its lease.
    pub(crate) async fn end(self, run: &str, name: &str) {
        if let Err(error) = self.end_nested_of(run, name).await {
            tracing::warn!(run, error.message, "nested sandboxes remain");
        }
    }

    fn end_nested_of<'a>(self, run: &'a str, name: &'a str) -> BoxFuture<'a, Result<(), TaskError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let store = self.state.store();
            let store_error = |error: stockade_durable::Error| failed(error.to_string());
            let nested = sandboxes::list_nested(store, run, name).await.map_err(store_error)?;
            for NestedSandbox { key, name, is_open } in nested {
                if is_open {
                    self.end_one(run, &key, &name).await?;
                }
                remove_files(self.root, run, &key, &name)?;
            }
            Ok(())
        })
    }

    /// Ends one sandbox, by the name of its attempt, and those nested in it.
    pub(super) async fn end_one(self, run: &str, key: &Key, name: &str) -> Result<(), TaskError> {
        self.end_nested_of(run, name).await?;
        let store = self.state.store();
        let store_error = |error: stockade_durable::Error| failed(error.to_string());
        let Some(sandboxes) = &self.state.options.sandboxes else { return Ok(()) };
        let handle = SandboxHandle::of(Arc::clone(sandboxes), self.owner, name)?;
        handle.end_for_good().await;
        let row = sandboxes::find(store, run, key).await.map_err(store_error)?;
        if let Some(review) = row.and_then(|row| row.review) {
            // They are changes to the workspace of the enclosing sandbox, which ends too.
            review::discard(&handle, review.bundles.iter().map(String::as_str)).await;
        }
        let end = sandboxes::end(run, key, Stage::Cancelled, now_ms());
        store.execute(vec![end]).await.map(drop).map_err(store_error)
    }
}

impl SandboxAttempt {
    /// Ends the sandboxes nested in that of the attempt, the innermost first.
    pub(in super::super) async fn end_nested(&self) {
        self.nested_cleanup().end(&self.run, &self.name).await;
    }

    pub(super) fn nested_cleanup(&self) -> NestedCleanup<'_> {
        NestedCleanup { state: &self.state, owner: &self.owner, root: &self.root }
    }
}
