//! The runs that the provider of a `<Sandbox>` requests. The run of the sandbox executes them.

use std::fmt::Debug;

use async_trait::async_trait;
use stockade_durable::Failure;

use crate::authoring::ChildRequest;
use crate::engine::task_error::TaskError;
use crate::engine::user_code::ChildResult;
use crate::journal::WorkflowRef;

/// The child runs of one attempt.
#[async_trait]
pub(crate) trait ChildRuns: Debug + Send + Sync {
    /// Executes a run, or the rest of it after a crash.
    async fn run(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError>;

    /// Cancels the runs that have not ended when their provider ends. A later attempt continues them.
    async fn cancel_rest(&self, owner: &str) -> Result<(), Failure>;
}
