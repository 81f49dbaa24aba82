//! The changes of a sandbox: they become bundles, wait for a decision if one is required, and are
//! applied, each bundle completely or not at all.

use serde_json::{Value, json};
use stockade_api::{
    ApplyBundle, Bundle, Bytes, CollectChanges, DiffBundle, ProposeChanges, RejectBundle,
};
use stockade_bundle::sandbox::SandboxBundle;
use stockade_core::{BundleLimits, Code, Problem};

use super::handle::{SandboxHandle, task_error};
use crate::engine::task_error::TaskError;
use crate::store::sandboxes::Review;

/// The directories of a workspace that do not belong to the project.
const NOT_THE_PROJECT: [&str; 2] = [".smithers", ".stockade"];

/// A decision about changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) is_approved: bool,
    /// Only these paths are accepted; if empty, all are.
    pub(super) only: Vec<Bytes>,
    /// Whether files are accepted that tools of the host execute automatically.
    pub(super) allow_executed: bool,
    pub(super) note: Option<String>,
    /// The time of the decision. It is a part of idempotency keys, so that another decision has other
    /// keys.
    pub(super) at: String,
}

impl Decision {
    pub(super) fn read(value: &Value) -> Self {
        let only = serde_json::from_value(value["only"].clone()).unwrap_or_default();
        Self {
            is_approved: value["approved"] == true,
            only,
            allow_executed: value["allowExecuted"] == true,
            note: value["note"].as_str().map(str::to_owned),
            at: value["decidedAt"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

/// The changes of a sandbox's workspace, as a bundle.
pub(super) async fn changes(handle: &SandboxHandle) -> Result<Option<Bundle>, TaskError> {
    let request = CollectChanges {
        sandbox_id: handle.sandbox_id(),
        exclude: NOT_THE_PROJECT.iter().map(|&path| path.into()).collect(),
        limit_bytes: Some(BundleLimits::SANDBOX.total_bytes),
        limit_paths: None,
    };
    let collected = handle.sandboxes().collect_changes(&handle.caller("changes"), request).await;
    Ok(collected.map_err(|problem| task_error(&problem))?.bundle)
}

/// The `diffBundle` of a result, as a bundle.
pub(super) async fn propose(
    handle: &SandboxHandle,
    project: &std::path::Path,
    base_ref: Option<&str>,
    diff: &Value,
) -> Result<Option<Bundle>, TaskError> {
    use std::os::unix::ffi::OsStrExt as _;
    let request = ProposeChanges {
        project: project.as_os_str().as_bytes().into(),
        base_ref: base_ref.map(str::to_owned),
        diff: diff.clone(),
        origin: handle.id().to_owned(),
    };
    let collected = handle.sandboxes().propose_changes(&handle.caller("propose"), request).await;
    Ok(collected.map_err(|problem| refused(&problem))?.bundle)
}

/// The error for rejected changes. Its cause starts with the code of the documentation.
fn refused(problem: &Problem) -> TaskError {
    let mut error = task_error(problem);
    let code = problem.cause.as_deref().and_then(|cause| cause.split(':').next());
    let known = ["TOOL_PATH_ESCAPE", "TOOL_PATCH_FAILED", "SANDBOX_EXECUTION_FAILED"];
    if let Some(known) = known.into_iter().find(|known| code == Some(*known)) {
        known.clone_into(&mut error.code);
    }
    error
}

/// Builds the review of bundles and a result.
pub(super) async fn build(
    handle: &SandboxHandle,
    bundles: &[Bundle],
    result: &SandboxBundle,
) -> Result<Review, TaskError> {
    let mut lines = 0;
    for bundle in bundles {
        let request = DiffBundle { id: bundle.id.clone(), paths: Vec::new() };
        let read = handle.sandboxes().diff_bundle(&handle.caller("diff"), request).await;
        let mut paths = read.map_err(|problem| task_error(&problem))?;
        while let Some(path) = paths.next().await {
            let path = path.map_err(|problem| task_error(&problem))?;
            lines += path.added + path.removed;
        }
    }
    let executed: usize = bundles.iter().map(|bundle| bundle.changes.executed).sum();
    let changed: usize = bundles.iter().map(|bundle| bundle.changes.total).sum();
    Ok(Review {
        outputs: result.manifest.outputs.clone(),
        patch_count: (changed + result.patches.len()) as u64,
        total_diff_lines: lines,
        executed: executed as u64,
        bundles: bundles.iter().map(|bundle| bundle.id.clone()).collect(),
        remote_run_id: result.manifest.run_id.clone(),
    })
}

/// Applies the accepted changes to the project; returns those that were skipped.
pub(super) async fn apply(
    handle: &SandboxHandle,
    review: &Review,
    decision: &Decision,
) -> Result<Vec<Value>, TaskError> {
    let mut left = Vec::new();
    for id in &review.bundles {
        let request = ApplyBundle {
            id: id.clone(),
            paths: decision.only.clone(),
            include_ignored: false,
            skip_unaccepted: false,
            allow_executed: decision.allow_executed,
            // The decision is about all changes, with the number of their lines only.
            allow_unseen: true,
            ..ApplyBundle::default()
        };
        let caller = handle.caller(&format!("apply-{id}-{}", decision.at));
        match handle.sandboxes().apply_bundle(&caller, request).await {
            Ok(applied) => {
                let skipped = applied.skipped.into_iter();
                left.extend(skipped.map(|it| json!({ "path": it.path, "reason": it.reason })));
            }
            // The user applied the bundle meanwhile, which removes it.
            Err(problem) if problem.code == Code::BundleNotFound => {}
            // None of its changes can ever be applied.
            Err(problem) if problem.code == Code::PathRefused && decision.only.is_empty() => {
                left.push(json!({ "reason": problem.cause }));
            }
            Err(problem) => return Err(apply_error(&problem)),
        }
        if !decision.only.is_empty() {
            // The other changes are rejected.
            reject(handle, id).await;
        }
    }
    Ok(left)
}

fn apply_error(problem: &Problem) -> TaskError {
    let mut error = task_error(problem);
    error.code = "TOOL_PATCH_FAILED".to_owned();
    error
}

/// Discards the changes.
pub(super) async fn discard(handle: &SandboxHandle, bundles: impl Iterator<Item = &str>) {
    for id in bundles {
        reject(handle, id).await;
    }
}

async fn reject(handle: &SandboxHandle, id: &str) {
    let caller = handle.caller(&format!("reject-{id}"));
    let rejected =
        handle.sandboxes().reject_bundle(&caller, RejectBundle { id: id.to_owned() }).await;
    if let Err(problem) = rejected
        && problem.code != Code::BundleNotFound
    {
        tracing::warn!(bundle = id, %problem.message, "a declined bundle could not be removed");
    }
}
