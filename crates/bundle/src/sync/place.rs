//! Makes planned changes in a directory of the host. All new contents are written beside their
//! places first, so a full disk changes nothing. Then each is exchanged with what is there; if that
//! is not what the plan was made for, it is exchanged back. A file is old or new, never half.
//!
//! The same changes can be made again after a crash: what is done already is recognized.

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::blobs::hash_file;
use super::plan::Action;
use super::tree::{Found, TEMPORARY, same, write_mode};
use crate::beneath::{self, Dir, FileKind, Rename};
use crate::content;
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;

/// The rights that a directory's owner needs to fill it.
const FILL: u32 = 0o700;

/// What was not done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placed {
    /// The paths that changed after the plan was made. They stay as they are.
    pub changed_meanwhile: Vec<RelativePath>,
}

/// A directory in which changes are made.
#[expect(missing_debug_implementations, reason = "a function has none")]
pub struct Place<'a> {
    root: &'a Dir,
    /// The directory of new contents and of what they replace.
    temporary: RelativePath,
    actions: &'a [Action],
    open: &'a dyn Fn(ContentHash) -> io::Result<File>,
    /// The owner of new files; only root gives files away.
    owner: Option<(u32, u32)>,
}

impl<'a> Place<'a> {
    /// The changes of the operation with this key, with contents that `open` opens.
    ///
    /// # Errors
    /// A key that is no file name, or a directory that cannot be read.
    pub fn new(
        root: &'a Dir,
        key: &str,
        actions: &'a [Action],
        open: &'a dyn Fn(ContentHash) -> io::Result<File>,
    ) -> io::Result<Self> {
        let name = format!("{TEMPORARY}sync-{key}");
        let temporary = RelativePath::new(name).map_err(io::Error::other)?;
        let stat = root.stat_self()?;
        let owner = rustix::process::geteuid().is_root().then_some((stat.uid, stat.gid));
        Ok(Self { root, temporary, actions, open, owner })
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// Those of the file system. Before the first change is made, nothing is left of an attempt.
    pub fn run(&self) -> io::Result<Placed> {
        let mut placed = Placed::default();
        self.recover(&mut placed)?;
        if let Err(error) = self.prepare() {
            let _ = self.root.remove_tree(&self.temporary);
            return Err(error);
        }
        let mut directories = Vec::new();
        for (number, action) in self.actions.iter().enumerate() {
            if placed.changed_meanwhile.contains(&action.path) {
                continue;
            }
            match self.change(number, action, &mut directories) {
                Ok(true) => {}
                Ok(false) => placed.changed_meanwhile.push(action.path.clone()),
                Err(error) if is_refused(&error) => {
                    placed.changed_meanwhile.push(action.path.clone());
                }
                Err(error) => return Err(error.into()),
            }
        }
        for (path, mode) in directories.into_iter().rev() {
            let _ = self.root.chmod(&path, mode);
        }
        self.root.remove_tree(&self.temporary)?;
        self.root.sync_file_system()?;
        Ok(placed)
    }

    fn name(&self, kind: char, number: usize) -> io::Result<RelativePath> {
        self.temporary.join(format!("{kind}{number}").as_bytes()).map_err(io::Error::other)
    }

    /// Looks at what an interrupted attempt has displaced: what is not what the plan was made for
    /// returns to its place.
    fn recover(&self, placed: &mut Placed) -> io::Result<()> {
        if !self.root.exists(&self.temporary)? {
            return Ok(());
        }
        for (number, action) in self.actions.iter().enumerate() {
            let Some(old) = &action.old else { continue };
            let name = self.name(if action.new.is_some() { 'n' } else { 'd' }, number)?;
            let Some(_) = self.root.stat(&name)? else { continue };
            let is_new = match &action.new {
                Some(new) => self.has_content(&name, &new.node)?,
                None => false,
            };
            if is_new || self.has_content(&name, &old.node)? {
                continue;
            }
            let kind = if action.new.is_some() { Rename::Exchange } else { Rename::NoReplace };
            // If something new is in the place, both are kept: this one under its temporary name
            // would be lost, so the error ends the attempt.
            self.root.rename(&name, self.root, &action.path, kind)?;
            placed.changed_meanwhile.push(action.path.clone());
        }
        Ok(self.root.remove_tree(&self.temporary)?)
    }

    /// Writes all new contents.
    fn prepare(&self) -> io::Result<()> {
        self.root.mkdir(&self.temporary, FILL)?;
        for (number, action) in self.actions.iter().enumerate() {
            let Some(new) = &action.new else { continue };
            if action.old.as_ref().is_some_and(|old| same(&old.node, &new.node)) {
                continue;
            }
            let name = self.name('n', number)?;
            match &new.node {
                Node::Directory { .. } => continue,
                Node::Symlink { target } => self.root.symlink(target, &name)?,
                Node::File { hash, size, mode } => {
                    let from = (self.open)(*hash)?;
                    let file = self.root.create_file(&name, 0o600)?;
                    let length = content::copy(&from, &file, *size, u64::MAX)?;
                    if length != *size {
                        return Err(io::Error::other("a stored content is incomplete"));
                    }
                    self.root.chmod(&name, write_mode(*mode))?;
                    if let Some(modified) = new.modified {
                        self.root.set_times(&name, None, modified.into())?;
                    }
                }
            }
            self.give(&name, Some(&action.path))?;
        }
        Ok(())
    }

    /// Gives a new file the owner of the one that it replaces, or of the directory.
    fn give(&self, name: &RelativePath, replaced: Option<&RelativePath>) -> io::Result<()> {
        let Some((mut uid, mut gid)) = self.owner else { return Ok(()) };
        if let Some(Ok(Some(old))) = replaced.map(|path| self.root.stat(path)) {
            (uid, gid) = (old.uid, old.gid);
        }
        Ok(self.root.chown(name, uid, gid)?)
    }

    /// Makes one change. Returns whether the place was as planned.
    fn change(
        &self,
        number: usize,
        action: &Action,
        directories: &mut Vec<(RelativePath, u32)>,
    ) -> Result<bool, beneath::Error> {
        let Action { path, old, new } = action;
        let io = |source| beneath::Error::Io { operation: "change", path: path.quoted(), source };
        let current = self.root.stat(path)?;
        let Some(new) = new else {
            let (Some(stat), Some(old)) = (current, old) else { return Ok(true) };
            if stat.kind == FileKind::Directory {
                return match self.root.remove_dir(path) {
                    // What is protected stays in it.
                    Err(error) if error.errno() == Some(Errno::NOTEMPTY) => Ok(true),
                    removed => removed.map(|()| true),
                };
            }
            if !self.is(path, old).map_err(io)? {
                return Ok(false);
            }
            let displaced = self.name('d', number).map_err(io)?;
            self.root.rename(path, self.root, &displaced, Rename::NoReplace)?;
            if self.is(&displaced, old).map_err(io)? {
                return Ok(true);
            }
            self.root.rename(&displaced, self.root, path, Rename::NoReplace)?;
            return Ok(false);
        };
        if let Node::Directory { mode } = &new.node {
            return match current {
                Some(stat) => Ok(stat.kind == FileKind::Directory),
                None => {
                    self.root.mkdir(path, mode | FILL)?;
                    self.give(path, None).map_err(io)?;
                    directories.push((path.clone(), write_mode(*mode)));
                    Ok(true)
                }
            };
        }
        if let Some(old) = old
            && same(&old.node, &new.node)
        {
            if !self.has_content(path, &new.node).map_err(io)? {
                return Ok(false);
            }
            if let Node::File { mode, .. } = &new.node {
                self.root.chmod(path, write_mode(*mode))?;
            }
            return Ok(true);
        }
        let name = self.name('n', number).map_err(io)?;
        match (current, old) {
            (None, None) => match self.root.rename(&name, self.root, path, Rename::NoReplace) {
                Err(error) if error.errno() == Some(Errno::EXIST) => Ok(false),
                placed => placed.map(|()| true),
            },
            // It was done before a crash, or another process has made the same change.
            (Some(_), _) if self.has_content(path, &new.node).map_err(io)? => Ok(true),
            (Some(_), Some(old)) if self.is(path, old).map_err(io)? => {
                self.root.rename(&name, self.root, path, Rename::Exchange)?;
                if self.is(&name, old).map_err(io)? {
                    return Ok(true);
                }
                self.root.rename(&name, self.root, path, Rename::Exchange)?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Whether a path is as the scan found it: by its time and size, else by its content.
    fn is(&self, path: &RelativePath, found: &Found) -> io::Result<bool> {
        if let (Some(stat), Node::File { size, .. }, Some(modified)) =
            (self.root.stat(path)?, &found.node, found.modified)
            && stat.kind == FileKind::File
            && stat.size == *size
            && <(i64, u32)>::from(stat.modified) == modified
        {
            return Ok(true);
        }
        self.has_content(path, &found.node)
    }

    fn has_content(&self, path: &RelativePath, node: &Node) -> io::Result<bool> {
        let Some(stat) = self.root.stat(path)? else { return Ok(false) };
        match (node, stat.kind) {
            (Node::Directory { .. }, kind) => Ok(kind == FileKind::Directory),
            (Node::Symlink { target }, FileKind::Symlink) => {
                Ok(self.root.read_link(path)? == *target)
            }
            (Node::File { hash, size, .. }, FileKind::File) if stat.size == *size => {
                Ok(hash_file(&mut self.root.open_file(path)?)?.0 == *hash)
            }
            _ => Ok(false),
        }
    }
}

/// Whether another process has changed the directories above a path, or a file system begins there.
fn is_refused(error: &beneath::Error) -> bool {
    let changed = [Errno::NOENT, Errno::NOTDIR, Errno::XDEV, Errno::ISDIR, Errno::EXIST];
    match error {
        beneath::Error::ThroughLink { .. } | beneath::Error::NotRegular { .. } => true,
        error => error.errno().is_some_and(|errno| changed.contains(&errno)),
    }
}
