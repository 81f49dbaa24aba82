//! Walking a view's layer in parallel with the project: the entries, neither sorted nor marked.
//!
//! For an overlay the upper layer is walked (kernel documentation, `overlayfs.rst`): character
//! device 0:0 is a deletion, the attribute `opaque=y` marks a directory that hides the one in the
//! lower layer. Directories that were renamed have been filled before ([`crate::layer::renamed`]). A copy is compared with the project. A gathered view is a directory with the
//! changed files and a list of removed paths, and may have the marks of an upper layer.

use std::collections::HashSet;
use std::os::fd::AsFd;

use rustix::io::Errno;
use stockade_core::BundleLimits;

use super::Error;
use super::node::{Reader, ScannedNode};
use super::origins::Origins;
use crate::beneath::{self, Dir, FileKind, Stat, Timestamp};
use crate::history::History;
use crate::ignored_tree;
use crate::layer::{Location, Marks, is_in_place};
use crate::manifest::{Change, Entry, Node, Refusal};
use crate::path::RelativePath;
use crate::project::Project;
use crate::validate::check_limit;
use crate::view::View;

/// All differences between the view's layer and the project.
pub(super) fn walk(
    view: &View,
    project: &Project,
    excluded: &[RelativePath],
    history: &mut History,
    limits: &BundleLimits,
) -> Result<Vec<Entry>, Error> {
    let layer = view.changed();
    let root = layer.stat_self().map_err(|source| read_error("view", None, source))?;
    if root.mode & 0o700 != 0o700 {
        let mode = rustix::fs::Mode::from_bits_truncate(root.mode | 0o700);
        // If this is refused, opening the directory fails too and reports the error.
        let _ = rustix::fs::fchmod(layer.as_fd(), mode);
    }
    let mut walk = Walk {
        layer,
        marks: Marks::of(layer),
        project: &project.dir,
        copied: view.record().copied,
        is_copy: view.copy().is_some(),
        removed: view.removed().iter().collect(),
        started: view.record().started,
        excluded,
        history,
        limits,
        reader: Reader::new(),
        entries: Vec::new(),
        origins: Origins::default(),
        bytes: 0,
        pending: vec![Level {
            path: None,
            over_directory: true,
            is_replaced: false,
            is_unmoved: true,
        }],
    };
    while let Some(level) = walk.pending.pop() {
        walk.level(&level)?;
    }
    walk.removed(view.removed())?;
    let Walk { origins, mut entries, .. } = walk;
    origins.mark_conflicts(&mut entries);
    Ok(entries)
}

struct Walk<'a> {
    layer: &'a Dir,
    marks: Marks,
    project: &'a Dir,
    is_copy: bool,
    /// The paths of the list of removed ones.
    removed: HashSet<&'a RelativePath>,
    /// What the layer has with an earlier timestamp is as it was at the start.
    copied: Option<Timestamp>,
    started: Timestamp,
    excluded: &'a [RelativePath],
    history: &'a mut History,
    limits: &'a BundleLimits,
    reader: Reader,
    entries: Vec<Entry>,
    origins: Origins,
    bytes: u64,
    /// Directories of the layer that remain to be walked. Each is opened by its whole path only
    /// when it is walked, so that no depth exhausts descriptors or the stack.
    pending: Vec<Level>,
}

struct Level {
    /// `None` is the root.
    path: Option<RelativePath>,
    /// Whether the project has a directory at the same path.
    over_directory: bool,
    /// Whether a directory above hides the one in the project, and so all that this one has there.
    is_replaced: bool,
    /// Whether the timestamps of this directory and of all above prove that it is still
    /// where it was copied to.
    is_unmoved: bool,
}

/// One name of a directory that is being walked.
struct NameEntry<'d> {
    path: RelativePath,
    name: RelativePath,
    layer: &'d Dir,
    /// Whether the directory of the layer, or one above, hides the one in the project.
    is_replaced: bool,
    /// Whether the directory of the layer is still where it was copied to.
    location: Location,
    stat: Stat,
    /// The project's directory at the same path.
    directory: Option<&'d Dir>,
    /// That directory, and the metadata of the name in it.
    base: Option<(&'d Dir, Stat)>,
}

impl Walk<'_> {
    fn level(&mut self, level: &Level) -> Result<(), Error> {
        let path = level.path.as_ref();
        let layer = open(self.layer, path).map_err(|source| read_error("view", path, source))?;
        let base = match level.over_directory.then(|| open(self.project, path)) {
            None => None,
            Some(Ok(base)) => Some(base),
            // A directory that cannot be listed was not copied either.
            Some(Err(error)) if self.is_copy && error.errno() == Some(Errno::ACCESS) => None,
            Some(Err(source)) => return Err(read_error("project", path, source)),
        };
        let names = layer.entries().map_err(|source| read_error("view", path, source))?;
        let location = self.locate(level, &layer, base.as_ref())?;
        let is_replaced = level.is_replaced || self.is_replaced(path, &layer);
        let hides = base.is_some() && (self.is_copy || is_replaced);
        let hidden = match &base {
            Some(base) if hides => {
                let present: HashSet<&[u8]> =
                    names.iter().map(|(name, _)| name.as_slice()).collect();
                let mut hidden =
                    base.entries().map_err(|source| read_error("project", path, source))?;
                hidden.retain(|(name, _)| !present.contains(name.as_slice()));
                hidden
            }
            _ => Vec::new(),
        };
        for (bytes, _) in &names {
            let (path, name) = child(path, bytes)?;
            if self.is_excluded(&path) {
                continue;
            }
            let stat =
                layer.stat(&name).map_err(|source| read_error("view", Some(&path), source))?;
            let Some(stat) = stat else { continue };
            let found = match &base {
                None => None,
                Some(base) => base
                    .stat(&name)
                    .map_err(|source| read_error("project", Some(&path), source))?
                    .map(|stat| (base, stat)),
            };
            let directory = base.as_ref();
            let layer = &layer;
            let base = found;
            let entry =
                NameEntry { path, name, layer, is_replaced, location, stat, directory, base };
            self.name(&entry)?;
        }
        if let Some(base) = &base {
            for (bytes, _) in hidden {
                let (path, name) = child(path, &bytes)?;
                let stat = base
                    .stat(&name)
                    .map_err(|source| read_error("project", Some(&path), source))?;
                if let Some(stat) = stat {
                    self.deleted(path, &name, base, stat)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a directory is still where it was copied to. If it is not, its content is
    /// new where it is now, although its timestamps are older than the end of the copy.
    fn locate(&self, level: &Level, layer: &Dir, base: Option<&Dir>) -> Result<Location, Error> {
        let Some(copied) = self.copied.filter(|_| !level.is_unmoved) else {
            return Ok(Location::Unmoved);
        };
        let is_same = is_in_place(layer, base, self.started, copied).map_err(|source| {
            let path = level.path.as_ref().map_or_else(|| ".".to_owned(), RelativePath::quoted);
            let source = beneath::Error::Io { operation: "compare", path: path.clone(), source };
            Error::Read { layer: "view", path, source }
        })?;
        Ok(if is_same { Location::SameContent } else { Location::Moved })
    }

    /// Whether a directory of the layer hides the one in the project.
    fn is_replaced(&self, path: Option<&RelativePath>, layer: &Dir) -> bool {
        path.is_some_and(|path| self.removed.contains(path)) || self.marks.is_opaque(layer)
    }

    /// Handles the listed paths that were removed. Paths that the walk has handled are skipped: it
    /// found an entry, or the layer has something there.
    fn removed(&mut self, removed: &[RelativePath]) -> Result<(), Error> {
        if removed.is_empty() {
            return Ok(());
        }
        let recorded: HashSet<_> = self.entries.iter().map(|entry| entry.path.clone()).collect();
        for path in removed.iter().filter(|path| !recorded.contains(path)) {
            let is_walked = self.layer.exists(path);
            if is_walked.map_err(|source| read_error("view", Some(path), source))? {
                continue;
            }
            let parent = path.parent();
            let base = match open(self.project, parent.as_ref()) {
                Ok(base) => base,
                // The host removed it first, or it is too long for any bundle.
                Err(beneath::Error::ThroughLink { .. }) => continue,
                Err(error)
                    if matches!(
                        error.errno(),
                        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
                    ) =>
                {
                    continue;
                }
                Err(source) => return Err(read_error("project", Some(path), source)),
            };
            let (_, name) = child(None, path.file_name())?;
            let stat =
                base.stat(&name).map_err(|source| read_error("project", Some(path), source))?;
            if let Some(stat) = stat {
                self.deleted(path.clone(), &name, &base, stat)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, name: &NameEntry<'_>) -> Result<(), Error> {
        if name.stat.kind == FileKind::CharacterDevice
            && name.stat.device_number == 0
            && !self.is_copy
        {
            let Some((base, stat)) = name.base else { return Ok(()) };
            let index = self.entries.len();
            self.deleted(name.path.clone(), &name.name, base, stat)?;
            if stat.kind == FileKind::File && name.stat.links == 1 && self.entries.len() > index {
                self.origins.add_renamed(index);
            }
            return Ok(());
        }
        if self.is_too_long(&name.path) {
            return self.too_long(name);
        }
        let over_directory = name.base.is_some_and(|(_, base)| base.kind == FileKind::Directory);
        let is_older = self.copied.is_some_and(|copied| name.stat.changed < copied);
        if name.stat.kind == FileKind::Directory {
            self.reader
                .unlock(name.layer, &name.name, &name.stat)
                .map_err(|source| read_error("view", Some(&name.path), source))?;
            let (path, is_replaced) = (Some(name.path.clone()), name.is_replaced);
            let is_unmoved = name.location == Location::Unmoved && is_older;
            self.pending.push(Level { path, over_directory, is_replaced, is_unmoved });
        }
        if is_older && name.location != Location::Moved {
            return Ok(());
        }
        self.compare(name)?;
        if over_directory && name.stat.kind != FileKind::Directory {
            self.deleted_below(name.path.clone())?;
        }
        Ok(())
    }

    /// Compares a name in the layer with the same name in the project.
    fn compare(&mut self, name: &NameEntry<'_>) -> Result<(), Error> {
        let in_view = |source| read_error("view", Some(&name.path), source);
        let same_size = |base: &Stat| base.kind == FileKind::File && base.size == name.stat.size;
        let may_be_equal = name.base.is_some_and(|(_, base)| same_size(&base));
        if name.stat.kind == FileKind::File && !may_be_equal {
            // The limit is checked before the content is read: a sparse file may claim any size.
            self.count_bytes(name.stat.size)?;
        }
        let mut is_copied_up = false;
        let new = if name.stat.kind == FileKind::File {
            let file = self.reader.open_own(name.layer, &name.name, &name.stat).map_err(in_view)?;
            is_copied_up = !self.is_copy && name.base.is_none() && self.marks.has_origin(&file);
            let node = self.reader.file(file, &name.name, name.stat.mode & 0o777);
            ScannedNode::Node(node.map_err(in_view)?)
        } else {
            self.reader.read(name.layer, &name.name, &name.stat).map_err(in_view)?
        };
        let Some((base, stat)) = name.base else {
            let refused = new.is_special().then_some(Refusal::SpecialFile);
            self.push(&name.path, Change::Add { new: new.into_node() }, refused, false)?;
            if is_copied_up {
                let is_doubtful =
                    self.may_be_removed_by_host(name)? && !self.history.is_known(&name.path, None);
                self.origins.add_moved_file(name.stat.inode, self.entries.len() - 1, is_doubtful);
            }
            return Ok(());
        };
        if (name.stat.kind, stat.kind) == (FileKind::File, FileKind::File) && name.stat.links > 1 {
            self.origins.add_still_in_project(name.stat.inode);
        }
        let old = self
            .reader
            .read(base, &name.name, &stat)
            .map_err(|source| read_error("project", Some(&name.path), source))?;
        if old == new || (old.is_special() && new.is_special()) {
            return Ok(());
        }
        if name.stat.kind == FileKind::File && may_be_equal {
            self.count_bytes(name.stat.size)?;
        }
        let conflict = self.is_conflict(&name.path, &stat, &old);
        let is_special = old.is_special() || new.is_special();
        let refused = is_special.then_some(Refusal::SpecialFile);
        let change = Change::Modify { old: old.into_node(), new: new.into_node() };
        self.push(&name.path, change, refused, conflict)
    }

    /// Whether the host may have removed a name after the view was created, if the project lacks it
    /// now.
    fn may_be_removed_by_host(&self, name: &NameEntry<'_>) -> Result<bool, Error> {
        let Some(directory) = name.directory else {
            // Renamed directories have been filled, and have no origin any more.
            return Ok(self.marks.has_origin(name.layer));
        };
        let stat = directory.stat_self();
        let stat =
            stat.map_err(|source| read_error("project", name.path.parent().as_ref(), source))?;
        Ok(stat.changed > self.started)
    }

    /// Handles a deleted path of the project, with everything below it.
    fn deleted(
        &mut self,
        path: RelativePath,
        name: &RelativePath,
        base: &Dir,
        stat: Stat,
    ) -> Result<(), Error> {
        if self.is_excluded(&path) {
            return Ok(());
        }
        if self.is_copy && matches!(stat.kind, FileKind::CharacterDevice | FileKind::Other) {
            // It was never copied.
            return Ok(());
        }
        // The host may have created it after the copy; only an overlay could tell.
        let is_spared = self.is_copy && stat.changed > self.started;
        if !is_spared {
            let old = match self.reader.read(base, name, &stat) {
                Err(error) if self.is_copy && error.errno() == Some(Errno::ACCESS) => return Ok(()),
                other => other.map_err(|source| read_error("project", Some(&path), source))?,
            };
            let refused = if self.is_too_long(&path) {
                Some(Refusal::PathTooLong)
            } else {
                old.is_special().then_some(Refusal::SpecialFile)
            };
            let conflict = self.is_conflict(&path, &stat, &old);
            self.push(&path, Change::Delete { old: old.into_node() }, refused, conflict)?;
        }
        if stat.kind == FileKind::Directory && !self.is_too_long(&path) {
            self.deleted_below(path)?;
        }
        Ok(())
    }

    fn deleted_below(&mut self, top: RelativePath) -> Result<(), Error> {
        let mut pending = vec![top];
        while let Some(path) = pending.pop() {
            let opened = self.project.open_dir(&path).and_then(|dir| Ok((dir.entries()?, dir)));
            let (names, dir) = match opened {
                Err(error) if self.is_copy && error.errno() == Some(Errno::ACCESS) => continue,
                other => other.map_err(|source| read_error("project", Some(&path), source))?,
            };
            for (bytes, _) in names {
                let (path, name) = child(Some(&path), &bytes)?;
                let stat =
                    dir.stat(&name).map_err(|source| read_error("project", Some(&path), source))?;
                let Some(stat) = stat else { continue };
                if self.is_excluded(&path) {
                    continue;
                }
                if stat.kind == FileKind::Directory && !self.is_too_long(&path) {
                    // Its content is handled in a later iteration.
                    pending.push(path.clone());
                    let is_spared = self.is_copy && stat.changed > self.started;
                    if !is_spared {
                        let old = Node::Directory { mode: stat.mode & 0o777 };
                        self.push(&path, Change::Delete { old }, None, false)?;
                    }
                } else {
                    self.deleted(path, &name, &dir, stat)?;
                }
            }
        }
        Ok(())
    }

    /// Shows a path that no bundle can contain, and ignores everything below it.
    fn too_long(&mut self, name: &NameEntry<'_>) -> Result<(), Error> {
        let mode = name.stat.mode & 0o777;
        let new = match name.stat.kind {
            FileKind::Directory => Node::Directory { mode },
            _ => ScannedNode::Special(mode).into_node(),
        };
        self.push(&name.path, Change::Add { new }, Some(Refusal::PathTooLong), false)
    }

    fn push(
        &mut self,
        path: &RelativePath,
        change: Change,
        refused: Option<Refusal>,
        conflict: bool,
    ) -> Result<(), Error> {
        let is_kept = |excluded: &RelativePath| excluded.is_within(path);
        if matches!(change, Change::Delete { old: Node::Directory { .. } })
            && self.excluded.iter().any(is_kept)
        {
            // Something in it is excluded, so it stays.
            return Ok(());
        }
        let count = self.entries.len() as u64 + 1;
        // Which of them git ignores is known only later.
        if count > self.limits.entries.saturating_add(ignored_tree::MAX_PATHS) {
            check_limit(count, "entries", self.limits.entries, self.limits)?;
        }
        self.entries.push(Entry { refused, conflict, ..Entry::new(path.clone(), change) });
        Ok(())
    }

    fn count_bytes(&mut self, size: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(size);
        check_limit(self.bytes, "total_bytes", self.limits.total_bytes, self.limits)?;
        Ok(())
    }

    fn is_excluded(&self, path: &RelativePath) -> bool {
        self.excluded.iter().any(|excluded| path.is_within(excluded))
    }

    fn is_too_long(&self, path: &RelativePath) -> bool {
        path.as_bytes().len() as u64 > self.limits.path_bytes
    }

    /// Whether the host changed a path after the view was created, other than by applying a known
    /// change. Directories do not count: their time changes with each name in them, and the names
    /// are compared one by one.
    fn is_conflict(&mut self, path: &RelativePath, base: &Stat, old: &ScannedNode) -> bool {
        if base.kind == FileKind::Directory {
            return false;
        }
        self.history.record_compared(path, base.changed);
        let is_known =
            || old.node().is_some_and(|it| self.history.is_known(path, Some((base.changed, it))));
        base.changed > self.started && !is_known()
    }
}

fn open(root: &Dir, path: Option<&RelativePath>) -> Result<Dir, beneath::Error> {
    match path {
        None => root.reopen(),
        Some(path) => root.open_dir(path),
    }
}

/// The path of a name in a directory, and the name by itself.
fn child(
    parent: Option<&RelativePath>,
    name: &[u8],
) -> Result<(RelativePath, RelativePath), Error> {
    let both = RelativePath::new(name).and_then(|name| match parent {
        None => Ok((name.clone(), name)),
        Some(parent) => Ok((parent.join(name.as_bytes())?, name)),
    });
    both.map_err(|error| {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let shown = name.escape_ascii().to_string();
        read_error("view", parent, beneath::Error::Io { operation: "name", path: shown, source })
    })
}

fn read_error(layer: &'static str, path: Option<&RelativePath>, source: beneath::Error) -> Error {
    let path = path.map_or_else(|| ".".to_owned(), RelativePath::quoted);
    Error::Read { layer, path, source }
}
