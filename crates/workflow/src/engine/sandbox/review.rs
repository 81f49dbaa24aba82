//! The changes of a sandbox: they become bundles, wait for a decision if one is required, and are
//! applied, each bundle completely or not at all.

use std::collections::HashMap;

use serde_json::{Value, json};
use stockade_api::{
    ApplyBundle, Bundle, BundleEntry, Bytes, CollectChanges, DiffBundle, ProposeChanges,
    RejectBundle, ShowBundle,
};
use stockade_bundle::manifest::{Entry, Node};
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

/// The `diffBundle` or the `patches` of a result, as a bundle.
pub(super) async fn propose(
    handle: &SandboxHandle,
    project: &std::path::Path,
    base_ref: Option<&str>,
    (name, diff): (&str, &Value),
) -> Result<Option<Bundle>, TaskError> {
    use std::os::unix::ffi::OsStrExt as _;
    let request = ProposeChanges {
        project: project.as_os_str().as_bytes().into(),
        base_ref: base_ref.map(str::to_owned),
        diff: diff.clone(),
        origin: format!("{} {name}", handle.id()),
    };
    let caller = handle.caller(&format!("propose-{name}"));
    let collected = handle.sandboxes().propose_changes(&caller, request).await;
    Ok(collected.map_err(|problem| refused(&problem))?.bundle)
}

/// Adds a bundle to those of the same result. It is discarded if they contain all of its changes, as those
/// of a command that also writes them as a patch.
///
/// # Errors
/// A path that is changed twice, in different ways: only one of both changes could be applied.
pub(super) async fn join(
    handle: &SandboxHandle,
    bundles: &mut Vec<Bundle>,
    added: Bundle,
    name: &str,
) -> Result<(), TaskError> {
    let mut known = HashMap::new();
    for bundle in bundles.iter() {
        for entry in entries(handle, &bundle.id).await?.into_iter().flatten() {
            known.insert(entry.path, entry.change);
        }
    }
    let id = added.id.clone();
    bundles.push(added);
    if known.is_empty() {
        return Ok(());
    }
    let mut has_more = false;
    for entry in entries(handle, &id).await?.into_iter().flatten() {
        match known.get(&entry.path) {
            None => has_more = true,
            Some(other) if other.new_node() == entry.change.new_node() => {}
            // A directory is changed by what is in it.
            Some(_) if matches!(entry.change.new_node(), Some(Node::Directory { .. })) => {}
            Some(_) => {
                let path = entry.path.quoted();
                let message = format!(
                    "{path} is changed by `{name}` and by the other changes of the sandbox, in different ways: return each change once"
                );
                return Err(TaskError::new("INVALID_INPUT", message));
            }
        }
    }
    if !has_more {
        bundles.pop();
        reject(handle, &id).await;
    }
    Ok(())
}

/// The changes of a bundle; `None` if it no longer exists.
pub(super) async fn entries(
    handle: &SandboxHandle,
    id: &str,
) -> Result<Option<Vec<Entry>>, TaskError> {
    let request = ShowBundle { id: id.to_owned(), paths: Vec::new() };
    let detail = match handle.sandboxes().show_bundle(&handle.caller("show"), request).await {
        Err(problem) if problem.code == Code::BundleNotFound => return Ok(None),
        detail => detail.map_err(|problem| task_error(&problem))?,
    };
    let read = |entry: BundleEntry| serde_json::from_value(Value::Object(entry.change));
    let entries = detail.entries.into_iter().map(read).collect::<Result<_, _>>();
    entries.map(Some).map_err(|error| {
        let message = format!("cannot read the changes of a bundle: {error}");
        TaskError::new("SANDBOX_EXECUTION_FAILED", message)
    })
}

/// The error for rejected changes. Their cause starts with the code of the documentation.
fn refused(problem: &Problem) -> TaskError {
    let known =
        ["INVALID_INPUT", "TOOL_PATH_ESCAPE", "TOOL_PATCH_FAILED", "SANDBOX_EXECUTION_FAILED"];
    let cause = problem.cause.as_deref().unwrap_or_default();
    let (code, detail) =
        cause.split_once(": ").map_or((cause, None), |(code, detail)| (code, Some(detail)));
    let Some(code) = known.into_iter().find(|known| code == *known) else {
        return task_error(problem);
    };
    let told = Problem { cause: detail.map(str::to_owned), ..problem.clone() };
    TaskError { code: code.to_owned(), ..task_error(&told) }
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
        patch_count: changed as u64,
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
        let paths = chosen(handle, id, &decision.only).await?;
        if paths.is_empty() && !decision.only.is_empty() {
            // What was chosen is in the other bundles.
            reject(handle, id).await;
            continue;
        }
        let request = ApplyBundle {
            id: id.clone(),
            paths,
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

/// The chosen paths that a bundle changes.
async fn chosen(handle: &SandboxHandle, id: &str, only: &[Bytes]) -> Result<Vec<Bytes>, TaskError> {
    let mut paths = Vec::new();
    for path in only {
        let request = ShowBundle { id: id.to_owned(), paths: vec![path.clone()] };
        match handle.sandboxes().show_bundle(&handle.caller("show"), request).await {
            Ok(_) => paths.push(path.clone()),
            Err(problem) if problem.code == Code::FileNotFound => {}
            // The user applied it meanwhile; applying finds that out.
            Err(problem) if problem.code == Code::BundleNotFound => paths.push(path.clone()),
            Err(problem) => return Err(task_error(&problem)),
        }
    }
    Ok(paths)
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
