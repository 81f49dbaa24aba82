//! A plain copy of a project, for hosts where overlays are not available.
//!
//! It contains regular files, directories and links with their modes and times; a file with several
//! names is one there, too, and content is shared with the original where the file system supports that. Sockets, pipes and devices are
//! left out, and so are files that this process may not read: the command could not read them
//! either.

use std::collections::HashMap;
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::{Error, Ownership, set_mode};
use crate::beneath::{Dir, FileKind, Stat, Timestamp};
use crate::content;
use crate::path::RelativePath;

/// How often the clock is polled, and the interval between two polls.
const CLOCK_POLLS: u32 = 100;
const CLOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Copies a directory, with its own owner and mode, to an empty one. With `ownership`, everything in
/// the copy belongs to the host ids that correspond to the owners in the original.
///
/// # Errors
/// [`Error::Copy`], [`Error::Unmapped`], [`Error::Operation`].
pub fn copy_whole(from: &Dir, to: &Dir, ownership: Option<Ownership>) -> Result<(), Error> {
    let stat = from.stat_self().map_err(|error| copy_error(".".to_owned(), error))?;
    copy_tree(from, to, ownership)?;
    if let Some(ownership) = ownership {
        let (uid, gid) = (ownership.host_id(stat.uid)?, ownership.host_id(stat.gid)?);
        to.chown_self(uid, gid).map_err(|error| copy_error(".".to_owned(), error))?;
    }
    set_mode(to, stat.mode)
}

/// Copies what is below `from` to the empty directory `to`.
pub(super) fn copy_tree(from: &Dir, to: &Dir, ownership: Option<Ownership>) -> Result<(), Error> {
    let mut directories = Vec::new();
    let mut shared = HashMap::new();
    let mut pending: Vec<Option<RelativePath>> = vec![None];
    while let Some(path) = pending.pop() {
        let (source, target) = match &path {
            None => (from.reopen(), to.reopen()),
            Some(path) => (from.open_dir(path), to.open_dir(path)),
        };
        let shown = || path.as_ref().map_or_else(|| ".".to_owned(), RelativePath::quoted);
        let source = match source {
            Err(error) if error.errno() == Some(Errno::ACCESS) => continue,
            other => other.map_err(|error| copy_error(shown(), error))?,
        };
        let target = target.map_err(|error| copy_error(shown(), error))?;
        for (name, kind) in source.entries().map_err(|error| copy_error(shown(), error))? {
            let child = match &path {
                None => RelativePath::new(name.clone()),
                Some(path) => path.join(&name),
            };
            let child = child.map_err(|error| copy_error(shown(), error))?;
            let name =
                RelativePath::new(name).map_err(|error| copy_error(child.quoted(), error))?;
            let step = Step { source: &source, target: &target, name: &name, ownership };
            let shown = child.quoted();
            if step.link(kind, to, &shared).map_err(|error| copy_error(shown.clone(), error))? {
                continue;
            }
            let copied = step.run(kind);
            match copied.map_err(|error| copy_error(shown, error))? {
                Some(stat) if stat.kind == FileKind::Directory => {
                    directories.push((child.clone(), stat));
                    pending.push(Some(child));
                }
                Some(stat) if stat.kind == FileKind::File && stat.links > 1 => {
                    shared.insert((stat.device, stat.inode), child);
                }
                _ => {}
            }
        }
    }
    // Their times change while they are filled, and their modes may forbid filling them.
    for (path, stat) in directories.iter().rev() {
        to.chmod(path, stat.mode).map_err(|error| copy_error(path.quoted(), error))?;
        to.set_times(path, None, stat.modified)
            .map_err(|error| copy_error(path.quoted(), error))?;
    }
    Ok(())
}

/// The present time of the file system.
fn stamp(dir: &Dir) -> Result<Timestamp, Error> {
    let name = RelativePath::literal("copied");
    let stat = dir
        .create_file(&name, 0o600)
        .map_err(|error| copy_error(name.quoted(), error))
        .and_then(|file| {
            Stat::of(&file).map_err(|error| copy_error(name.quoted(), std::io::Error::from(error)))
        })?;
    dir.remove_file(&name).map_err(|error| copy_error(name.quoted(), error))?;
    Ok(stat.changed)
}

/// A file system time later than all timestamps until now, taken in a private directory: later
/// changes have no earlier timestamp. Waits for the clock, which ticks some hundred times a second.
/// If the clock stands still, the time returned is not later; this is harmless, because anything with
/// the same timestamp counts as changed.
///
/// # Errors
/// [`Error::Copy`].
pub fn later_stamp(dir: &Dir) -> Result<Timestamp, Error> {
    let before = stamp(dir)?;
    let mut now = stamp(dir)?;
    for _ in 0..CLOCK_POLLS {
        if now > before {
            break;
        }
        std::thread::sleep(CLOCK_POLL_INTERVAL);
        now = stamp(dir)?;
    }
    Ok(now)
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn copy_error(path: String, source: impl Into<Cause>) -> Error {
    Error::Copy { path, source: source.into() }
}

struct Step<'a> {
    source: &'a Dir,
    target: &'a Dir,
    name: &'a RelativePath,
    ownership: Option<Ownership>,
}

impl Step<'_> {
    /// Gives a file that was copied under another name one name more. Returns whether it was.
    fn link(
        &self,
        kind: FileKind,
        top: &Dir,
        shared: &HashMap<(u64, u64), RelativePath>,
    ) -> Result<bool, Cause> {
        if kind != FileKind::File || shared.is_empty() {
            return Ok(false);
        }
        let Some(stat) = self.source.stat(self.name)? else { return Ok(false) };
        let Some(first) = shared.get(&(stat.device, stat.inode)) else { return Ok(false) };
        let old = RelativePath::new(first.file_name())?;
        let directory = match first.parent() {
            None => top.reopen()?,
            Some(parent) => top.locate_dir(&parent)?,
        };
        let (old, new) = (old.as_os_str(), self.name.as_os_str());
        match rustix::fs::linkat(&directory, old, self.target, new, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // This is one name more than the file system allows.
            Err(Errno::MLINK) => Ok(false),
            Err(errno) => Err(std::io::Error::from(errno).into()),
        }
    }

    /// Copies one name. Returns its metadata, or `None` if it was left out.
    fn run(&self, kind: FileKind) -> Result<Option<Stat>, Cause> {
        let Some(stat) = self.source.stat(self.name)? else { return Ok(None) };
        match kind {
            FileKind::File => {
                let from = match self.source.open_file(self.name) {
                    Err(error) if error.errno() == Some(Errno::ACCESS) => return Ok(None),
                    other => other?,
                };
                let to = self.target.create_file(self.name, 0o600)?;
                content::copy(&from, &to, u64::MAX, u64::MAX)?;
            }
            FileKind::Directory => self.target.mkdir(self.name, 0o700)?,
            FileKind::Symlink => {
                self.target.symlink(&self.source.read_link(self.name)?, self.name)?;
            }
            FileKind::CharacterDevice | FileKind::Other => return Ok(None),
        }
        if let Some(ownership) = self.ownership {
            let uid = ownership.host_id(stat.uid)?;
            self.target.chown(self.name, uid, ownership.host_id(stat.gid)?)?;
        }
        if kind == FileKind::File {
            self.target.chmod(self.name, stat.mode)?;
        }
        self.target.set_times(self.name, None, stat.modified)?;
        Ok(Some(stat))
    }
}
