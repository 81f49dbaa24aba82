//! The destination of a copy on the host. The path that the user named is opened once. Everything is
//! created, written and renamed beneath that descriptor without following links, because a sandbox
//! may be able to write there and replace directories by links meanwhile.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stockade_api::{FileEntry, Problem};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename};
use stockade_core::Code;

use super::{host, joined, last_name, odd};
use crate::problem::Failure;

/// The permission bits that are copied out of a sandbox: no write permission for others, and no
/// set-id bit.
const KEPT: u32 = 0o755;

/// The permissions that a directory's owner needs to fill it.
const FILLED: u32 = 0o700;

/// A directory of the host, and the name in it that a copy gets.
#[derive(Debug)]
pub(super) struct Target {
    base: Dir,
    shown: PathBuf,
    name: Place,
    mark: Option<RelativePath>,
}

/// A path beneath a target's directory; `None` is that directory itself.
pub(super) type Place = Option<RelativePath>;

/// A directory that is being filled, and the permissions of its owner that are removed afterwards.
#[derive(Debug)]
pub(super) struct Wider(RelativePath, u32);

/// A file that is being written under a temporary name beside its final path. Dropping it removes
/// the file.
#[derive(Debug)]
pub(super) struct Part<'a> {
    target: &'a Target,
    beside: Option<RelativePath>,
    to: RelativePath,
}

impl Target {
    /// The target for a path: this name in the directory `to` if that exists, else the path itself.
    pub(super) fn find(to: &Path, name: Option<OsString>) -> Result<Self, Failure> {
        let failed = |error: Errno| host(to, &error.into());
        let named = |name: OsString| RelativePath::new(name.as_bytes());
        let (base, shown, name) = match open(to) {
            Ok(base) => (base, to, name.map(named)),
            Err(error @ (Errno::NOENT | Errno::NOTDIR)) => {
                let parent = to.parent().ok_or(error).map_err(failed)?;
                let name = to.file_name().ok_or(error).map_err(failed)?.to_owned();
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                (open(parent).map_err(failed)?, parent, Some(named(name)))
            }
            Err(error) => return Err(failed(error)),
        };
        let name = name.transpose().map_err(|error| host(to, &io::Error::other(error)))?;
        Ok(Self { base, shown: shown.to_owned(), name, mark: None })
    }

    /// The destination of the copied file or directory itself.
    pub(super) fn place(&self) -> Place {
        self.name.clone()
    }

    /// The destination of an entry of a directory inside.
    pub(super) fn below(&self, directory: &Place, entry: &FileEntry) -> Result<Place, Failure> {
        let name = last_name(&entry.path.0).ok_or_else(|| odd(&entry.path))?;
        let path = joined(directory.as_ref(), name.as_bytes());
        path.map(Some).map_err(|_| odd(&entry.path))
    }

    /// The path of a destination, for display.
    pub(super) fn shown(&self, place: &Place) -> PathBuf {
        place.as_ref().map_or_else(|| self.shown.clone(), |path| self.shown.join(path.as_os_str()))
    }

    /// Creates a directory. An existing one keeps its mode. A new one has the mode that it has
    /// inside, with the same restrictions as for a file, and is writable for its owner: if the mode
    /// does not include that, the returned value is what [`Target::narrow`] must remove.
    ///
    /// No mode is ever widened: the directory created here may have been replaced by another one
    /// since.
    pub(super) fn make_directory(
        &self,
        place: &Place,
        mode: u32,
    ) -> Result<Option<Wider>, Failure> {
        let Some(path) = place else { return Ok(None) };
        match self.base.mkdir(path, mode & KEPT | FILLED) {
            Ok(()) if mode & FILLED == FILLED => Ok(None),
            Ok(()) => Ok(Some(Wider(path.clone(), FILLED & !mode))),
            // This fails for a link to a directory.
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {
                self.base.locate_dir(path).map_err(|error| self.failed(place, error))?;
                Ok(None)
            }
            Err(error) => Err(self.failed(place, error)),
        }
    }

    /// Removes from a filled directory the permissions that its owner needed to fill it.
    pub(super) fn narrow(&self, wider: Wider) -> Result<(), Failure> {
        let Wider(path, rights) = wider;
        let narrow = || {
            let dir = self.base.open_dir(&path)?;
            let mode = dir.stat_self()?.mode & 0o7777 & !rights;
            rustix::fs::fchmod(&dir, Mode::from_bits_truncate(mode)).map_err(io::Error::from)
        };
        narrow().map_err(|error| host(&self.shown(&Some(path.clone())), &error))
    }

    /// Marks the directory that is copied to with an empty file of a unique name, as long as this
    /// value lives. If the sandbox contains that directory, the copy recognises it by this file.
    pub(super) fn mark(&mut self) -> Result<(), Failure> {
        let place = self.place();
        let mark = self.fresh(place.as_ref())?;
        self.base.create_file(&mark, 0o600).map_err(|error| self.failed(&place, error))?;
        self.mark = Some(mark);
        Ok(())
    }

    /// Removes the mark.
    pub(super) fn unmark(&mut self) {
        if let Some(mark) = self.mark.take() {
            // A failure cannot be reported; it only leaves an empty file behind.
            let _ = self.base.remove_file(&mark);
        }
    }

    /// Whether a listing is that of the directory that is being copied to.
    pub(super) fn is_marked(&self, entries: &[FileEntry]) -> bool {
        let mark = self.mark.as_ref().map(RelativePath::file_name);
        let last = |entry: &FileEntry| last_name(&entry.path.0);
        mark.is_some_and(|mark| entries.iter().filter_map(last).any(|name| name.as_bytes() == mark))
    }

    /// Creates a file for writing, with these permission bits as far as they may be copied.
    pub(super) fn begin(&self, place: &Place, mode: u32) -> Result<(Part<'_>, File), Failure> {
        let refused = |errno: Errno| host(&self.shown(place), &errno.into());
        let to = place.clone().ok_or_else(|| refused(Errno::ISDIR))?;
        let there = self.base.stat(&to).map_err(|error| self.failed(place, error))?;
        match there.map(|there| there.kind) {
            None | Some(FileKind::File | FileKind::Symlink) => {}
            Some(FileKind::Directory) => return Err(refused(Errno::ISDIR)),
            Some(FileKind::CharacterDevice | FileKind::Other) => {
                let message =
                    format!("{} is not a file that can be replaced", self.shown(place).display());
                return Err(Problem::new(Code::InvalidInput, message).into());
            }
        }
        let beside = self.fresh(to.parent().as_ref())?;
        let created = self.base.create_file(&beside, mode & KEPT);
        let file = created.map_err(|error| self.failed(place, error))?;
        Ok((Part { target: self, beside: Some(beside), to }, file))
    }

    /// A unique path in a directory, short enough for every file system.
    fn fresh(&self, directory: Option<&RelativePath>) -> Result<RelativePath, Failure> {
        let name = format!(".stockade-{}", uuid::Uuid::now_v7().simple());
        let path = joined(directory, name.as_bytes());
        path.map_err(|error| host(&self.shown, &io::Error::other(error)))
    }

    fn failed(&self, place: &Place, error: beneath::Error) -> Failure {
        host(&self.shown(place), &error.into())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.unmark();
    }
}

impl Part<'_> {
    /// Moves the file to its final path, and replaces an existing file or link.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            let base = &self.target.base;
            base.rename(beside, base, &self.to, Rename::Replace)?;
        }
        self.beside = None;
        Ok(())
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // An incomplete file is not needed.
            let _ = self.target.base.remove_file(beside);
        }
    }
}

/// Opens a directory only for resolving paths below it; links are followed.
fn open(path: &Path) -> Result<Dir, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(Dir::from_fd)
}
