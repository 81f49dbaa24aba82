//! What a synchronization says about itself.

use stockade_api::{Bytes, SkippedFile, SyncConflict, SyncReport};
use stockade_bundle::RelativePath;
use stockade_bundle::manifest::Node;
use stockade_bundle::sync::{Action, Conflict, Plan, SkipReason, same};

use super::Direction;

/// How many paths each list has at most.
const PATHS: usize = 1000;

/// The report of a plan, as if it had been executed.
pub(super) fn of_plan(plan: &Plan, direction: Direction) -> SyncReport {
    let mut report = SyncReport { unchanged: plan.unchanged, ..SyncReport::default() };
    for action in plan.at_destination.iter().chain(&plan.at_source) {
        count(&mut report, action);
    }
    report.skipped = plan.skipped.len() as u64;
    report.conflicts = plan.conflicts.len() as u64;
    report.replaced_paths = plan.replaced.iter().map(bytes).collect();
    let skipped = plan.skipped.iter().map(|(path, reason)| skipped_file(path, *reason));
    report.skipped_paths = skipped.collect();
    let conflicts = plan.conflicts.iter().map(|conflict| to_conflict(conflict, direction));
    report.conflict_paths = conflicts.collect();
    cut(&mut report);
    report
}

fn count(report: &mut SyncReport, action: &Action) {
    let old = action.old.as_ref().map(|found| &found.node);
    match (old, action.new.as_ref().map(|found| &found.node)) {
        (_, Some(Node::Directory { .. })) | (Some(Node::Directory { .. }), None) => {}
        (None, None) => {}
        (old, Some(new)) => {
            report.copied += 1;
            report.copied_paths.push(bytes(&action.path));
            if let Node::File { size, .. } = new
                && !old.is_some_and(|old| same(old, new))
            {
                report.bytes += size;
            }
        }
        (Some(_), None) => {
            report.deleted += 1;
            report.deleted_paths.push(bytes(&action.path));
        }
    }
}

/// Corrects the report for the paths that changed after the plan was made.
pub(super) fn complete(
    report: &mut SyncReport,
    changed: &[RelativePath],
    commit_id: Option<String>,
) {
    report.completed = true;
    report.commit_id = commit_id;
    for path in changed {
        let path = bytes(path);
        if let Some(at) = report.copied_paths.iter().position(|copied| *copied == path) {
            report.copied_paths.remove(at);
            report.copied = report.copied.saturating_sub(1);
        } else if let Some(at) = report.deleted_paths.iter().position(|deleted| *deleted == path) {
            report.deleted_paths.remove(at);
            report.deleted = report.deleted.saturating_sub(1);
        }
        report.skipped += 1;
        let reason = name(SkipReason::ChangedMeanwhile);
        report.skipped_paths.push(SkippedFile { path, reason });
    }
    cut(report);
}

fn cut(report: &mut SyncReport) {
    fn list<T>(list: &mut Vec<T>, truncated: &mut bool) {
        *truncated |= list.len() > PATHS;
        list.truncate(PATHS);
    }
    let SyncReport {
        copied_paths,
        deleted_paths,
        replaced_paths,
        skipped_paths,
        conflict_paths,
        truncated,
        ..
    } = report;
    list(copied_paths, truncated);
    list(deleted_paths, truncated);
    list(replaced_paths, truncated);
    list(skipped_paths, truncated);
    list(conflict_paths, truncated);
}

fn to_conflict(conflict: &Conflict, direction: Direction) -> SyncConflict {
    let hash = |node: &Option<Node>| match node {
        Some(Node::File { hash, .. }) => Some(hash.to_hex()),
        _ => None,
    };
    let (source, destination) = (hash(&conflict.source), hash(&conflict.destination));
    let (vfs, container) = match direction {
        Direction::FromVfs => (source, destination),
        Direction::ToVfs => (destination, source),
    };
    let (base, settled) = (hash(&conflict.base), conflict.settled);
    SyncConflict { path: bytes(&conflict.path), base, vfs, container, settled }
}

fn skipped_file(path: &RelativePath, reason: SkipReason) -> SkippedFile {
    SkippedFile { path: bytes(path), reason: name(reason) }
}

/// The name of a reason in JSON.
fn name(reason: SkipReason) -> String {
    let value = serde_json::to_value(reason).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn bytes(path: &RelativePath) -> Bytes {
    Bytes(path.as_bytes().to_vec())
}
