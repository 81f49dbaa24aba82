//! The operations, one file for each kind. Operations that change something are workflows;
//! read-only ones are not recorded.
//!
//! The input of a workflow is its owner and the request, without file contents.

pub(crate) mod bundles;
pub(crate) mod cancel;
pub(crate) mod collect;
pub(crate) mod create;
pub(crate) mod directory;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod exchange;
pub(crate) mod execute;
pub(crate) mod files;
pub(crate) mod life;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod reach;
pub(crate) mod restore;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod tool;
pub(crate) mod watch;

use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_durable::{Builder, Context, Failure, Record, StepOptions};

use crate::inner::Inner;
use crate::operation::Input;

/// The queue for queued operations.
pub(crate) const QUEUE: &str = "fireflow-sandbox";

/// The workflows that run a command.
pub(crate) const COMMANDS: [&str; 3] = [execute::NAME, output::NAME, session::NAME];

/// Registers every operation that is a workflow.
pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    let builder = builder
        .workflow(collect::NAME, with(inner, collect::perform))
        .workflow(create::NAME, with(inner, create::perform))
        .workflow(directory::NAME, with(inner, directory::perform))
        .workflow(execute::NAME, with(inner, execute::perform))
        .workflow(output::NAME, with(inner, output::perform))
        .workflow(reach::NAME, with(inner, reach::perform))
        .workflow(session::NAME, with(inner, session::perform))
        .workflow(snapshot::NAME, with(inner, snapshot::perform))
        .workflow(snapshot::REMOVE, with(inner, snapshot::perform_removal))
        .workflow(endpoint::NAME, with(inner, endpoint::perform))
        .workflow(tool::NAME, with(inner, tool::perform))
        .workflow(files::NAME, with(inner, files::perform));
    bundles::register(watch::register(life::register(builder, inner), inner), inner)
}

/// The options of a step that may run again: it is recorded together with the next one, which saves
/// a commit.
pub(crate) fn with_next() -> StepOptions {
    StepOptions { record: Record::WithNext, ..StepOptions::default() }
}

/// The same for the step whose value is the operation's result, which is not stored twice.
pub(crate) fn with_answer() -> StepOptions {
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
type Performing<O> = Pin<Box<dyn Future<Output = Result<O, Failure>> + Send>>;

/// Wraps a workflow function that needs the shared state of operations.
pub(crate) fn with<T, O, F, Fut>(
    inner: &Arc<Inner>,
    perform: F,
) -> impl Fn(Context, Input<T>) -> Performing<O> + Send + Sync + 'static
where
    T: Serialize + DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    F: Fn(Arc<Inner>, Context, Input<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    let inner = inner.clone();
    move |context, input| Box::pin(perform(inner.clone(), context, input))
}
