//! Where on the host a copy goes. What the user names is opened once; everything is made, written
//! and renamed beneath that descriptor and follows no link, for a sandbox may be able to write there
//! and exchange directories with links meanwhile.

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

/// The permission bits that come out of a sandbox: no right of others to write, and no set-id bit.
const KEPT: u32 = 0o755;

/// The rights without which its owner can put nothing into a directory.
const FILLED: u32 = 0o700;

/// A directory of the host, and the name in it that a copy gets.
#[derive(Debug)]
pub(super) struct Target {
    base: Dir,
    shown: PathBuf,
    name: Place,
    mark: Option<RelativePath>,
}

/// A place beneath a target's directory; none is that directory itself.
pub(super) type Place = Option<RelativePath>;

/// A directory that is being filled, and the rights of its owner that go when it is full.
#[derive(Debug)]
pub(super) struct Wider(RelativePath, u32);

/// A file that is being written, beside the one that it will be. Dropping it leaves nothing of it.
#[derive(Debug)]
pub(super) struct Part<'a> {
    target: &'a Target,
    beside: Option<RelativePath>,
    to: RelativePath,
}

impl Target {
    /// The place that a path names: with this name in a directory that exists, else the path itself.
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

    /// Where the copy itself goes.
    pub(super) fn place(&self) -> Place {
        self.name.clone()
    }

    /// The place of something that is copied from a directory inside.
    pub(super) fn below(&self, directory: &Place, entry: &FileEntry) -> Result<Place, Failure> {
        let name = last_name(&entry.path.0).ok_or_else(|| odd(&entry.path))?;
        let path = joined(directory.as_ref(), name.as_bytes());
        path.map(Some).map_err(|_| odd(&entry.path))
    }

    /// The path of a place, for people.
    pub(super) fn shown(&self, place: &Place) -> PathBuf {
        place.as_ref().map_or_else(|| self.shown.clone(), |path| self.shown.join(path.as_os_str()))
    }

    /// Makes a directory, unless there is one, which keeps its mode. A new one has the mode that it
    /// has inside, as far as that of a file would come out, and lets its owner fill it: where that
    /// is more, the answer is what [`Target::narrow`] takes away.
    ///
    /// No mode is ever widened: what was made here may have been exchanged for another since.
    pub(super) fn make_directory(
        &self,
        place: &Place,
        mode: u32,
    ) -> Result<Option<Wider>, Failure> {
        let Some(path) = place else { return Ok(None) };
        match self.base.mkdir(path, mode & KEPT | FILLED) {
            Ok(()) if mode & FILLED == FILLED => Ok(None),
            Ok(()) => Ok(Some(Wider(path.clone(), FILLED & !mode))),
            // A link to a directory is none.
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {
                self.base.locate_dir(path).map_err(|error| self.failed(place, error))?;
                Ok(None)
            }
            Err(error) => Err(self.failed(place, error)),
        }
    }

    /// Takes from a directory that is full what its owner needed to fill it.
    pub(super) fn narrow(&self, wider: Wider) -> Result<(), Failure> {
        let Wider(path, rights) = wider;
        let narrow = || {
            let dir = self.base.open_dir(&path)?;
            let mode = dir.stat_self()?.mode & 0o7777 & !rights;
            rustix::fs::fchmod(&dir, Mode::from_bits_truncate(mode)).map_err(io::Error::from)
        };
        narrow().map_err(|error| host(&self.shown(&Some(path.clone())), &error))
    }

    /// Marks the directory that the copy is, with an empty file of a name that nothing else has, for
    /// as long as this lives: where the sandbox shows that directory, it is known again.
    pub(super) fn mark(&mut self) -> Result<(), Failure> {
        let place = self.place();
        let mark = self.fresh(place.as_ref())?;
        self.base.create_file(&mark, 0o600).map_err(|error| self.failed(&place, error))?;
        self.mark = Some(mark);
        Ok(())
    }

    /// Takes the mark away.
    pub(super) fn unmark(&mut self) {
        if let Some(mark) = self.mark.take() {
            // There is nobody left to tell; what stays is an empty file.
            let _ = self.base.remove_file(&mark);
        }
    }

    /// Whether a listing is that of the very directory that is being copied to.
    pub(super) fn is_marked(&self, entries: &[FileEntry]) -> bool {
        let mark = self.mark.as_ref().map(RelativePath::file_name);
        let last = |entry: &FileEntry| last_name(&entry.path.0);
        mark.is_some_and(|mark| entries.iter().filter_map(last).any(|name| name.as_bytes() == mark))
    }

    /// Begins a file, with these permission bits as far as they come out.
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

    /// A path in a directory that nothing else has, short enough for every file system.
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
    /// Puts the file where it belongs, in the place of a file or link that is there.
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
            // What was begun is of no use.
            let _ = self.target.base.remove_file(beside);
        }
    }
}

/// A descriptor of a directory that serves only to find what is below it; links are followed.
fn open(path: &Path) -> Result<Dir, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(Dir::from_fd)
}
