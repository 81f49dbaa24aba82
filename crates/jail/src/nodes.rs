//! Directories, links and files that the inner half makes below the jail's root. No link of `/proc` is
//! followed, because this process still has file descriptors of the host.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The parent directory of a path, created if missing, and the path's last name. No link of `/proc`
/// is followed on the way, because this process still has file descriptors of the host.
pub(crate) fn parent_and_name(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    let parent = match open() {
        Err(Errno::NOENT) => {
            make_directory(parent)?;
            open()
        }
        opened => opened,
    }?;
    Ok((parent, name))
}

fn allow_existing(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    if path.parent().is_none() {
        return Ok(());
    }
    let (parent, name) = parent_and_name(path)?;
    allow_existing(rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)))
}

pub(crate) fn make_link(to: &Path, path: &Path) -> io::Result<()> {
    let (parent, name) = parent_and_name(path)?;
    allow_existing(rustix::fs::symlinkat(to, &parent, name))
}

/// Creates an empty file if nothing exists at the path. An existing file is not changed, as it may
/// be in the view.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let (parent, name) = parent_and_name(path)?;
    allow_existing(new_file(&parent, name, 0o444).map(drop))
}

pub(crate) fn new_file(parent: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::from_raw_mode(mode))
}
