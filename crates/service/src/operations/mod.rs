//! The operations, one file for each kind. Operations that change something are workflows;
//! read-only ones are not recorded.
//!
//! The input of a workflow is its owner and the request, without file contents.

pub(crate) mod attach;
pub(crate) mod browser;
pub(crate) mod bundles;
pub(crate) mod cancel;
pub(crate) mod collect;
pub(crate) mod commands;
pub(crate) mod create;
pub(crate) mod directory;
pub(crate) mod due;
pub(crate) mod ending;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod execute;
pub(crate) mod files;
pub(crate) mod given_up;
pub(crate) mod injections;
pub(crate) mod keys;
pub(crate) mod lifecycle;
pub(crate) mod limits;
pub(crate) mod metadata;
pub(crate) mod network;
pub(crate) mod output;
pub(crate) mod publish;
pub(crate) mod query;
pub(crate) mod restore;
pub(crate) mod secret_file;
mod secret_requests;
pub(crate) mod secrets;
pub(crate) mod session;
mod session_events;
pub(crate) mod snapshot;
mod ssh_agent;
pub(crate) mod sync;
pub(crate) mod tool;
pub(crate) mod vault;
pub(crate) mod volumes;
pub(crate) mod watch;
pub(crate) mod workspaces;

use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_durable::{Builder, Context, Failure, Record, StepOptions};

use crate::inner::Inner;
use crate::operation::Input;

/// The queue for queued operations on sandboxes.
pub const QUEUE: &str = "fireflow-sandbox";

/// The workflows that run a command.
pub(crate) const COMMANDS: [&str; 3] = [execute::NAME, output::NAME, session::NAME];

/// Registers every operation that is a workflow.
pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    let builder = builder
        .workflow(collect::NAME, workflow_fn(inner, collect::perform))
        .workflow(create::NAME, workflow_fn(inner, create::perform))
        .workflow(directory::NAME, workflow_fn(inner, directory::perform))
        .workflow(execute::NAME, workflow_fn(inner, execute::perform))
        .workflow(output::NAME, workflow_fn(inner, output::perform))
        .workflow(limits::NAME, workflow_fn(inner, limits::perform))
        .workflow(metadata::NAME, workflow_fn(inner, metadata::perform))
        .workflow(network::NAME, workflow_fn(inner, network::perform))
        .workflow(secret_file::NAME, workflow_fn(inner, secret_file::perform))
        .workflow(session::NAME, workflow_fn(inner, session::perform))
        .workflow(snapshot::NAME, workflow_fn(inner, snapshot::perform))
        .workflow(snapshot::REMOVE, workflow_fn(inner, snapshot::perform_removal))
        .workflow(endpoint::NAME, workflow_fn(inner, endpoint::perform))
        .workflow(tool::NAME, workflow_fn(inner, tool::perform))
        .workflow(files::NAME, workflow_fn(inner, files::perform))
        .workflow(files::SEND, workflow_fn(inner, files::perform_send));
    let builder = sync::register(builder, inner);
    bundles::register(watch::register(lifecycle::register(builder, inner), inner), inner)
}

/// The options of a step that may run again: it is recorded together with the next one, which saves
/// a commit.
pub(crate) fn record_with_next() -> StepOptions {
    StepOptions { record: Record::WithNext, ..StepOptions::default() }
}

/// The same for the step whose value is the operation's result, which is not stored twice.
pub(crate) fn record_with_outcome() -> StepOptions {
    StepOptions { record: Record::WithOutcome, ..StepOptions::default() }
}

/// A task that is aborted when this value is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The future of a workflow function.
type WorkflowFuture<O> = Pin<Box<dyn Future<Output = Result<O, Failure>> + Send>>;

/// Wraps a workflow function that needs the shared state of operations.
pub(crate) fn workflow_fn<T, O, F, Fut>(
    inner: &Arc<Inner>,
    perform: F,
) -> impl Fn(Context, Input<T>) -> WorkflowFuture<O> + Send + Sync + 'static
where
    T: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Arc<Inner>, Context, Input<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    let inner = inner.clone();
    move |context, input| Box::pin(perform(inner.clone(), context, input))
}
