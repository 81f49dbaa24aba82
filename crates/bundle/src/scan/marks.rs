//! Marking entries: whether git ignores them, whether they are refused, whether host tools execute
//! them.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use super::{Error, ignored};
use crate::beneath::Dir;
use crate::manifest::{Entry, ExecutedBy, Node};
use crate::path::RelativePath;
use crate::policy::{self, content};
use crate::project::Project;
use crate::view::View;

/// Marks sorted entries.
pub(super) fn mark(
    entries: &mut [Entry],
    view: &View,
    project: &Project,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let root = project.root.as_os_str().as_bytes();
    entries.iter_mut().for_each(|entry| policy::classify(entry, root));
    project.mark_programs(entries);
    for entry in entries.iter_mut().filter(|entry| is_executed_in_part(entry, view, project)) {
        entry.executed_by = Some(ExecutedBy::Build);
    }
    policy::refuse_bare_repositories(entries, |path| {
        project.dir.exists(path).map_err(|source| Error::Read {
            layer: "project",
            path: path.quoted(),
            source,
        })
    })?;
    let ignored = ignored::ignored(entries, view, project, notes);
    for (entry, ignored) in entries.iter_mut().zip(ignored) {
        entry.ignored = ignored;
    }
    Ok(())
}

/// Whether an entry that has no mark changes the part of a manifest that tools execute.
fn is_executed_in_part(entry: &Entry, view: &View, project: &Project) -> bool {
    if entry.executed_by.is_some() || entry.refused.is_some() || !content::is_judged(&entry.path) {
        return false;
    }
    let old = match entry.change.old() {
        Some(Node::File { .. }) => read(&project.dir, &entry.path),
        _ => None,
    };
    match entry.change.new_node() {
        Some(Node::File { .. }) => match read(view.changed(), &entry.path) {
            Some(new) => content::changes_execution(&entry.path, old.as_deref(), &new),
            None => true,
        },
        // What the link leads to is not known before it is applied.
        Some(Node::Symlink { .. }) => true,
        Some(Node::Directory { .. }) | None => false,
    }
}

/// The content of a file; `None` if it cannot be read or is too long.
fn read(dir: &Dir, path: &RelativePath) -> Option<Vec<u8>> {
    let file = dir.open_file(path).ok()?;
    let mut content = Vec::new();
    file.take(content::MAX_BYTES + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= content::MAX_BYTES).then_some(content)
}
