//! What git writes for itself while it only reads a repository: an index with newer times of the same
//! files, objects that nothing names, the message of a commit that was not made, and the like. If nothing
//! else in a git directory has changed, these are no changes.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::beneath::Dir;
use crate::index::{Index, MAX_FILE_BYTES};
use crate::manifest::{Change, Entry, Node};
use crate::path::RelativePath;
use crate::project::Project;
use crate::view::View;

/// Files directly in a git directory whose loss changes nothing in the repository.
const NAMES: [&[u8]; 7] = [
    b"COMMIT_EDITMSG",
    b"FETCH_HEAD",
    b"ORIG_HEAD",
    b"gc.log",
    b"gc.pid",
    b"index.lock",
    b"fsmonitor--daemon.ipc",
];

/// Removes the entries of git directories in which only git's own bookkeeping has changed.
pub(super) fn remove(entries: &mut Vec<Entry>, view: &View, project: &Project) {
    let mut is_only: BTreeMap<RelativePath, bool> = BTreeMap::new();
    for entry in entries.iter() {
        let Some((directory, below)) = split(&entry.path) else { continue };
        let only = is_only.entry(directory).or_insert(true);
        *only = *only && is_bookkeeping(entry, &below, view, project);
    }
    if is_only.values().any(|only| *only) {
        entries.retain(|entry| {
            let of = split(&entry.path).and_then(|(directory, _)| is_only.get(&directory));
            !of.copied().unwrap_or(false)
        });
    }
}

/// A path in a git directory: that directory, and the path below it.
fn split(path: &RelativePath) -> Option<(RelativePath, RelativePath)> {
    let bytes = path.as_bytes();
    let is_git = |directory: &RelativePath| directory.file_name() == b".git";
    let above = std::iter::successors(path.parent(), RelativePath::parent);
    let directory = above.filter(is_git).last()?;
    let below = RelativePath::new(bytes.get(directory.as_bytes().len() + 1..)?).ok()?;
    Some((directory, below))
}

fn is_bookkeeping(entry: &Entry, below: &RelativePath, view: &View, project: &Project) -> bool {
    // An object means something only to what names it: a reference, or an index.
    let top = below.as_bytes().split(|byte| *byte == b'/').next();
    if top == Some(b"logs".as_slice()) || top == Some(b"objects".as_slice()) {
        return true;
    }
    if NAMES.contains(&below.as_bytes()) {
        return true;
    }
    // Submodules and worktrees have an index of their own.
    below.file_name() == b"index" && is_same_index(entry, view.changed(), &project.dir)
}

/// Whether an index has the same files as before, and differs in times and caches only.
fn is_same_index(entry: &Entry, layer: &Dir, project: &Dir) -> bool {
    let Change::Modify { old: Node::File { .. }, new: Node::File { .. } } = &entry.change else {
        return false;
    };
    let read = |dir: &Dir| {
        let mut content = Vec::new();
        let file = dir.open_file(&entry.path).ok()?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
        Index::parse(&content).ok().map(|index| index.content_hash())
    };
    matches!((read(layer), read(project)), (Some(new), Some(old)) if new == old)
}
