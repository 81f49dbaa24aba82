//! Removing whole trees that an untrusted program may have created: deeper than any path can
//! name, with more entries than memory should hold, without permission to read directories.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::entry::Stat;

/// How many levels deep the removal holds descriptors open; deeper directories are first moved
/// up, so that neither descriptors nor the stack run out.
const DEPTH: usize = 32;

/// Removes `name` in `parent` and everything beneath it. Returns `EBUSY` if something is mounted
/// there: the kernel reports this only for mounts in the caller's own namespace, and detaches
/// all others.
pub(super) fn tree(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    keep_mounts(parent, name)?;
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        // Linux returns EISDIR for a directory, POSIX specifies EPERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let top = open(parent, name)?;
    let mut moved = 0_u64;
    loop {
        let before = moved;
        empty(top.as_fd(), top.as_fd(), 0, &mut moved)?;
        if moved == before {
            break;
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn empty(
    top: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    depth: usize,
    moved: &mut u64,
) -> Result<(), Errno> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match keep_mounts(directory, OsStr::from_bytes(name.to_bytes())) {
            Ok(()) => {}
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        }
        if entry.file_type() != FileType::Directory {
            match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR).is_ok() {
            continue;
        }
        if depth == DEPTH {
            move_up(top, directory, name, moved)?;
            continue;
        }
        let below = open(directory, name)?;
        empty(top, below.as_fd(), depth + 1, moved)?;
        rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn keep_mounts(directory: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    if Stat::at(directory, name)?.mount_point { Err(Errno::BUSY) } else { Ok(()) }
}

fn move_up(
    top: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &CStr,
    moved: &mut u64,
) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let to = format!("deep-{moved}");
        match rustix::fs::renameat_with(directory, name, top, &to, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

/// Opens a directory for listing and changing; grants its owner these permissions if they are
/// missing.
fn open<N: rustix::path::Arg + Copy>(
    parent: BorrowedFd<'_>,
    name: N,
) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(parent, name, OFlags::PATH | flags, Mode::empty())?;
    if rustix::fs::fstat(&descriptor)?.st_mode & 0o700 != 0o700 {
        super::entry::chmod_descriptor(descriptor.as_fd(), 0o700)?;
    }
    rustix::fs::openat(parent, name, OFlags::RDONLY | flags, Mode::empty())
}
