//! The runs that the provider of a `<Sandbox>` requests. The run of the sandbox has them executed.

use std::fmt::Debug;

use async_trait::async_trait;
use stockade_durable::Failure;

use crate::authoring::ChildRequest;
use crate::engine::trouble::Trouble;
use crate::engine::user_code::ChildResult;
use crate::journal::WorkflowRef;

/// The child runs of one try.
#[async_trait]
pub(crate) trait ChildRuns: Debug + Send + Sync {
    /// Executes a run, or what is left of it after a crash.
    async fn run(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, Trouble>;

    /// Cancels the runs that have not ended when their provider has. A later try goes on with them.
    async fn cancel_rest(&self, owner: &str) -> Result<(), Failure>;
}
