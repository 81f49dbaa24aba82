//! The access rules of a sandbox, checked on the real paths of open descriptors: a name may lead
//! anywhere, and elsewhere directly after it was checked.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;
use stockade_core::access::{Level, Rules};

use super::entry::DirEntryRef;
use super::special::own_path;

/// Whether the rules allow this use of the entry that a descriptor refers to.
pub(super) fn check(rules: &Rules, level: Level, file: BorrowedFd<'_>) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    rules.allows(level, &real_path(file)?).map_err(|_| Errno::ACCESS.into())
}

/// Whether the rules allow creating or changing a name in a directory.
pub(super) fn may_change(rules: &Rules, entry: &DirEntryRef) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    rules.allows(Level::ReadWrite, &path_of(entry)?).map_err(|_| Errno::ACCESS.into())
}

/// Whether the rules allow creating arbitrary entries in a directory.
pub(super) fn may_fill(rules: &Rules, dir: BorrowedFd<'_>) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    rules.allows_tree(Level::ReadWrite, &real_path(dir)?).map_err(|_| Errno::ACCESS.into())
}

/// Whether the rules allow removing a name with everything below it.
pub(super) fn may_remove(rules: &Rules, entry: &DirEntryRef) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    rules.allows_tree(Level::ReadWrite, &path_of(entry)?).map_err(|_| Errno::ACCESS.into())
}

/// Whether the rules allow renaming an entry with everything below it.
pub(super) fn may_move(rules: &Rules, from: &DirEntryRef, to: &DirEntryRef) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    rules.allows_move(&path_of(from)?, &path_of(to)?).map_err(|_| Errno::ACCESS.into())
}

fn path_of(entry: &DirEntryRef) -> io::Result<Vec<u8>> {
    let mut path = real_path(entry.parent.as_fd())?;
    if path != b"/" {
        path.push(b'/');
    }
    path.extend_from_slice(entry.name.as_os_str().as_bytes());
    Ok(path)
}

/// The path of a descriptor from the sandbox's own root: the kernel follows the mounts up to the
/// root of the mount namespace that they are in.
fn real_path(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let path = rustix::fs::readlinkat(rustix::fs::CWD, own_path(file), Vec::new())?.into_bytes();
    // A removed entry has a suffix; it is checked under its former path.
    Ok(path.strip_suffix(b" (deleted)").map(<[u8]>::to_vec).unwrap_or(path))
}
