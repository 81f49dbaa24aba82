//! The changes that a sandbox brings: they become bundles, wait for a decision where one is wanted,
//! and are applied, all of a bundle or nothing. Nothing runs again for it.

use serde_json::{Value, json};
use stockade_api::{
    ApplyBundle, Bundle, Bytes, CollectChanges, DiffBundle, ProposeChanges, RejectBundle,
};
use stockade_bundle::sandbox::SandboxBundle;
use stockade_core::{BundleLimits, Code, Problem};

use super::held::{Held, trouble};
use crate::engine::trouble::Trouble;
use crate::store::sandboxes::Review;

/// What in the workspace is not the project's.
const NOT_THE_PROJECT: [&str; 2] = [".smithers", ".stockade"];

/// What somebody said about changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) is_approved: bool,
    /// Only these paths; all when empty.
    pub(super) only: Vec<Bytes>,
    /// Whether what tools of the host run by themselves is accepted.
    pub(super) allow_executed: bool,
    pub(super) note: Option<String>,
    /// When it was taken: what is done about it is not done for another.
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

/// What the workspace of a sandbox of this host changed, as a bundle.
pub(super) async fn changes(held: &Held) -> Result<Option<Bundle>, Trouble> {
    let request = CollectChanges {
        sandbox_id: held.sandbox_id(),
        exclude: NOT_THE_PROJECT.iter().map(|&path| path.into()).collect(),
        limit_bytes: Some(BundleLimits::SANDBOX.total_bytes),
    };
    let collected = held.sandboxes().collect_changes(&held.caller("changes"), request).await;
    Ok(collected.map_err(|problem| trouble(&problem))?.bundle)
}

/// The `diffBundle` of a result, as a bundle.
pub(super) async fn proposed(
    held: &Held,
    project: &std::path::Path,
    base_ref: Option<&str>,
    diff: &Value,
) -> Result<Option<Bundle>, Trouble> {
    use std::os::unix::ffi::OsStrExt as _;
    let request = ProposeChanges {
        project: project.as_os_str().as_bytes().into(),
        base_ref: base_ref.map(str::to_owned),
        diff: diff.clone(),
        origin: held.id().to_owned(),
    };
    let collected = held.sandboxes().propose_changes(&held.caller("propose"), request).await;
    Ok(collected.map_err(|problem| refused(&problem))?.bundle)
}

/// A refusal, whose cause begins with the word that seed 001 has for it.
fn refused(problem: &Problem) -> Trouble {
    let mut trouble = trouble(problem);
    let word = problem.cause.as_deref().and_then(|cause| cause.split(':').next());
    let known = ["TOOL_PATH_ESCAPE", "TOOL_PATCH_FAILED", "SANDBOX_EXECUTION_FAILED"];
    if let Some(known) = known.into_iter().find(|known| word == Some(*known)) {
        known.clone_into(&mut trouble.code);
    }
    trouble
}

/// What is to be decided about bundles and a result.
pub(super) async fn of(
    held: &Held,
    bundles: &[Bundle],
    result: &SandboxBundle,
) -> Result<Review, Trouble> {
    let mut lines = 0;
    for bundle in bundles {
        let request = DiffBundle { id: bundle.id.clone(), paths: Vec::new() };
        let read = held.sandboxes().diff_bundle(&held.caller("diff"), request).await;
        let mut paths = read.map_err(|problem| trouble(&problem))?;
        while let Some(path) = paths.next().await {
            let path = path.map_err(|problem| trouble(&problem))?;
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

/// Makes the accepted changes in the project; what was left out of them.
pub(super) async fn apply(
    held: &Held,
    review: &Review,
    decision: &Decision,
) -> Result<Vec<Value>, Trouble> {
    let mut left = Vec::new();
    for id in &review.bundles {
        let request = ApplyBundle {
            id: id.clone(),
            paths: decision.only.clone(),
            include_ignored: false,
            allow_executed: decision.allow_executed,
        };
        let caller = held.caller(&format!("apply-{id}-{}", decision.at));
        match held.sandboxes().apply_bundle(&caller, request).await {
            Ok(applied) => {
                let skipped = applied.skipped.into_iter();
                left.extend(skipped.map(|it| json!({ "path": it.path, "reason": it.reason })));
            }
            // It was applied by hand meanwhile, and is gone with that.
            Err(problem) if problem.code == Code::BundleNotFound => {}
            // Nothing in it can ever be applied.
            Err(problem) if problem.code == Code::PathRefused && decision.only.is_empty() => {
                left.push(json!({ "reason": problem.cause }));
            }
            Err(problem) => return Err(unapplied(&problem)),
        }
        if !decision.only.is_empty() {
            // What was not chosen is declined.
            reject(held, id).await;
        }
    }
    Ok(left)
}

fn unapplied(problem: &Problem) -> Trouble {
    let mut trouble = trouble(problem);
    trouble.code = "TOOL_PATCH_FAILED".to_owned();
    trouble
}

/// Throws the changes away.
pub(super) async fn discard(held: &Held, bundles: impl Iterator<Item = &str>) {
    for id in bundles {
        reject(held, id).await;
    }
}

async fn reject(held: &Held, id: &str) {
    let caller = held.caller(&format!("reject-{id}"));
    let rejected =
        held.sandboxes().reject_bundle(&caller, RejectBundle { id: id.to_owned() }).await;
    if let Err(problem) = rejected
        && problem.code != Code::BundleNotFound
    {
        tracing::warn!(bundle = id, %problem.message, "a bundle that was declined stays");
    }
}
