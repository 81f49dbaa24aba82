//! Moves a directory where the kernel cannot rename it: makes it anew and moves its content, whose
//! files can be renamed. What fails is undone, so that nothing is at two places or at none.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, RawMode, Stat, StatxFlags, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

use super::place::Place;
use crate::sys::rename_unfollowed;

/// How often the content is moved again, because a process has added something meanwhile.
const ROUNDS: usize = 3;
/// The rights that moving the content of a directory needs.
const OWNER_RIGHTS: RawMode = 0o700;
/// The bits of a mode without the type.
const MODE: RawMode = 0o7777;

/// Renames as `renameat2(2)` with these flags, and moves a directory that the kernel cannot rename.
pub(super) fn rename(old: &Place, new: &Place, flags: u32) -> Result<()> {
    let (old_name, new_name) = (&*old.name, &*new.name);
    match rename_unfollowed((old.parent.as_fd(), old_name), (new.parent.as_fd(), new_name), flags) {
        Err(Errno::XDEV) => {}
        renamed => return renamed,
    }
    if mount_of(old.parent.as_fd())? != mount_of(new.parent.as_fd())? {
        return Err(Errno::XDEV);
    }
    let directory = rustix::fs::statat(&old.parent, &old.name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(directory.st_mode) != FileType::Directory {
        return Err(Errno::XDEV);
    }
    // An empty directory gives way.
    let replaced = match rustix::fs::statat(&new.parent, &new.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(replaced) => Some(replaced),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(reason(error)),
    };
    if replaced.is_some() {
        rustix::fs::unlinkat(&new.parent, &new.name, AtFlags::REMOVEDIR)?;
    }
    let (old, new) = ((old.parent.as_fd(), &*old.name), (new.parent.as_fd(), &*new.name));
    let moved = move_directory(old, new);
    if let (Err(_), Some(replaced)) = (moved, replaced) {
        let _ = rustix::fs::mkdirat(new.0, new.1, mode(&replaced));
    }
    moved.map_err(reason)
}

/// What the program gets if a directory could not be moved: that there is no room, or what the kernel
/// answers anyway, after which many programs copy.
const fn reason(error: Errno) -> Errno {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::IO => error,
        _ => Errno::XDEV,
    }
}

fn text(path: &[u8]) -> Result<CString> {
    CString::new(path).map_err(|_| Errno::INVAL)
}

fn mount_of(place: BorrowedFd<'_>) -> Result<u64> {
    let found = rustix::fs::statx(place, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(found.stx_mnt_id)
}

type Name<'a> = (BorrowedFd<'a>, &'a CStr);

/// Moves a directory to a name that is free, with its mode, owner, times and attributes.
fn move_directory(old: Name<'_>, new: Name<'_>) -> Result<()> {
    let source = open(old)?;
    let stat = rustix::fs::fstat(&source)?;
    rustix::fs::mkdirat(new.0, new.1, Mode::from_raw_mode(OWNER_RIGHTS))?;
    let moved = open(new).and_then(|target| {
        let moved = move_into(&source, &stat, &target)
            .and_then(|()| rustix::fs::unlinkat(old.0, old.1, AtFlags::REMOVEDIR));
        if moved.is_err() {
            undo(&source, &stat, &target);
        }
        moved
    });
    if moved.is_err() {
        let _ = rustix::fs::unlinkat(new.0, new.1, AtFlags::REMOVEDIR);
    }
    moved
}

fn move_into(source: &OwnedFd, stat: &Stat, target: &OwnedFd) -> Result<()> {
    if stat.st_mode & OWNER_RIGHTS != OWNER_RIGHTS {
        rustix::fs::fchmod(source, mode(stat) | Mode::from_raw_mode(OWNER_RIGHTS))?;
    }
    for _ in 0..ROUNDS {
        move_content(source, target)?;
        if names(source)?.is_empty() {
            return describe(source, stat, target);
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Moves the content back. What cannot be moved back stays where a user finds it.
fn undo(source: &OwnedFd, stat: &Stat, target: &OwnedFd) {
    let _ = rustix::fs::fchmod(target, Mode::from_raw_mode(OWNER_RIGHTS));
    let _ = move_content(target, source);
    let _ = rustix::fs::fchmod(source, mode(stat));
    let _ = rustix::fs::futimens(source, &times(stat));
}

fn move_content(source: &OwnedFd, target: &OwnedFd) -> Result<()> {
    for name in names(source)? {
        let (old, new) = ((source.as_fd(), &*name), (target.as_fd(), &*name));
        match rename_unfollowed(old, new, libc::RENAME_NOREPLACE) {
            // A process has removed it.
            Ok(()) | Err(Errno::NOENT) => {}
            // Also one that its owner may not write to, which the kernel does not move to another
            // directory.
            Err(Errno::XDEV | Errno::ACCESS) => move_directory(old, new)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives the new directory what the old one had.
fn describe(source: &OwnedFd, stat: &Stat, target: &OwnedFd) -> Result<()> {
    copy_attributes(source, target)?;
    let made = rustix::fs::fstat(target)?;
    if (made.st_uid, made.st_gid) != (stat.st_uid, stat.st_gid) {
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        rustix::fs::fchown(target, Some(user), Some(group))?;
    }
    rustix::fs::fchmod(target, mode(stat))?;
    rustix::fs::futimens(target, &times(stat))
}

fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & MODE)
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.try_into().unwrap_or_default(),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Copies the extended attributes that a user can have, lists of access rights among them.
fn copy_attributes(source: &OwnedFd, target: &OwnedFd) -> Result<()> {
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::flistxattr(source, &mut names[..]) {
        Err(Errno::NOTSUP) => return Ok(()),
        length => length?,
    };
    let mut value = vec![0; 64 * 1024];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if !(name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")) {
            continue;
        }
        let name = text(name)?;
        let length = rustix::fs::fgetxattr(source, &name, &mut value[..])?;
        rustix::fs::fsetxattr(target, &name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn open((parent, name): Name<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// The names in a directory.
fn names(directory: &OwnedFd) -> Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}
