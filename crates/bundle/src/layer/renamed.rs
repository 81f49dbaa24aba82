//! Directories of the lower layer that a command renamed. The upper layer has only their new name, and
//! the content that was changed since; the rest is in the lower layer, at the old path.
//!
//! [`fill`] copies that content, so that the layer shows by itself what has changed, as if the command
//! had moved file by file.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::marks::{Marks, Shown};
use crate::beneath::{self, Dir, FileKind, Stat, Timestamp, times};
use crate::content;
use crate::path::RelativePath;

/// Why the content of a renamed directory could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It takes more space than allowed.
    #[error("the renamed directories have more than {limit_bytes} bytes")]
    TooLarge {
        /// The allowed size.
        limit_bytes: u64,
    },
    /// The kernel returned an error.
    #[error("cannot copy a renamed directory to {path}")]
    Entry {
        /// The path in the layer, printable.
        path: String,
        /// Why.
        #[source]
        source: beneath::Error,
    },
}

/// Whether a layer has a directory that was renamed.
///
/// # Errors
/// [`Error::Entry`].
pub fn has_renamed(layer: &Dir) -> Result<bool, Error> {
    if Marks::of(layer) == Marks::User {
        return Ok(false);
    }
    let mut pending = vec![None];
    while let Some(path) = pending.pop() {
        let failed = |source| entry_error(path.as_ref(), source);
        let dir = open(layer, path.as_ref()).map_err(failed)?;
        for (name, kind) in dir.entries().map_err(failed)? {
            if kind == FileKind::Directory {
                let child = child(path.as_ref(), &name).map_err(failed)?;
                let dir = layer.open_dir(&child).map_err(failed)?;
                let shown = Marks::Trusted.shown(&dir);
                if matches!(shown, Ok(Shown::Renamed(_) | Shown::Moved(_))) {
                    return Ok(true);
                }
                pending.push(Some(child));
            }
        }
    }
    Ok(false)
}

/// Copies what the renamed directories of a layer show of `lower`, which is opened for reading. No
/// process uses the layer. The new files belong to this process. After a crash it can be repeated.
///
/// # Errors
/// All of [`Error`]. What was copied before remains.
pub fn fill(layer: &Dir, lower: &Dir, limit_bytes: u64) -> Result<(), Error> {
    if !has_renamed(layer)? {
        return Ok(());
    }
    let mut filling = Filling { layer, lower, limit_bytes, size_bytes: 0, renamed: Vec::new() };
    let mut directories = Vec::new();
    let root = Level { path: None, below: Below::Root, is_filled: false };
    let mut pending = vec![root];
    while let Some(level) = pending.pop() {
        filling.level(&level, &mut pending, &mut directories).map_err(|error| match error {
            Failure::TooLarge => Error::TooLarge { limit_bytes },
            Failure::Entry(source) => entry_error(level.path.as_ref(), source),
        })?;
    }
    for (path, modified) in directories.into_iter().rev() {
        let set = layer.set_times(&path, None, modified);
        set.map_err(|source| entry_error(Some(&path), source))?;
    }
    // A directory is found through its parents, so those are marked after it.
    for path in filling.renamed.into_iter().rev() {
        let marked = layer.open_dir(&path).and_then(|dir| {
            Marks::Trusted.make_opaque(&dir).map_err(|errno| io_error("mark", &path, errno))
        });
        marked.map_err(|source| entry_error(Some(&path), source))?;
    }
    Ok(())
}

/// A directory of the lower layer.
enum Below {
    Nothing,
    Root,
    At(RelativePath),
}

/// One directory of the layer.
struct Level {
    /// `None` is the root.
    path: Option<RelativePath>,
    /// The directory of the lower layer that it shows.
    below: Below,
    /// Whether it is in a renamed directory.
    is_filled: bool,
}

enum Failure {
    TooLarge,
    Entry(beneath::Error),
}

impl From<beneath::Error> for Failure {
    fn from(error: beneath::Error) -> Self {
        Self::Entry(error)
    }
}

struct Filling<'a> {
    layer: &'a Dir,
    lower: &'a Dir,
    limit_bytes: u64,
    size_bytes: u64,
    /// The renamed directories, and those in them, parents first.
    renamed: Vec<RelativePath>,
}

impl Filling<'_> {
    fn level(
        &mut self,
        level: &Level,
        pending: &mut Vec<Level>,
        directories: &mut Vec<(RelativePath, Timestamp)>,
    ) -> Result<(), Failure> {
        let upper = open(self.layer, level.path.as_ref())?;
        let mut present = HashSet::new();
        let mut levels = Vec::new();
        for (name, kind) in upper.entries()? {
            if kind == FileKind::Directory {
                let path = child(level.path.as_ref(), &name)?;
                let shown = Marks::Trusted.shown(&self.layer.open_dir(&path)?);
                let shown = shown.map_err(|errno| io_error("inspect", &path, errno))?;
                let is_renamed = matches!(shown, Shown::Renamed(_) | Shown::Moved(_));
                let is_filled = is_renamed || (level.is_filled && shown == Shown::SameName);
                let below = Self::below(level, &name, &shown);
                if is_filled {
                    self.renamed.push(path.clone());
                }
                levels.push(Level { path: Some(path), below, is_filled });
            }
            present.insert(name);
        }
        if level.is_filled
            && let Some(lower) = self.open_lower(&level.below)?
        {
            if let Some(path) = &level.path {
                directories.push((path.clone(), upper.stat_self()?.modified));
            }
            for (name, kind) in lower.entries()? {
                if present.contains(&name) {
                    continue;
                }
                let path = RelativePath::new(name.clone()).map_err(|error| invalid(&error))?;
                // What the host removes meanwhile is not there.
                let Some(stat) = lower.stat(&path)? else { continue };
                match kind {
                    FileKind::Directory => {
                        upper.mkdir(&path, 0o700)?;
                        upper.chmod(&path, stat.mode)?;
                        let full = child(level.path.as_ref(), &name)?;
                        directories.push((full.clone(), stat.modified));
                        self.renamed.push(full.clone());
                        let below = Self::below(level, &name, &Shown::SameName);
                        levels.push(Level { path: Some(full), below, is_filled: true });
                    }
                    FileKind::File => self.file(&lower, &upper, &path, &stat)?,
                    FileKind::Symlink => {
                        upper.symlink(&lower.read_link(&path)?, &path)?;
                        upper.set_times(&path, None, stat.modified)?;
                    }
                    // No bundle contains any.
                    FileKind::CharacterDevice | FileKind::Other => {}
                }
            }
        }
        pending.append(&mut levels);
        Ok(())
    }

    /// The directory of the lower layer that a name in a level shows.
    fn below(level: &Level, name: &[u8], shown: &Shown) -> Below {
        let in_parent = |name: &[u8]| match &level.below {
            Below::Nothing => None,
            Below::Root => RelativePath::new(name).ok(),
            Below::At(parent) => parent.join(name).ok(),
        };
        let found = match shown {
            Shown::Nothing => None,
            Shown::SameName => in_parent(name),
            Shown::Renamed(old) => in_parent(old),
            Shown::Moved(path) => path.get(1..).and_then(|path| RelativePath::new(path).ok()),
        };
        found.map_or(Below::Nothing, Below::At)
    }

    /// A directory of the lower layer; `None` if the host has removed or replaced it.
    fn open_lower(&self, below: &Below) -> Result<Option<Dir>, beneath::Error> {
        let opened = match below {
            Below::Nothing => return Ok(None),
            Below::Root => self.lower.reopen(),
            Below::At(path) => self.lower.open_dir(path),
        };
        match opened {
            Ok(dir) => Ok(Some(dir)),
            Err(beneath::Error::ThroughLink { .. }) => Ok(None),
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(
        &mut self,
        lower: &Dir,
        upper: &Dir,
        name: &RelativePath,
        stat: &Stat,
    ) -> Result<(), Failure> {
        let from = match lower.open_file(name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let allowed = self.limit_bytes - self.size_bytes;
        if stat.size > allowed {
            return Err(Failure::TooLarge);
        }
        // It gets its name when it is complete, so that a crash leaves no part of it.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let to = rustix::fs::openat(upper.as_fd(), ".", flags, Mode::RUSR | Mode::WUSR);
        let to = File::from(to.map_err(|errno| io_error("create", name, errno))?);
        content::copy(&from, &to, stat.size, u64::MAX).map_err(|source| beneath::Error::Io {
            operation: "copy",
            path: name.quoted(),
            source,
        })?;
        self.size_bytes += stat.size;
        let finish = || {
            rustix::fs::fchmod(&to, Mode::from_bits_truncate(stat.mode))?;
            rustix::fs::futimens(&to, &times(None, stat.modified))?;
            let name = OsStr::from_bytes(name.as_bytes());
            rustix::fs::linkat(&to, "", upper.as_fd(), name, AtFlags::EMPTY_PATH)
        };
        Ok(finish().map_err(|errno| io_error("copy", name, errno))?)
    }
}

fn open(root: &Dir, path: Option<&RelativePath>) -> Result<Dir, beneath::Error> {
    path.map_or_else(|| root.reopen(), |path| root.open_dir(path))
}

fn child(parent: Option<&RelativePath>, name: &[u8]) -> Result<RelativePath, beneath::Error> {
    match parent {
        None => RelativePath::new(name),
        Some(parent) => parent.join(name),
    }
    .map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::error::Error) -> beneath::Error {
    let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string());
    beneath::Error::Io { operation: "name", path: ".".to_owned(), source }
}

fn io_error(operation: &'static str, path: &RelativePath, errno: Errno) -> beneath::Error {
    beneath::Error::Io { operation, path: path.quoted(), source: errno.into() }
}

fn entry_error(path: Option<&RelativePath>, source: beneath::Error) -> Error {
    Error::Entry { path: path.map_or_else(|| ".".to_owned(), RelativePath::quoted), source }
}
