//! The result of an attempt: its changes become bundles, which are reviewed.

use serde_json::json;
use stockade_api::Bundle;
use stockade_bundle::sandbox::Status;

use super::attempt::{CollectedResult, SandboxAttempt, is_stopped};
use super::handle::SandboxHandle;
use super::{result, review};
use crate::engine::clock::now_ms;
use crate::engine::task_error::TaskError;
use crate::engine::timings::Operation;
use crate::store::sandboxes::{self, Review};

impl SandboxAttempt {
    /// Makes bundles of the changes of a result, and of those of the workspace if there is one: all of
    /// them, or none. Also returns the time at which the attempt started.
    pub(super) async fn gather_changes(
        &self,
        handle: &SandboxHandle,
        collected: CollectedResult,
        has_workspace: bool,
    ) -> Result<(Review, i64), TaskError> {
        let mut bundles = Vec::new();
        let review = self.make_review(handle, &collected, has_workspace, &mut bundles).await;
        if review.is_err() && !is_stopped(&review) {
            review::discard(handle, bundles.iter().map(|bundle| bundle.id.as_str())).await;
        }
        Ok((review?, collected.started_at))
    }

    async fn make_review(
        &self,
        handle: &SandboxHandle,
        collected: &CollectedResult,
        has_workspace: bool,
        bundles: &mut Vec<Bundle>,
    ) -> Result<Review, TaskError> {
        let CollectedResult { into, bundle, remote, unsynced, .. } = collected;
        let error = result::unfinished(bundle);
        let synced = result::sync(into, unsynced);
        // The changes of a failed child are discarded.
        if error.is_none() {
            let changes = self.make_bundles(handle, collected, has_workspace, bundles);
            let changes = self.recorder.timings.measure(Operation::Collect, changes);
            let (changes, synced) = tokio::join!(changes, synced);
            changes.and(synced)?;
        } else {
            synced.await?;
        }
        let mut review = review::build(handle, bundles, bundle).await?;
        if error.is_none() {
            review.outputs = self.accept(review.outputs).await?;
        }
        let remote_run_id = remote.run_id.clone().or(review.remote_run_id);
        let review = Review { remote_run_id, ..review };
        self.record_result(collected, &review).await?;
        error.map_or(Ok(review), Err)
    }

    async fn make_bundles(
        &self,
        handle: &SandboxHandle,
        collected: &CollectedResult,
        has_workspace: bool,
        bundles: &mut Vec<Bundle>,
    ) -> Result<(), TaskError> {
        let CollectedResult { into, bundle, .. } = collected;
        let patches =
            [("diffBundle", result::diff(into)?), ("patches", result::patch_files(into, bundle)?)];
        if has_workspace {
            bundles.extend(review::changes(handle).await?);
        }
        for (name, diff) in patches {
            let Some(diff) = diff else { continue };
            let base_ref = collected.base_ref.as_deref();
            let proposed = review::propose(handle, self.project(), base_ref, (name, &diff));
            if let Some(proposed) = proposed.await? {
                review::join(handle, bundles, proposed, name).await?;
            }
        }
        Ok(())
    }

    /// Records a valid result.
    async fn record_result(
        &self,
        collected: &CollectedResult,
        review: &Review,
    ) -> Result<(), TaskError> {
        let CollectedResult { path, bundle, remote, .. } = collected;
        let path = path.display().to_string();
        let logs = bundle.stream_log.as_ref().map(|log| format!("{path}/{}", log.quoted()));
        let patches = review.patch_count;
        let more = json!({ "bundlePath": path, "patchCount": patches, "logsPath": logs });
        let event = self.recorder.event(
            "SandboxBundleReceived",
            json!({
                "bundleSizeBytes": bundle.total_bytes, "patchCount": patches,
                "hasOutputs": !bundle.manifest.outputs.is_null(),
            }),
        );
        let events = vec![self.recorder.stage_with("bundle-collected", 85, more), event];
        let ids = [&review.remote_run_id, &remote.workspace_id, &remote.container_id];
        let ids = ids.map(Option::as_deref);
        let mut statements = vec![sandboxes::receive(&self.run, &self.key, &path, ids, now_ms())];
        if bundle.manifest.status == Status::Finished {
            // From here on, the process or sandbox that executed the attempt may end.
            statements.push(sandboxes::request_review(&self.run, &self.key, review));
        }
        self.recorder.record(events, statements).await
    }
}
