//! Opening a volume for a mount.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use stockade_bundle::beneath::Dir;
use stockade_core::VolumeName;

use crate::{CONTENT, Error, Volumes, entry_name, found, set_mode};

/// How long a volume is locked that another process examines or removes.
const LOCK_DEADLINE: Duration = Duration::from_secs(2);
/// How often the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// No link is followed, whoever made it and when: a sandbox may exchange a directory for a link while
/// the path is resolved.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// What is mounted of a volume.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// All of it.
    Whole,
    /// The directory or file at this path, which must exist.
    Existing(&'a Path),
    /// The directory of this name, created if missing.
    Directory(&'a str),
    /// The file of this name, created if missing.
    File(&'a str),
}

/// A volume that is open for a mount.
#[derive(Debug)]
pub struct Mounted {
    /// The path of the part on the host.
    pub path: PathBuf,
    /// The part (`O_PATH`).
    pub file: OwnedFd,
    /// The lock that keeps the volume in use as long as it is open.
    pub lock: OwnedFd,
}

impl Volumes {
    /// Opens a part of a volume for a mount.
    ///
    /// # Errors
    /// As [`Volumes::mount`].
    pub fn mount_part(&self, name: &VolumeName, part: Part<'_>) -> Result<Mounted, Error> {
        let volume = self.lock(name)?;
        let content = volume.open_dir(&entry_name(CONTENT)?)?;
        let path = self.path.join(name.as_str()).join(CONTENT);
        let sub_path = match part {
            Part::Whole => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&content, ".", flags, Mode::empty())
                    .map_err(|errno| Error::Io(errno.into()))?;
                return Ok(Mounted { path, file, lock: volume.into() });
            }
            Part::Existing(sub_path) => sub_path.to_owned(),
            Part::Directory(directory) => {
                let entry = entry_name(directory)?;
                match content.mkdir(&entry, 0o777) {
                    Err(error) if error.errno() == Some(Errno::EXIST) => {}
                    made => {
                        made?;
                        set_mode(&content.open_dir(&entry)?)?;
                    }
                }
                PathBuf::from(directory)
            }
            Part::File(file) => {
                match content.create_file(&entry_name(file)?, 0o666) {
                    Err(error) if error.errno() == Some(Errno::EXIST) => {}
                    made => rustix::fs::fchmod(made?, Mode::from_raw_mode(0o666))
                        .map_err(|errno| Error::Io(errno.into()))?,
                }
                PathBuf::from(file)
            }
        };
        let file = below(&content, name, &sub_path)?;
        Ok(Mounted { path: path.join(&sub_path), file, lock: volume.into() })
    }

    /// Opens the directory of a volume, and keeps it from being removed as long as it is open.
    fn lock(&self, name: &VolumeName) -> Result<Dir, Error> {
        let entry = entry_name(name.as_str())?;
        let started = Instant::now();
        loop {
            let Some(volume) = found(self.directory.open_dir(&entry))? else {
                return Err(Error::NotFound(name.clone()));
            };
            let operation = FlockOperation::NonBlockingLockShared;
            match rustix::fs::flock(volume.as_fd(), operation) {
                // It may have been removed before it was locked.
                Ok(()) if self.leads_to(&entry, &volume)? => return Ok(volume),
                Ok(()) | Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_DEADLINE => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Ok(()) => return Err(Error::NotFound(name.clone())),
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::InUse { name: name.clone(), processes: Vec::new() });
                }
                Err(errno) => return Err(Error::Io(errno.into())),
            }
        }
    }
}

/// Opens what is at a path in the content of a volume.
fn below(content: &Dir, name: &VolumeName, path: &Path) -> Result<OwnedFd, Error> {
    let refused = |reason| Error::SubPath { name: name.clone(), path: path.to_owned(), reason };
    let mut components = path.components();
    let is_plain = components.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_plain || path.as_os_str().is_empty() {
        return Err(refused("it is not a relative path without `..`"));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        openat2(content, path, flags, Mode::empty(), CONFINED).map_err(|errno| match errno {
            Errno::LOOP | Errno::XDEV => refused("a link leads to it"),
            Errno::NOENT | Errno::NOTDIR => refused("it does not exist"),
            errno => Error::Io(errno.into()),
        })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| Error::Io(errno.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory | FileType::RegularFile => Ok(file),
        FileType::Symlink => Err(refused("a link leads to it")),
        _ => Err(refused("it is neither a directory nor a regular file")),
    }
}
