//! The metadata of directory entries.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timespec,
    Timestamps, UTIME_OMIT, makedev,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

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

/// A point in time of the file system's clock; in JSON `[seconds, nanoseconds]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(i64, u32)", into = "(i64, u32)")]
pub struct Timestamp {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// The nanoseconds beyond them.
    pub nanoseconds: u32,
}

impl From<(i64, u32)> for Timestamp {
    fn from((seconds, nanoseconds): (i64, u32)) -> Self {
        Self { seconds, nanoseconds }
    }
}

impl From<Timestamp> for (i64, u32) {
    fn from(time: Timestamp) -> Self {
        (time.seconds, time.nanoseconds)
    }
}

/// The result of `statx(2)` for a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its type.
    pub kind: FileKind,
    /// All twelve permission bits, with set-id and sticky.
    pub mode: u32,
    /// Its length in bytes.
    pub size: u64,
    /// The device that contains it.
    pub device: u64,
    /// The mount through which it was reached; it differs from the parent's if this is a mount
    /// point.
    pub mount: u64,
    /// Whether it is the root of the mount.
    pub mount_point: bool,
    /// Its inode number on its device.
    pub inode: u64,
    /// The number of its hard links.
    pub links: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// For a device: its number.
    pub device_number: u64,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When its content, mode, owner or name last changed; programs cannot set it back.
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

impl Stat {
    /// The metadata of `name` in a directory, without following a link.
    pub(super) fn at(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(parent, name, flags, WANTED).map(Self::from)
    }

    /// The metadata of a trusted host path; links in it are followed.
    pub fn of_host(path: &Path) -> Result<Self, Errno> {
        rustix::fs::statx(rustix::fs::CWD, path, AtFlags::NO_AUTOMOUNT, WANTED).map(Self::from)
    }

    /// The metadata of an open file.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WANTED).map(Self::from)
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);

impl From<Statx> for Stat {
    fn from(stat: Statx) -> Self {
        let timestamp =
            |time: StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
        let mode = u32::from(stat.stx_mode);
        Self {
            kind: FileKind::from_mode(mode),
            mode: mode & 0o7777,
            size: stat.stx_size,
            device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
            mount: stat.stx_mnt_id,
            mount_point: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            inode: stat.stx_ino,
            links: u64::from(stat.stx_nlink),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device_number: makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            modified: timestamp(stat.stx_mtime),
            changed: timestamp(stat.stx_ctime),
        }
    }
}

/// Both times of a file for the kernel; the access time stays unchanged if it is `None`.
pub(crate) fn times(accessed: Option<Timestamp>, modified: Timestamp) -> Timestamps {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let time =
        |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) };
    Timestamps { last_access: accessed.map_or(omitted, time), last_modification: time(modified) }
}

/// Changes the mode of the file that an `O_PATH` descriptor refers to. Kernels before 6.6
/// support that only through the descriptor's own entry in `/proc`, which cannot be redirected.
pub(super) fn chmod_descriptor(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        Mode::from_bits_truncate(mode & 0o7777),
    )
}
