//! The steps of an attempt, in order.

use std::sync::Arc;

use super::at_server;
use super::attempt::{AttemptOutcome, SandboxAttempt, failed};
use super::review::Decision;
use crate::engine::task_error::TaskError;
use crate::graph::{Sandbox, Task, Work};
use crate::store::sandboxes::{SandboxRow, Stage};

impl SandboxAttempt {
    /// Executes the attempt, or the rest of it after a crash.
    pub(crate) async fn execute(mut self) -> Result<AttemptOutcome, TaskError> {
        self.narrow()?;
        self.place()?;
        let Work::Sandbox(sandbox) = &self.task.work else {
            return Err(failed("the task is not a sandbox"));
        };
        // A nested sandbox is not in the rendering of the run.
        self.recorder.redaction.add_sandbox(sandbox);
        if self.state.options.sandboxes.is_none() {
            return match self.request_from_host(sandbox).await? {
                AttemptOutcome::Value(outputs) => {
                    Ok(AttemptOutcome::Value(self.accept(outputs).await?))
                }
                outcome => Ok(outcome),
            };
        }
        let row = self.row().await?;
        if let Some(row) = row.as_ref().filter(|row| row.stage == Stage::Waiting) {
            return Ok(AttemptOutcome::Waits(row.pause().unwrap_or_default()));
        }
        // A cancelled attempt starts anew, unless its changes are still to be reviewed.
        let is_over = |row: &SandboxRow| row.stage == Stage::Cancelled && row.review.is_none();
        let row = row.filter(|row| !is_over(row));
        if let Some(review) = row.as_ref().and_then(|row| row.review.clone()) {
            let decision = row.as_ref().and_then(|row| row.decision.as_ref()).map(Decision::read);
            let started_at = row.as_ref().map_or(0, |row| row.created_at_ms);
            if decision.is_none() || sandbox.provider.is_none() {
                self.end_previous(sandbox).await?;
            }
            return self.settle(sandbox, review, decision, started_at).await;
        }
        if sandbox.provider.is_some() {
            return self.execute_by_provider(sandbox, row).await;
        }
        Box::pin(self.execute_locally(sandbox, row)).await
    }

    /// Places the sandbox at the server of the run, if it has one.
    fn place(&mut self) -> Result<(), TaskError> {
        let Work::Sandbox(sandbox) = &self.task.work else { return Ok(()) };
        if let Some(placed) = at_server::place(sandbox, &self.environment)? {
            let work = Work::Sandbox(Box::new(placed));
            self.task = Arc::new(Task { work, ..(*self.task).clone() });
        }
        Ok(())
    }

    /// Ends the sandbox or provider of an attempt whose result is on the host, in case a crash
    /// prevented that.
    async fn end_previous(&self, sandbox: &Sandbox) -> Result<(), TaskError> {
        if sandbox.provider.is_some() {
            self.clean_up_again(sandbox).await
        } else {
            self.handle()?.end().await;
            Ok(())
        }
    }
}
