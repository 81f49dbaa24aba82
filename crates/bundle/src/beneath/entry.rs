//! What a directory entry is, in Rust's types.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device; in the upper layer of an overlay, device 0:0 is a deletion.
    CharacterDevice,
    /// A socket, pipe, block device or anything else.
    Other,
}

/// A point in time of the file system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// The nanoseconds beyond them.
    pub nanoseconds: u32,
}

/// What `fstatat(2)` tells of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its type.
    pub kind: FileKind,
    /// All twelve permission bits, with set-id and sticky.
    pub mode: u32,
    /// Its length in bytes.
    pub size: u64,
    /// The device it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How many names it has.
    pub links: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// For a device: its number.
    pub device_number: u64,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When its content, mode, owner or name last changed; cannot be set back by a program.
    pub changed: Timestamp,
}

impl FileKind {
    pub(super) fn from_mode(mode: rustix::fs::RawMode) -> Self {
        FileType::from_raw_mode(mode).into()
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::CharacterDevice => Self::CharacterDevice,
            _ => Self::Other,
        }
    }
}

impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        // A clock's nanoseconds are below 10^9, a length never negative.
        let timestamp = |seconds, nanoseconds| Timestamp {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        Self {
            kind: FileKind::from_mode(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink,
            uid: stat.st_uid,
            gid: stat.st_gid,
            device_number: stat.st_rdev,
            modified: timestamp(stat.st_mtime, stat.st_mtime_nsec),
            changed: timestamp(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// Changes the mode of what an `O_PATH` descriptor names. Kernels before 6.6 can do that only
/// through the descriptor's own entry in `/proc`, which cannot be redirected.
pub(super) fn chmod_descriptor(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        Mode::from_bits_truncate(mode & 0o7777),
    )
}
