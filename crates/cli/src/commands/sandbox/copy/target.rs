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
use stockade_api::Problem;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename};
use stockade_core::Code;

use super::mirror::Found;
use super::{host_failure, join_relative};
use crate::problem::Failure;

/// The permission bits that are copied out of a sandbox: no write permission for others, and no
/// set-id bit.
const COPIED_MODE: u32 = 0o755;

/// The permissions that a directory's owner needs to fill it.
const OWNER_RIGHTS: u32 = 0o700;

/// A directory of the host, and the name in it that a copy gets.
#[derive(Debug)]
pub(super) struct Target {
    base: Dir,
    display_path: PathBuf,
    name: TargetPath,
    mark: Option<RelativePath>,
}

/// A path beneath a target's directory; `None` is that directory itself.
pub(super) type TargetPath = Option<RelativePath>;

/// A directory that is to be filled.
#[derive(Debug)]
pub(super) enum MadeDirectory {
    /// It existed, and keeps its mode.
    Existing,
    /// It was created with these rights of its owner in addition to its own.
    New(RelativePath, u32),
}

impl MadeDirectory {
    /// What [`Target::restrict_mode`] must remove when it is full.
    pub(super) fn extra_rights(self) -> Option<ExtraRights> {
        match self {
            Self::New(path, rights) if rights != 0 => Some(ExtraRights(path, rights)),
            Self::New(..) | Self::Existing => None,
        }
    }
}

/// A directory that is being filled, and the permissions of its owner that are removed afterwards.
#[derive(Debug)]
pub(super) struct ExtraRights(RelativePath, u32);

/// A file that is being written under a temporary name beside its final path. Dropping it removes
/// the file.
#[derive(Debug)]
pub(super) struct PartialFile<'a> {
    target: &'a Target,
    temporary: Option<RelativePath>,
    to: RelativePath,
}

impl Target {
    /// The target for a path: this name in the directory `to` if that exists, else the path itself.
    pub(super) fn find(to: &Path, name: Option<OsString>) -> Result<Self, Failure> {
        let failed = |error: Errno| host_failure(to, &error.into());
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
        let name = name.transpose().map_err(|error| host_failure(to, &io::Error::other(error)))?;
        Ok(Self { base, display_path: shown.to_owned(), name, mark: None })
    }

    /// The destination of the copied file or directory itself.
    pub(super) fn path(&self) -> TargetPath {
        self.name.clone()
    }

    /// The path of a destination, for display.
    pub(super) fn full_path(&self, target: &TargetPath) -> PathBuf {
        target.as_ref().map_or_else(
            || self.display_path.clone(),
            |path| self.display_path.join(path.as_os_str()),
        )
    }

    /// Creates a directory. An existing one keeps its mode. A new one has the mode that it has
    /// inside, with the same restrictions as for a file, and is writable for its owner until
    /// [`Target::restrict_mode`] removes what the mode does not include.
    ///
    /// No mode is ever widened: the directory created here may have been replaced by another one
    /// since.
    pub(super) fn make_directory(
        &self,
        target: &TargetPath,
        mode: u32,
    ) -> Result<MadeDirectory, Failure> {
        let Some(path) = target else { return Ok(MadeDirectory::Existing) };
        match self.base.mkdir(path, mode & COPIED_MODE | OWNER_RIGHTS) {
            Ok(()) => Ok(MadeDirectory::New(path.clone(), OWNER_RIGHTS & !mode)),
            // This fails for a link to a directory.
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {
                self.base.locate_dir(path).map_err(|error| self.failure(target, error))?;
                Ok(MadeDirectory::Existing)
            }
            Err(error) => Err(self.failure(target, error)),
        }
    }

    /// Removes a new directory that is still empty.
    pub(super) fn remove_new(&self, made: &MadeDirectory) {
        if let MadeDirectory::New(path, _) = made {
            // It remains if another process has put something into it.
            let _ = self.base.remove_dir(path);
        }
    }

    /// Removes from a filled directory the permissions that its owner needed to fill it.
    pub(super) fn restrict_mode(&self, wider: ExtraRights) -> Result<(), Failure> {
        let ExtraRights(path, rights) = wider;
        let narrow = || {
            let dir = self.base.open_dir(&path)?;
            let mode = dir.stat_self()?.mode & 0o7777 & !rights;
            rustix::fs::fchmod(&dir, Mode::from_bits_truncate(mode)).map_err(io::Error::from)
        };
        narrow().map_err(|error| host_failure(&self.full_path(&Some(path.clone())), &error))
    }

    /// Marks the directory that is copied to with an empty file of a unique name, as long as this
    /// value lives. If the sandbox contains that directory, the copy recognises it by this file.
    pub(super) fn mark(&mut self) -> Result<Vec<u8>, Failure> {
        let path = self.path();
        let mark = self.unique_path(path.as_ref())?;
        self.base.create_file(&mark, 0o600).map_err(|error| self.failure(&path, error))?;
        let name = mark.file_name().to_vec();
        self.mark = Some(mark);
        Ok(name)
    }

    /// Removes the mark.
    pub(super) fn unmark(&mut self) {
        if let Some(mark) = self.mark.take() {
            // A failure cannot be reported; it only leaves an empty file behind.
            let _ = self.base.remove_file(&mark);
        }
    }

    /// Everything below a directory, each directory before its content. No link is followed.
    pub(super) fn tree(&self, top: &TargetPath) -> Result<Vec<Found>, Failure> {
        let mut found = Vec::new();
        let mut waiting: Vec<TargetPath> = vec![None];
        while let Some(below) = waiting.pop() {
            let path = self.below(top, &below)?;
            let opened = match &path {
                Some(path) => self.base.open_dir(path),
                None => self.base.reopen(),
            };
            let entries = opened.and_then(|dir| dir.entries());
            for (name, kind) in entries.map_err(|error| self.failure(&path, error))? {
                let child = join_relative(below.as_ref(), &name);
                let child = child.map_err(|error| {
                    host_failure(&self.full_path(&path), &io::Error::other(error))
                })?;
                let is_directory = kind == FileKind::Directory;
                if is_directory {
                    waiting.push(Some(child.clone()));
                }
                found.push((child, is_directory));
            }
        }
        Ok(found)
    }

    /// Removes a path below a directory.
    pub(super) fn remove(
        &self,
        top: &TargetPath,
        path: &RelativePath,
        is_directory: bool,
    ) -> Result<(), Failure> {
        let path = self.below(top, &Some(path.clone()))?;
        let Some(target) = &path else { return Ok(()) };
        let removed = match is_directory {
            true => self.base.remove_tree(target),
            false => self.base.remove_file(target),
        };
        removed.map_err(|error| self.failure(&path, error))
    }

    fn below(&self, top: &TargetPath, path: &TargetPath) -> Result<TargetPath, Failure> {
        match (top, path) {
            (None, path) => Ok(path.clone()),
            (top, None) => Ok(top.clone()),
            (Some(top), Some(path)) => {
                let joined = join_relative(Some(top), path.as_bytes());
                let invalid = |error| host_failure(&self.display_path, &io::Error::other(error));
                joined.map(Some).map_err(invalid)
            }
        }
    }

    /// Creates a symbolic link, and replaces an existing file or link.
    pub(super) fn create_link(&self, path: &TargetPath, target: &[u8]) -> Result<(), Failure> {
        let to = self.replaceable(path)?;
        let beside = self.unique_path(to.parent().as_ref())?;
        self.base.symlink(target, &beside).map_err(|error| self.failure(path, error))?;
        let part = PartialFile { target: self, temporary: Some(beside), to };
        part.finish().map_err(|error| host_failure(&self.full_path(path), &error))
    }

    /// Creates a file for writing, with these permission bits as far as they may be copied.
    pub(super) fn create_file(
        &self,
        path: &TargetPath,
        mode: u32,
    ) -> Result<(PartialFile<'_>, File), Failure> {
        let to = self.replaceable(path)?;
        let beside = self.unique_path(to.parent().as_ref())?;
        let created = self.base.create_file(&beside, mode & COPIED_MODE);
        let file = created.map_err(|error| self.failure(path, error))?;
        Ok((PartialFile { target: self, temporary: Some(beside), to }, file))
    }

    /// The path of a destination where nothing is, or a file or link that can be replaced.
    fn replaceable(&self, path: &TargetPath) -> Result<RelativePath, Failure> {
        let refused = |errno: Errno| host_failure(&self.full_path(path), &errno.into());
        let to = path.clone().ok_or_else(|| refused(Errno::ISDIR))?;
        let there = self.base.stat(&to).map_err(|error| self.failure(path, error))?;
        match there.map(|there| there.kind) {
            None | Some(FileKind::File | FileKind::Symlink) => {}
            Some(FileKind::Directory) => return Err(refused(Errno::ISDIR)),
            Some(FileKind::CharacterDevice | FileKind::Other) => {
                let message = format!(
                    "{} is not a file that can be replaced",
                    self.full_path(path).display()
                );
                return Err(Problem::new(Code::InvalidInput, message).into());
            }
        }
        Ok(to)
    }

    /// A unique path in a directory, short enough for every file system.
    fn unique_path(&self, directory: Option<&RelativePath>) -> Result<RelativePath, Failure> {
        let name = format!(".stockade-{}", uuid::Uuid::now_v7().simple());
        let path = join_relative(directory, name.as_bytes());
        path.map_err(|error| host_failure(&self.display_path, &io::Error::other(error)))
    }

    fn failure(&self, path: &TargetPath, error: beneath::Error) -> Failure {
        host_failure(&self.full_path(path), &error.into())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.unmark();
    }
}

impl PartialFile<'_> {
    /// Moves the file to its final path, and replaces an existing file or link.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if let Some(beside) = &self.temporary {
            let base = &self.target.base;
            base.rename(beside, base, &self.to, Rename::Replace)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        if let Some(beside) = &self.temporary {
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
