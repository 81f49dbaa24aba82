//! How the durable workflow of a run is named, and its input.

use serde::{Deserialize, Serialize};
use stockade_durable::WorkflowId;

/// The name of the durable workflow.
pub(super) const NAME: &str = "workflow.run";

/// The input of the durable workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Input {
    /// The run.
    pub(super) run: String,
}

/// The id of the durable workflow of a run. Each generation of a run has a different one.
pub(super) fn workflow_id(
    run: &str,
    generation: i64,
) -> Result<WorkflowId, stockade_durable::Error> {
    Ok(WorkflowId::new(format!("run:{run}:{generation}"))?)
}
