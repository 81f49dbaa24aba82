//! Three-way merges of a bundle with a project in which the same paths have changed: the entries that
//! conflict become entries from what the project has now to the merged result.
//!
//! What cannot be merged stays a conflict, unless the caller favors a side or wants markers. The
//! results are entries like any other: they are verified, judged and applied like those of a bundle.

mod nodes;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};

use rustix::io::Errno;

pub use text::{Favor, Labels};

use self::nodes::{Base, Contents, NodeMerge};
use super::error::{Conflict, Difference, Error};
use crate::beneath::{self, Dir, FileKind, Rename, Stat};
use crate::manifest::{Change, ContentHash, Entry, ExecutedBy, Node};
use crate::path::RelativePath;
use crate::policy;

/// A larger content is not merged line by line.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// The permission bits of a directory that the project lacks and a favored change needs.
const NEW_DIRECTORY: u32 = 0o755;

/// Where the contents are from which a bundle was made.
pub trait Bases: std::fmt::Debug {
    /// The old content with this hash, if it is stored.
    fn base(&self, hash: ContentHash) -> Option<Vec<u8>>;
}

/// How conflicts are decided.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// The side that is taken where both changed the same.
    pub favor: Option<Favor>,
    /// Whether conflicts in texts are written between markers.
    pub marks_conflicts: bool,
    /// The names of the sides behind markers.
    pub labels: Labels,
    /// The old contents.
    pub bases: &'a dyn Bases,
}

/// Entries without conflicts.
#[derive(Debug, Default)]
pub(super) struct Resolution {
    /// All entries, sorted by path.
    pub(super) entries: Vec<Entry>,
    /// The paths whose content was merged from both sides.
    pub(super) merged: Vec<RelativePath>,
    /// The paths at which the project keeps what it has.
    pub(super) kept: Vec<RelativePath>,
    /// The paths of texts in which conflicts are marked.
    pub(super) marked: Vec<RelativePath>,
}

impl Resolution {
    /// The result of decisions that were made after these.
    pub(super) fn followed_by(mut self, next: Self) -> Self {
        self.entries = next.entries;
        self.merged.extend(next.merged);
        self.kept.extend(next.kept);
        self.marked.extend(next.marked);
        self
    }
}

/// Decides the conflicts of entries, sorted by path. New contents are written to `blobs`.
///
/// # Errors
/// [`Error::Conflicts`] with those that cannot be decided.
pub(super) fn resolve(
    project: &Dir,
    blobs: &Dir,
    (entries, conflicts): (&[&Entry], &[Conflict]),
    options: &Options<'_>,
) -> Result<Resolution, Error> {
    let mut merger = Merger {
        project,
        blobs,
        options,
        entries: entries.iter().map(|entry| (entry.path.clone(), (*entry).clone())).collect(),
        resolution: Resolution::default(),
        left: Vec::new(),
    };
    let renamed_to: BTreeMap<RelativePath, RelativePath> = entries
        .iter()
        .filter_map(|entry| Some((entry.renamed_from.clone()?, entry.path.clone())))
        .collect();
    let mut done = BTreeSet::new();
    for conflict in conflicts {
        let path = &conflict.path;
        // Both halves of a rename are decided together.
        let target = renamed_to.get(path).unwrap_or(path);
        if !done.insert(target.clone()) {
            continue;
        }
        let Some(entry) = merger.entries.get(target).cloned() else { continue };
        match &entry.renamed_from {
            Some(from) => merger.renamed(&entry, from, conflict)?,
            None => merger.entry(&entry, conflict.difference)?,
        }
    }
    if !merger.left.is_empty() {
        merger.left.sort_by(|a, b| a.path.cmp(&b.path));
        return Err(Error::Conflicts(merger.left));
    }
    let Merger { entries, mut resolution, .. } = merger;
    resolution.entries = entries.into_values().collect();
    Ok(resolution)
}

struct Merger<'a> {
    project: &'a Dir,
    blobs: &'a Dir,
    options: &'a Options<'a>,
    entries: BTreeMap<RelativePath, Entry>,
    resolution: Resolution,
    left: Vec<Conflict>,
}

impl Merger<'_> {
    fn entry(&mut self, entry: &Entry, difference: Difference) -> Result<(), Error> {
        let path = &entry.path;
        match difference {
            Difference::Parent | Difference::NotEmpty => {
                let merged = match self.options.favor {
                    Some(Favor::Ours) => NodeMerge::Ours,
                    Some(Favor::Theirs) if difference == Difference::Parent => NodeMerge::Theirs,
                    _ => NodeMerge::Conflict(difference),
                };
                return self.take(entry, path, None, merged);
            }
            _ => {}
        }
        let Ok(ours) = self.host(path)? else {
            return self.take(entry, path, None, NodeMerge::Conflict(Difference::Type));
        };
        let base = match entry.change.old() {
            _ if entry.conflict && !entry.base_known => Base::Unknown,
            Some(node) => Base::Node(node),
            None => Base::Nothing,
        };
        let mut contents = Files { merger: self, path: path.clone() };
        let theirs = entry.change.new_node();
        let merged =
            nodes::merge(base, ours.as_ref(), theirs, contents.merger.options, &mut contents);
        self.take(entry, path, ours, merged)
    }

    /// Decides about a rename of which the project has changed a path.
    fn renamed(
        &mut self,
        entry: &Entry,
        from: &RelativePath,
        conflict: &Conflict,
    ) -> Result<(), Error> {
        let (Ok(there), Ok(source)) = (self.host(&entry.path)?, self.host(from)?) else {
            return self.take_rename(entry, from, None, NodeMerge::Conflict(Difference::Type));
        };
        let before = self.entries.get(from).map(|source| {
            let is_known = !source.conflict || source.base_known;
            (source.change.old().cloned(), is_known)
        });
        let merged = match (&source, there.is_none(), before) {
            // Only the old path was changed: its changes move to the new one.
            (Some(_), true, Some((Some(base), is_known))) => {
                let base = if is_known { Base::Node(&base) } else { Base::Unknown };
                let mut contents = Files { merger: self, path: from.clone() };
                let options = contents.merger.options;
                let theirs = entry.change.new_node();
                nodes::merge(base, source.as_ref(), theirs, options, &mut contents)
            }
            _ => match self.options.favor {
                Some(Favor::Ours) => NodeMerge::Ours,
                Some(Favor::Theirs) if there.is_none() => NodeMerge::Theirs,
                _ => NodeMerge::Conflict(conflict.difference),
            },
        };
        // The project keeps its content, and the file moves all the same.
        let merged = match merged {
            NodeMerge::Ours
                if source.is_some() && there.is_none() && self.options.favor.is_none() =>
            {
                self.moved(from)?
            }
            merged => merged,
        };
        self.take_rename(entry, from, source, merged)
    }

    /// The project's own file, for another path.
    fn moved(&mut self, from: &RelativePath) -> Result<NodeMerge, Error> {
        let mode = self.project.stat(from)?.map_or(0o644, |stat| stat.mode & 0o777);
        Ok(match read(self.project, from) {
            Some(content) => NodeMerge::File { content, mode, is_marked: false },
            None => NodeMerge::Conflict(Difference::Content),
        })
    }

    fn take_rename(
        &mut self,
        entry: &Entry,
        from: &RelativePath,
        source: Option<Node>,
        merged: NodeMerge,
    ) -> Result<(), Error> {
        match merged {
            NodeMerge::Conflict(_) => {}
            NodeMerge::Ours => {
                self.entries.remove(from);
                self.resolution.kept.push(from.clone());
            }
            NodeMerge::Theirs | NodeMerge::File { .. } => {
                if let Some(deletion) = self.entries.get_mut(from) {
                    deletion.conflict = false;
                    match source {
                        Some(old) => deletion.change = Change::Delete { old },
                        None => drop(self.entries.remove(from)),
                    }
                }
            }
        }
        self.take(entry, from, None, merged)
    }

    /// Takes a result for an entry. `ours` is what the project has at its path.
    fn take(
        &mut self,
        entry: &Entry,
        shown: &RelativePath,
        ours: Option<Node>,
        merged: NodeMerge,
    ) -> Result<(), Error> {
        let path = entry.path.clone();
        let new = match merged {
            NodeMerge::Conflict(difference) => {
                self.left.push(Conflict { path: shown.clone(), difference });
                return Ok(());
            }
            NodeMerge::Ours => {
                self.entries.remove(&path);
                self.resolution.kept.push(path);
                return Ok(());
            }
            NodeMerge::Theirs => {
                self.add_parents(&path)?;
                entry.change.new_node().cloned()
            }
            NodeMerge::File { content, mode, is_marked } => {
                self.resolution.merged.push(path.clone());
                if is_marked {
                    self.resolution.marked.push(path.clone());
                }
                let before = read(self.project, shown);
                if policy::content::is_judged(&path)
                    && policy::content::changes_execution(&path, before.as_deref(), &content)
                    && let Some(entry) = self.entries.get_mut(&path)
                {
                    entry.executed_by = entry.executed_by.or(Some(ExecutedBy::Build));
                }
                let (hash, size) = (self.store(&path, &content)?, content.len() as u64);
                Some(Node::File { hash, size, mode })
            }
        };
        let change = match (ours, new) {
            (None, Some(new)) => Change::Add { new },
            (Some(old), Some(new)) => Change::Modify { old, new },
            (Some(old), None) => Change::Delete { old },
            (None, None) => {
                self.entries.remove(&path);
                return Ok(());
            }
        };
        if let Some(entry) = self.entries.get_mut(&path) {
            entry.change = change;
            entry.conflict = false;
            entry.renamed_from = None;
        }
        Ok(())
    }

    /// Adds the directories that a path needs and the project lacks.
    fn add_parents(&mut self, path: &RelativePath) -> Result<(), Error> {
        for parent in std::iter::successors(path.parent(), RelativePath::parent) {
            if self.entries.contains_key(&parent) || self.project.exists(&parent)? {
                continue;
            }
            let new = Node::Directory { mode: NEW_DIRECTORY };
            let entry = Entry::new(parent.clone(), Change::Add { new });
            self.entries.insert(parent, entry);
        }
        Ok(())
    }

    /// What the project has at a path. The inner error stands for what no bundle can contain.
    fn host(&self, path: &RelativePath) -> Result<Result<Option<Node>, ()>, Error> {
        let stat = match self.project.stat(path) {
            Err(beneath::Error::ThroughLink { .. }) => return Ok(Err(())),
            other => other?,
        };
        let Some(stat) = stat else { return Ok(Ok(None)) };
        node(self.project, path, &stat)
    }

    /// Writes a content to the blobs, under its hash.
    fn store(&self, path: &RelativePath, content: &[u8]) -> Result<ContentHash, Error> {
        let hash = ContentHash::of(content);
        let failed =
            |source| Error::Io { operation: "store the merged", path: path.quoted(), source };
        let name = RelativePath::new(hash.to_hex())
            .map_err(|error| failed(std::io::Error::other(error)))?;
        let new = RelativePath::literal("merged.new");
        // A killed process may have left this file.
        match self.blobs.remove_file(&new) {
            Err(error) if error.errno() != Some(Errno::NOENT) => return Err(error.into()),
            _ => {}
        }
        let mut file = self.blobs.create_file(&new, 0o600)?;
        file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
        self.blobs.rename(&new, self.blobs, &name, Rename::Replace)?;
        Ok(hash)
    }
}

/// The node at a path of a directory.
pub(super) fn node(
    dir: &Dir,
    path: &RelativePath,
    stat: &Stat,
) -> Result<Result<Option<Node>, ()>, Error> {
    let mode = stat.mode & 0o777;
    Ok(Ok(Some(match stat.kind {
        FileKind::File => {
            let file = dir.open_file(path)?;
            let hash = super::verify::content_hash(&file, path)?;
            let size = Stat::of(&file).map_or(stat.size, |stat| stat.size);
            Node::File { hash, size, mode }
        }
        FileKind::Symlink => Node::Symlink { target: dir.read_link(path)? },
        FileKind::Directory => Node::Directory { mode },
        FileKind::CharacterDevice | FileKind::Other => return Ok(Err(())),
    })))
}

/// The contents of one path.
struct Files<'m, 'a> {
    merger: &'m Merger<'a>,
    /// The path at which the project has the file.
    path: RelativePath,
}

impl Contents for Files<'_, '_> {
    fn base(&mut self, hash: ContentHash) -> Option<Vec<u8>> {
        self.merger.options.bases.base(hash)
    }

    fn ours(&mut self) -> Option<Vec<u8>> {
        read(self.merger.project, &self.path)
    }

    fn theirs(&mut self, hash: ContentHash) -> Option<Vec<u8>> {
        let name = RelativePath::new(hash.to_hex()).ok()?;
        read(self.merger.blobs, &name).filter(|content| ContentHash::of(content) == hash)
    }
}

/// The content of a file; `None` if it cannot be read or is too large.
fn read(dir: &Dir, path: &RelativePath) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    dir.open_file(path).ok()?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= MAX_TEXT_BYTES).then_some(content)
}

#[cfg(test)]
mod tests;
