//! The end of an attempt: its changes are accepted or rejected, immediately or by a decision, or it has
//! failed.

use serde_json::json;

use super::attempt::{AttemptOutcome, SandboxAttempt, is_stopped};
use super::handle::SandboxHandle;
use super::request;
use super::review::{self, Decision};
use crate::engine::clock::now_ms;
use crate::engine::task_error::TaskError;
use crate::graph::Sandbox;
use crate::store::sandboxes::{self, Review, Stage};

impl SandboxAttempt {
    /// Ends an attempt that was executed: with its review, or as failed.
    pub(super) async fn conclude(
        &self,
        sandbox: &Sandbox,
        done: Result<(Review, i64), TaskError>,
    ) -> Result<AttemptOutcome, TaskError> {
        if !is_stopped(&done)
            && let Err(error) = &done
        {
            self.fail(request::runtime(sandbox), error).await;
        }
        let (review, started_at) = done?;
        self.settle(sandbox, review, None, started_at).await
    }

    /// Accepts or rejects the changes, or waits for a decision about them.
    pub(super) async fn settle(
        &self,
        sandbox: &Sandbox,
        review: Review,
        decision: Option<Decision>,
        began: i64,
    ) -> Result<AttemptOutcome, TaskError> {
        let by_person = decision.as_ref().is_some_and(|decision| !decision.at.is_empty());
        let decision = match decision {
            Some(decision) => decision,
            None if self.request_review(sandbox, &review).await? => {
                return Ok(AttemptOutcome::Review(None));
            }
            None => Decision { is_approved: true, ..Decision::default() },
        };
        let handle = self.handle()?;
        if !decision.is_approved {
            return Err(self.reject(sandbox, &handle, &review, &decision).await?);
        }
        self.record_changes(&handle, &review).await?;
        let skipped = match review::apply(&handle, &review, &decision).await {
            Ok(skipped) => skipped,
            // Nothing is lost: the user can see the error, and decide again.
            Err(error) if by_person && !error.is_interruption() => {
                let more = json!({ "error": error.to_json() });
                let event = self.recorder.event("SandboxDiffNotApplied", more);
                let waits = sandboxes::request_review(&self.run, &self.key, &review);
                self.recorder.record(vec![event], vec![waits]).await?;
                return Ok(AttemptOutcome::Review(Some(error)));
            }
            Err(error) => {
                self.fail(request::runtime(sandbox), &error).await;
                return Err(error);
            }
        };
        let mut events = Vec::new();
        if review.patch_count > 0 {
            let more = json!({ "patchCount": review.patch_count, "skipped": skipped });
            events.push(self.recorder.event("SandboxDiffAccepted", more));
        }
        let more = json!({
            "remoteRunId": review.remote_run_id, "runtime": request::runtime(sandbox),
            "status": "finished", "durationMs": now_ms().saturating_sub(began),
        });
        events.push(self.recorder.event("SandboxCompleted", more));
        events.push(self.recorder.stage("completed", 100));
        let end = sandboxes::end(&self.run, &self.key, Stage::Finished, now_ms());
        self.recorder.record(events, vec![end]).await?;
        Ok(match review.patch_count {
            0 => AttemptOutcome::Value(review.outputs),
            _ => AttemptOutcome::Changed(review.outputs),
        })
    }

    /// Records the review; returns whether it waits for a decision.
    async fn request_review(&self, sandbox: &Sandbox, review: &Review) -> Result<bool, TaskError> {
        let has_changes = review.patch_count > 0;
        let asks = has_changes && (sandbox.review_diffs || review.executed > 0);
        let mut events = Vec::new();
        if asks {
            let more = json!({
                "patchCount": review.patch_count,
                "totalDiffLines": review.total_diff_lines,
                "bundles": review.bundles,
            });
            events.push(self.recorder.event("SandboxDiffReviewRequested", more));
        }
        let mut statements = vec![sandboxes::request_review(&self.run, &self.key, review)];
        let is_accepted = !sandbox.review_diffs || sandbox.auto_accept_diffs;
        let waits = asks && (!is_accepted || review.executed > 0);
        if !waits {
            let decision = json!({ "approved": true });
            statements.push(sandboxes::decide(&self.run, &self.key, &decision));
        }
        self.recorder.record(events, statements).await?;
        Ok(waits)
    }

    /// Discards the changes, and records that; returns the failure of the attempt.
    async fn reject(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        review: &Review,
        decision: &Decision,
    ) -> Result<TaskError, TaskError> {
        review::discard(handle, review.bundles.iter().map(String::as_str)).await;
        let reason = decision.note.clone();
        let because = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("the changes of sandbox \"{}\" were denied{because}", self.key.node);
        let error = TaskError::new("INVALID_INPUT", message).denied();
        let event = self.recorder.event("SandboxDiffRejected", json!({ "reason": reason }));
        self.recorder.record(vec![event], Vec::new()).await?;
        self.fail(request::runtime(sandbox), &error).await;
        Ok(error)
    }

    /// Records that the attempt has failed. Errors are ignored: the task reports the failure itself.
    pub(super) async fn fail(&self, runtime: &str, error: &TaskError) {
        let more = json!({ "runtime": runtime, "error": error.to_json() });
        let events =
            vec![self.recorder.event("SandboxFailed", more), self.recorder.stage("failed", 100)];
        let end = sandboxes::end(&self.run, &self.key, Stage::Failed, now_ms());
        let _ = self.recorder.record(events, vec![end]).await;
    }
}
