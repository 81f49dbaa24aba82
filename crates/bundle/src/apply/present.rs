//! What the project has now, compared with what a bundle was made from.

use super::merge;
use crate::beneath::{Dir, FileKind};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;

/// How much earlier than the bundle a change of the host may have its time, because of the ticks of
/// the clock, in seconds.
const TICK_SECONDS: i64 = 2;

/// What the project has at a path; `None` if it has nothing there, or what no bundle can contain.
pub fn host_node(project: &Dir, path: &RelativePath) -> Option<Node> {
    let stat = project.stat(path).ok()??;
    merge::node(project, path, &stat).ok()?.ok()?
}

/// Whether the host has changed a path since the bundle was created at this time, in milliseconds since
/// the epoch, or since its command started, so that the entry cannot simply be applied.
pub fn is_in_conflict(project: &Dir, entry: &Entry, created_at_ms: u64) -> bool {
    let (old, new) = (entry.change.old(), entry.change.new_node());
    let is_directory = [old, new].iter().flatten().any(|it| matches!(it, Node::Directory { .. }));
    if entry.tree.is_some() || entry.refused.is_some() || (is_directory && !entry.conflict) {
        return false;
    }
    let Ok(found) = project.stat(&entry.path) else { return true };
    let Some(stat) = found else { return old.is_some() && new.is_some() };
    let created = i64::try_from(created_at_ms / 1000).unwrap_or(i64::MAX);
    let is_earlier = stat.changed.seconds < created.saturating_sub(TICK_SECONDS);
    if is_earlier && old.is_some() && !entry.conflict && stat.kind != FileKind::Directory {
        return false;
    }
    let node = host_node(project, &entry.path);
    let is_old = node.as_ref() == old && (!entry.conflict || entry.base_known);
    !is_old && node.as_ref() != new
}
