//! Marking entries: what git ignores, what may never be applied, what host tools execute.

use std::convert::Infallible;
use std::io::Read as _;

use rustix::io::Errno;

use super::Error;
use crate::beneath::{self, Dir};
use crate::ignore::{self, Ignore};
use crate::index::{self, Index};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;
use crate::policy;
use crate::project::Project;
use crate::view::View;

/// Marks sorted entries.
pub(super) fn mark(
    entries: &mut [Entry],
    view: &View,
    project: &Project,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    entries.iter_mut().for_each(policy::classify);
    policy::refuse_bare_repositories(entries, |path| match project.dir.stat(path) {
        Ok(found) => Ok(found.is_some()),
        // Git follows links, but none of the project's leads to what the bundle adds.
        Err(beneath::Error::ThroughLink { .. }) => Ok(false),
        Err(error) if error.errno() == Some(Errno::NAMETOOLONG) => Ok(false),
        Err(source) => Err(Error::Read { layer: "project", path: path.quoted(), source }),
    })?;
    let ignored = ignored(entries, view, project, notes);
    for (entry, ignored) in entries.iter_mut().zip(ignored) {
        entry.ignored = ignored;
    }
    Ok(())
}

/// For each entry, whether git ignores it.
///
/// The rules of the changed tree decide, as they would after an application, but only among what
/// the project's own rules ignore: a command that could add a rule could hide its changes. A
/// tracked file is never ignored.
fn ignored(
    entries: &[Entry],
    view: &View,
    project: &Project,
    notes: &mut Vec<String>,
) -> Vec<bool> {
    let exclude = project
        .git_common_file(&RelativePath::literal("info/exclude"), ignore::MAX_FILE_BYTES)
        .unwrap_or_default();
    let mut before = Ignore::new(&exclude, |file: &RelativePath| Ok(rules(&project.dir, file)));
    let mut after = Ignore::new(&exclude, |file: &RelativePath| {
        Ok(match entries.binary_search_by(|entry| entry.path.cmp(file)) {
            Err(_) => rules(&project.dir, file),
            Ok(at) => match entries[at].change.new_node() {
                Some(Node::File { .. }) => rules(view.changed(), file),
                _ => None,
            },
        })
    });
    let mut index = None;
    let mut verdict = |entry: &Entry| {
        if entry.refused.is_some() {
            return false;
        }
        let node = entry.change.new_node().or_else(|| entry.change.old());
        let is_directory = matches!(node, Some(Node::Directory { .. }));
        let Ok::<_, Infallible>(was) = before.ignores(&entry.path, is_directory);
        let Ok::<_, Infallible>(is) = after.ignores(&entry.path, is_directory);
        was && is && !index.get_or_insert_with(|| tracked(project, notes)).tracks(&entry.path)
    };
    entries.iter().map(&mut verdict).collect()
}

/// The content of an ignore file. Git reads none that is a link, and none that it may not read.
fn rules(tree: &Dir, file: &RelativePath) -> Option<Vec<u8>> {
    let file = tree.open_file(file).ok()?;
    let mut content = Vec::new();
    file.take(ignore::MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
    Some(content)
}

/// What git tracks; nothing, with a note, where that cannot be told.
fn tracked(project: &Project, notes: &mut Vec<String>) -> Index {
    let read = |name: &str| {
        let name = RelativePath::new(name).ok()?;
        project.git_file(&name, index::MAX_FILE_BYTES)
    };
    let Some(content) = read("index") else {
        notes.push("git has no index here: no file counts as tracked".to_owned());
        return Index::default();
    };
    let parsed = Index::parse(&content).and_then(|mut index| {
        if let Some(shared) = index.shared().map(str::to_owned) {
            index.join(Index::parse(&read(&shared).unwrap_or_default())?);
        }
        Ok(index)
    });
    parsed.unwrap_or_else(|error| {
        notes.push(format!("{error}: no file counts as tracked"));
        Index::default()
    })
}
