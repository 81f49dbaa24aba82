//! Whether the host still has the state that a bundle was made from: every touched path is
//! compared, and all differences are reported together. Nothing is changed here.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;

use super::error::{Conflict, Difference, Error};
use super::journal::io_error;
use super::plan::{Skip, SkippedChange};
use crate::beneath::{self, Dir, FileKind, Stat};
use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::path::RelativePath;

/// An entry whose path on the host is as expected.
#[derive(Debug)]
pub(super) struct VerifiedChange<'a> {
    pub(super) entry: &'a Entry,
    /// The metadata on the host; `None` if the path does not exist.
    pub(super) host: Option<Stat>,
    /// Whether its last change is so recent that a later change may have the same timestamp.
    pub(super) is_recently_changed: bool,
}

/// What remains to be done.
#[derive(Debug)]
pub(super) struct Verification<'a> {
    /// Sorted by path.
    pub(super) changes: Vec<VerifiedChange<'a>>,
    /// The paths whose new state the host already has.
    pub(super) already_present: Vec<RelativePath>,
    /// Directories that are not removed because they contain more than the bundle removes.
    pub(super) not_empty: Vec<SkippedChange>,
}

/// Compares the host with what the entries, sorted by path, expect.
pub(super) fn verify<'a>(project: &Dir, entries: &[&'a Entry]) -> Result<Verification<'a>, Error> {
    let mut verifier = Verifier {
        project,
        root: project.stat_self()?,
        directories: paths_where(entries, |change| {
            matches!(change.new_node(), Some(Node::Directory { .. }))
        }),
        links: paths_where(entries, |change| {
            matches!(change.new_node(), Some(Node::Symlink { .. }))
        }),
        touched_directories: paths_where(entries, |change| {
            [change.old(), change.new_node()]
                .into_iter()
                .any(|node| matches!(node, Some(Node::Directory { .. })))
        }),
        parents: HashMap::new(),
        conflicts: Vec::new(),
        on_other_file_system: Vec::new(),
        not_writable: Vec::new(),
    };
    let mut report =
        Verification { changes: Vec::new(), already_present: Vec::new(), not_empty: Vec::new() };
    for entry in entries {
        match verifier.compare(entry)? {
            Ok(Some(verified)) => report.changes.push(verified),
            Ok(None) => report.already_present.push(entry.path.clone()),
            Err(difference) => {
                verifier.conflicts.push(Conflict { path: entry.path.clone(), difference });
            }
        }
    }
    verifier.check_renames(&report);
    verifier.keep_directories_in_use(&mut report)?;
    for change in &report.changes {
        verifier.check_parent(change)?;
    }
    let Verifier { mut conflicts, on_other_file_system: elsewhere, not_writable: locked, .. } =
        verifier;
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        return Err(Error::Conflicts(conflicts));
    }
    if !elsewhere.is_empty() {
        return Err(Error::OtherFileSystem(elsewhere));
    }
    if !locked.is_empty() {
        return Err(Error::NotWritable(locked));
    }
    Ok(report)
}

fn paths_where<'a>(
    entries: &[&'a Entry],
    wanted: impl Fn(&Change) -> bool,
) -> HashSet<&'a RelativePath> {
    entries.iter().filter(|entry| wanted(&entry.change)).map(|entry| &entry.path).collect()
}

struct Verifier<'a, 'p> {
    project: &'p Dir,
    root: Stat,
    /// The paths that become directories.
    directories: HashSet<&'a RelativePath>,
    /// The paths that become links.
    links: HashSet<&'a RelativePath>,
    /// The directories whose permission bits the plan may change temporarily.
    touched_directories: HashSet<&'a RelativePath>,
    parents: HashMap<RelativePath, Parent>,
    conflicts: Vec<Conflict>,
    on_other_file_system: Vec<RelativePath>,
    not_writable: Vec<RelativePath>,
}

#[derive(Debug, Clone, Copy)]
struct Parent {
    is_directory: bool,
    /// Whether it is on the project's own mount.
    is_same_mount: bool,
    is_writable: bool,
}

impl<'a> Verifier<'a, '_> {
    /// `None` if the host already has the new state.
    fn compare(
        &self,
        entry: &'a Entry,
    ) -> Result<Result<Option<VerifiedChange<'a>>, Difference>, Error> {
        if entry.conflict && !entry.base_known {
            return Ok(Err(Difference::DuringRun));
        }
        let host = match self.project.stat(&entry.path) {
            Ok(host) => host,
            Err(beneath::Error::ThroughLink { .. }) if self.is_below_planned_link(entry) => None,
            Err(beneath::Error::ThroughLink { .. }) => return Ok(Err(Difference::Parent)),
            Err(error) => return Err(error.into()),
        };
        let new = entry.change.new_node();
        let verified = |host: Option<Stat>| {
            Ok(Ok(Some(VerifiedChange { entry, host, is_recently_changed: is_recent(host) })))
        };
        let Some(old) = entry.change.old() else {
            return match (host, new) {
                (None, _) => verified(None),
                (Some(host), Some(new)) => Ok(match self.matches(&entry.path, host, new)? {
                    Ok(_) => Ok(None),
                    Err(_) => Err(Difference::Exists),
                }),
                (Some(_), None) => Ok(Err(Difference::Exists)),
            };
        };
        let Some(host) = host else {
            // The path that the bundle removes no longer exists.
            return Ok(if new.is_none() { Ok(None) } else { Err(Difference::Missing) });
        };
        let difference = match self.matches(&entry.path, host, old)? {
            Ok(stat) => return verified(Some(stat)),
            Err(difference) => difference,
        };
        Ok(match new {
            Some(new) if self.matches(&entry.path, host, new)?.is_ok() => Ok(None),
            _ => Err(difference),
        })
    }

    /// Whether the link above a path belongs to the plan. Either the link is to become a
    /// directory, which is still empty, or the link has already replaced a directory, so that
    /// nothing is left to remove. If it is any other link, the link's own entry is a conflict.
    fn is_below_planned_link(&self, entry: &Entry) -> bool {
        if entry.change.old().is_none() {
            return entry.path.parent().is_some_and(|parent| self.directories.contains(&parent));
        }
        let mut parent = entry.path.parent();
        while let Some(path) = parent {
            if self.links.contains(&path) {
                return entry.change.new_node().is_none();
            }
            parent = path.parent();
        }
        false
    }

    /// Whether a path holds a given node; returns its metadata at the time of the comparison.
    fn matches(
        &self,
        path: &RelativePath,
        stat: Stat,
        node: &Node,
    ) -> Result<Result<Stat, Difference>, Error> {
        match (node, stat.kind) {
            (Node::File { hash, size, mode }, FileKind::File) => {
                if stat.size != *size {
                    return Ok(Err(Difference::Content));
                }
                let file = match self.project.open_file(path) {
                    Ok(file) => file,
                    Err(beneath::Error::NotRegular { .. }) => return Ok(Err(Difference::Type)),
                    Err(error) => return Err(error.into()),
                };
                let before = Stat::of(&file).map_err(|e| io_error("inspect", path)(e.into()))?;
                if content_hash(&file, path)? != *hash {
                    return Ok(Err(Difference::Content));
                }
                let after = Stat::of(&file).map_err(|e| io_error("inspect", path)(e.into()))?;
                if before != after {
                    return Ok(Err(Difference::Content));
                }
                Ok(if after.mode & 0o777 == *mode { Ok(after) } else { Err(Difference::Mode) })
            }
            (Node::Symlink { target }, FileKind::Symlink) => {
                Ok(match self.project.read_link(path)? == *target {
                    true => Ok(stat),
                    false => Err(Difference::Target),
                })
            }
            (Node::Directory { mode }, FileKind::Directory) => {
                Ok(match stat.mode & 0o777 == *mode {
                    true => Ok(stat),
                    false => Err(Difference::Mode),
                })
            }
            _ => Ok(Err(Difference::Type)),
        }
    }

    /// Reports renames of files that the host has removed or renamed itself.
    fn check_renames(&mut self, report: &Verification<'a>) {
        let gone: HashSet<&RelativePath> = report.already_present.iter().collect();
        for change in &report.changes {
            let from = change.entry.renamed_from.as_ref();
            if from.is_some_and(|from| gone.contains(from)) {
                let path = change.entry.path.clone();
                self.conflicts.push(Conflict { path, difference: Difference::Source });
            }
        }
    }

    /// Cancels the removal of directories that contain more than is removed from them.
    fn keep_directories_in_use(&mut self, report: &mut Verification<'a>) -> Result<(), Error> {
        let mut gone: HashSet<RelativePath> = HashSet::new();
        let mut kept: HashSet<&RelativePath> = HashSet::new();
        for change in report.changes.iter().rev() {
            let path = &change.entry.path;
            let was_directory = matches!(change.entry.change.old(), Some(Node::Directory { .. }));
            match change.entry.change.new_node() {
                Some(Node::Directory { .. }) => continue,
                Some(_) if !was_directory => continue,
                _ => {}
            }
            let is_removal = change.entry.change.new_node().is_none();
            let stays = was_directory && self.has_other_entries(path, &gone)?;
            match (stays, is_removal) {
                (true, true) => {
                    kept.insert(path);
                    report
                        .not_empty
                        .push(SkippedChange { path: path.clone(), reason: Skip::NotEmpty });
                }
                (true, false) => self
                    .conflicts
                    .push(Conflict { path: path.clone(), difference: Difference::NotEmpty }),
                (false, true) => {
                    gone.insert(path.clone());
                }
                (false, false) => {}
            }
        }
        report.changes.retain(|change| !kept.contains(&change.entry.path));
        report.not_empty.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    fn has_other_entries(
        &self,
        directory: &RelativePath,
        gone: &HashSet<RelativePath>,
    ) -> Result<bool, Error> {
        let entries = self.project.open_dir(directory)?.entries()?;
        // A name that is not a valid path cannot be among the removed ones.
        Ok(entries
            .iter()
            .any(|(name, _)| !directory.join(name).is_ok_and(|path| gone.contains(&path))))
    }

    /// Whether the path's parent exists, is on the project's own file system, and is writable.
    fn check_parent(&mut self, change: &VerifiedChange<'a>) -> Result<(), Error> {
        let path = &change.entry.path;
        if let Some(host) = change.host
            && (host.mount, host.device) != (self.root.mount, self.root.device)
        {
            self.on_other_file_system.push(path.clone());
            return Ok(());
        }
        let only_mode = change.host.is_some_and(|host| host.kind == FileKind::Directory)
            && self.directories.contains(path);
        if only_mode {
            return Ok(());
        }
        let parent_path = path.parent();
        let made = parent_path.as_ref().is_some_and(|path| self.directories.contains(path));
        let parent = self.parent(parent_path.as_ref())?;
        if !parent.is_directory {
            if !made {
                let path = path.clone();
                self.conflicts.push(Conflict { path, difference: Difference::Parent });
            }
        } else if !parent.is_same_mount {
            self.on_other_file_system.push(path.clone());
        } else if !parent.is_writable {
            let touched =
                parent_path.as_ref().is_some_and(|path| self.touched_directories.contains(path));
            if !touched {
                self.not_writable.push(path.clone());
            }
        }
        Ok(())
    }

    fn parent(&mut self, path: Option<&RelativePath>) -> Result<Parent, Error> {
        let Some(path) = path else {
            let is_writable = self.project.is_writable()?;
            return Ok(Parent { is_directory: true, is_same_mount: true, is_writable });
        };
        if let Some(parent) = self.parents.get(path) {
            return Ok(*parent);
        }
        let parent = match self.project.stat(path) {
            Ok(Some(stat)) if stat.kind == FileKind::Directory => Parent {
                is_directory: true,
                is_same_mount: (stat.mount, stat.device) == (self.root.mount, self.root.device),
                is_writable: self.project.locate_dir(path)?.is_writable()?,
            },
            Ok(_) | Err(beneath::Error::ThroughLink { .. }) => {
                Parent { is_directory: false, is_same_mount: false, is_writable: false }
            }
            Err(error) => return Err(error.into()),
        };
        self.parents.insert(path.clone(), parent);
        Ok(parent)
    }
}

/// The hash of an open file's content from its current position on.
pub(super) fn content_hash(mut file: &File, path: &RelativePath) -> Result<ContentHash, Error> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        let count = file.read(&mut buffer).map_err(io_error("read", path))?;
        if count == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..count]);
    }
}

/// File system timestamps come from a clock that ticks, so two changes in one tick look like one.
fn is_recent(stat: Option<Stat>) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    stat.is_some_and(|stat| stat.changed.seconds >= now.tv_sec - 1)
}
