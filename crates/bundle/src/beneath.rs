//! A directory descriptor below which the kernel resolves every path without leaving it: no
//! symbolic link, magic link or `..` is ever followed, whatever another process does meanwhile.
//!
//! Parents are opened with `openat2(2)` under `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and
//! `RESOLVE_NO_MAGICLINKS`; the last component is only ever passed to `*at` calls on the
//! parent's descriptor that do not follow links. This module is independent of bundles.

mod entry;
mod remove;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

pub(crate) use entry::times;
pub use entry::{FileKind, Stat, Timestamp};

use crate::path::RelativePath;

/// An open directory; all paths passed to its methods are resolved beneath it.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Why an operation beneath a [`Dir`] failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A component of the path that should be a directory is a symbolic link.
    #[error("cannot {operation} {path}: the path goes through a symbolic link")]
    ThroughLink {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The path, printable.
        path: String,
    },
    /// The path names something other than a regular file.
    #[error("cannot {operation} {path}: not a regular file")]
    NotRegular {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The path, printable.
        path: String,
    },
    /// The kernel returned an error.
    #[error("cannot {operation} {path}")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The path, printable.
        path: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A name in a directory, with its type.
pub type NamedEntry = (Vec<u8>, FileKind);

/// What a rename does if the destination exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Fails with `EEXIST`.
    NoReplace,
    /// Swaps the two atomically; both must exist.
    Exchange,
    /// Replaces it atomically, as `rename(2)` does.
    Replace,
}

const CONFINED: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

impl Dir {
    /// Opens a directory by a trusted host path; links in it are followed.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(Self).map_err(|errno| Error::Io {
            operation: "open directory",
            path: printable(path.as_os_str()),
            source: errno.into(),
        })
    }

    /// Opens a directory by a host path in which no component may be a link: a path that was
    /// recorded earlier, and whose components others may have replaced since.
    pub fn open_recorded(path: &Path) -> Result<Self, Error> {
        const OPERATION: &str = "open directory";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).map(Self).map_err(
            |errno| {
                let path = printable(path.as_os_str());
                match errno {
                    Errno::LOOP => Error::ThroughLink { operation: OPERATION, path },
                    errno => Error::Io { operation: OPERATION, path, source: errno.into() },
                }
            },
        )
    }

    /// Wraps a file descriptor that is known to be a directory opened for reading.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// A second descriptor of the same directory, with locks and a position of its own.
    pub fn reopen(&self) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, ".", flags, Mode::empty())
            .map(Self)
            .map_err(|errno| self_error("open directory", errno))
    }

    /// A second descriptor of the same open directory, sharing its locks.
    pub fn try_clone(&self) -> Result<Self, Error> {
        self.0.try_clone().map(Self).map_err(|source| Error::Io {
            operation: "duplicate the descriptor of",
            path: ".".to_owned(),
            source,
        })
    }

    /// Opens a directory beneath only for resolving paths below it; no permission to list it is
    /// needed.
    pub fn locate_dir(&self, path: &RelativePath) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.open_confined(path, flags, Mode::empty())
            .map(Self)
            .map_err(|errno| io_error("find directory", path, errno))
    }

    /// Opens a directory beneath for reading.
    pub fn open_dir(&self, path: &RelativePath) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.open_confined(path, flags, Mode::empty())
            .map(Self)
            .map_err(|errno| io_error("open directory", path, errno))
    }

    /// Opens a regular file for reading. Anything else is refused with [`Error::NotRegular`]; a
    /// pipe does not block.
    pub fn open_file(&self, path: &RelativePath) -> Result<File, Error> {
        const OPERATION: &str = "open file";
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let not_regular = || Error::NotRegular { operation: OPERATION, path: path.quoted() };
        let fd = match self.open_confined(path, flags | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => fd,
            // A socket, or a device without a driver.
            Err(Errno::NXIO | Errno::NODEV) => return Err(not_regular()),
            Err(errno) => {
                let is_link = errno == Errno::LOOP
                    && matches!(self.stat(path), Ok(Some(stat)) if stat.kind == FileKind::Symlink);
                return Err(if is_link { not_regular() } else { io_error(OPERATION, path, errno) });
            }
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| io_error(OPERATION, path, errno))?;
        if FileKind::from_mode(stat.st_mode) != FileKind::File {
            return Err(not_regular());
        }
        Ok(File::from(fd))
    }

    /// Opens an existing regular file beneath for writing, without truncating it.
    pub fn open_file_to_write(&self, path: &RelativePath) -> Result<File, Error> {
        const OPERATION: &str = "open file";
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self
            .open_confined(path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| io_error(OPERATION, path, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| io_error(OPERATION, path, errno))?;
        if FileKind::from_mode(stat.st_mode) != FileKind::File {
            return Err(Error::NotRegular { operation: OPERATION, path: path.quoted() });
        }
        Ok(File::from(fd))
    }

    /// Creates a new file and opens it for writing; fails with `EEXIST` if the path exists. The
    /// permission bits are subject to the umask.
    pub fn create_file(&self, path: &RelativePath, mode: u32) -> Result<File, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.open_confined(path, flags | OFlags::CLOEXEC, Mode::from_bits_truncate(mode & 0o7777))
            .map(File::from)
            .map_err(|errno| io_error("create file", path, errno))
    }

    /// The metadata of a path, without following a link; `None` if it does not exist, including
    /// when a parent is missing or not a directory.
    pub fn stat(&self, path: &RelativePath) -> Result<Option<Stat>, Error> {
        match self.with_parent(path, Stat::at) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(io_error("inspect", path, errno)),
        }
    }

    /// Whether a path exists. Paths that are reached only through a link do not count, nor do names
    /// that no file can have.
    pub fn exists(&self, path: &RelativePath) -> Result<bool, Error> {
        match self.stat(path) {
            Ok(found) => Ok(found.is_some()),
            Err(Error::ThroughLink { .. }) => Ok(false),
            Err(error) if error.errno() == Some(Errno::NAMETOOLONG) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks the file system to place the directories that are created in this one far apart on disk,
    /// where it supports that (`chattr(1)`, attribute T): they are unrelated to each other. ext4
    /// without a journal does not reuse an inode for some minutes after it was freed, and first
    /// examines all such inodes that lie near a new one.
    pub fn spread_subdirectories(&self) {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        // On other file systems this has no effect.
        if let Ok(flags) = ioctl_getflags(&self.0)
            && !flags.contains(IFlags::TOPDIR)
        {
            let _ = ioctl_setflags(&self.0, flags | IFlags::TOPDIR);
        }
    }

    /// The metadata of this directory itself.
    pub fn stat_self(&self) -> Result<Stat, Error> {
        Stat::of(&self.0).map_err(|errno| self_error("inspect", errno))
    }

    /// The target of a symbolic link, as written.
    pub fn read_link(&self, path: &RelativePath) -> Result<Vec<u8>, Error> {
        self.with_parent(path, |parent, name| rustix::fs::readlinkat(parent, name, Vec::new()))
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| io_error("read link", path, errno))
    }

    /// Creates a symbolic link with any target; fails with `EEXIST` if the path exists.
    pub fn symlink(&self, target: &[u8], path: &RelativePath) -> Result<(), Error> {
        let target = OsStr::from_bytes(target);
        self.with_parent(path, |parent, name| rustix::fs::symlinkat(target, parent, name))
            .map_err(|errno| io_error("create link", path, errno))
    }

    /// Creates a directory; the permission bits are subject to the umask.
    pub fn mkdir(&self, path: &RelativePath, mode: u32) -> Result<(), Error> {
        let mode = Mode::from_bits_truncate(mode & 0o7777);
        self.with_parent(path, |parent, name| rustix::fs::mkdirat(parent, name, mode))
            .map_err(|errno| io_error("create directory", path, errno))
    }

    /// Removes anything but a directory.
    pub fn remove_file(&self, path: &RelativePath) -> Result<(), Error> {
        self.with_parent(path, |parent, name| rustix::fs::unlinkat(parent, name, AtFlags::empty()))
            .map_err(|errno| io_error("remove", path, errno))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &RelativePath) -> Result<(), Error> {
        self.with_parent(path, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        })
        .map_err(|errno| io_error("remove directory", path, errno))
    }

    /// Renames `from` beneath this directory to `to` beneath `to_dir`.
    pub fn rename(
        &self,
        from: &RelativePath,
        to_dir: &Self,
        to: &RelativePath,
        rename: Rename,
    ) -> Result<(), Error> {
        let flags = match rename {
            Rename::NoReplace => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
            Rename::Replace => RenameFlags::empty(),
        };
        let mut failing = from;
        self.with_parent(from, |from_parent, from_name| {
            failing = to;
            to_dir.with_parent(to, |to_parent, to_name| {
                rustix::fs::renameat_with(from_parent, from_name, to_parent, to_name, flags)
            })
        })
        .map_err(|errno| io_error("rename", failing, errno))
    }

    /// The names in this directory with their types, unordered; without `.` and `..`.
    pub fn entries(&self) -> Result<Vec<NamedEntry>, Error> {
        Ok(self.entries_up_to(u64::MAX)?.unwrap_or_default())
    }

    /// The same, but `None` if there are more than `limit`; no more than that are held in memory.
    pub fn entries_up_to(&self, limit: u64) -> Result<Option<Vec<NamedEntry>>, Error> {
        let mut entries = Vec::new();
        for entry in self.list()? {
            if entries.len() as u64 == limit {
                return Ok(None);
            }
            entries.push(entry?);
        }
        Ok(Some(entries))
    }

    /// The same, one by one as the file system returns them, without holding them in memory.
    /// While the directory is being changed, a name may occur twice or not at all, and the list
    /// may never end.
    pub fn list(&self) -> Result<impl Iterator<Item = Result<NamedEntry, Error>>, Error> {
        let failure = |errno| self_error("list", errno);
        let entries = rustix::fs::Dir::read_from(&self.0).map_err(failure)?;
        Ok(entries.filter_map(move |entry| {
            entry.and_then(|entry| self.named_entry(&entry)).map_err(failure).transpose()
        }))
    }

    /// `None` for the directory itself, its parent, and entries that no longer exist.
    fn named_entry(&self, entry: &rustix::fs::DirEntry) -> Result<Option<NamedEntry>, Errno> {
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            return Ok(None);
        }
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            rustix::fs::FileType::Unknown => {
                match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileKind::from_mode(stat.st_mode),
                    Err(Errno::NOENT) => return Ok(None),
                    Err(errno) => return Err(errno),
                }
            }
            known => known.into(),
        };
        Ok(Some((name.to_vec(), kind)))
    }

    /// Whether this process may create, rename and remove entries of this directory.
    pub fn is_writable(&self) -> Result<bool, Error> {
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(&self.0, ".", wanted, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => Ok(false),
            Err(errno) => Err(self_error("inspect the permissions of", errno)),
        }
    }

    /// Sets the permission bits exactly, regardless of the umask. Refused with
    /// [`Error::NotRegular`] for anything but a regular file or a directory.
    pub fn chmod(&self, path: &RelativePath, mode: u32) -> Result<(), Error> {
        const OPERATION: &str = "change the mode of";
        let failure = |errno| io_error(OPERATION, path, errno);
        let fd = self
            .open_confined(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .map_err(failure)?;
        let kind = FileKind::from_mode(rustix::fs::fstat(&fd).map_err(failure)?.st_mode);
        if !matches!(kind, FileKind::File | FileKind::Directory) {
            return Err(Error::NotRegular { operation: OPERATION, path: path.quoted() });
        }
        entry::chmod_descriptor(fd.as_fd(), mode).map_err(failure)
    }

    /// Sets the owner without following a link.
    pub fn chown(&self, path: &RelativePath, uid: u32, gid: u32) -> Result<(), Error> {
        let uid = Some(rustix::fs::Uid::from_raw(uid));
        let gid = Some(rustix::fs::Gid::from_raw(gid));
        self.with_parent(path, |parent, name| {
            rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        })
        .map_err(|errno| io_error("change the owner of", path, errno))
    }

    /// Sets the access and modification times of a path, without following a link.
    pub fn set_times(
        &self,
        path: &RelativePath,
        accessed: Option<Timestamp>,
        modified: Timestamp,
    ) -> Result<(), Error> {
        let times = times(accessed, modified);
        self.with_parent(path, |parent, name| {
            rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        })
        .map_err(|errno| io_error("set the times of", path, errno))
    }

    /// Sets the owner of this directory itself.
    pub fn chown_self(&self, uid: u32, gid: u32) -> Result<(), Error> {
        let uid = Some(rustix::fs::Uid::from_raw(uid));
        let gid = Some(rustix::fs::Gid::from_raw(gid));
        rustix::fs::fchown(&self.0, uid, gid)
            .map_err(|errno| self_error("change the owner of", errno))
    }

    /// Waits until this directory's own entries are on disk.
    pub fn sync(&self) -> Result<(), Error> {
        rustix::fs::fsync(&self.0).map_err(|errno| self_error("sync", errno))
    }

    /// Waits until everything on this directory's file system is on disk.
    pub fn sync_file_system(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.0).map_err(|errno| self_error("sync the file system of", errno))
    }

    /// Removes a path and, if it is a directory, everything beneath it, at any depth and
    /// regardless of permission bits; a missing path is no error. Fails with `EBUSY` if
    /// something is mounted there, in any namespace that this descriptor leads to.
    pub fn remove_tree(&self, path: &RelativePath) -> Result<(), Error> {
        self.with_parent(path, remove::tree)
            .or_else(|errno| if errno == Errno::NOENT { Ok(()) } else { Err(errno) })
            .map_err(|errno| io_error("remove", path, errno))
    }

    fn open_confined(
        &self,
        path: &RelativePath,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(&self.0, path.as_os_str(), flags, mode, CONFINED)
    }

    /// Calls `operation` with the descriptor of the path's parent and the last component.
    fn with_parent<T>(
        &self,
        path: &RelativePath,
        operation: impl FnOnce(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let name = OsStr::from_bytes(path.file_name());
        match path.parent() {
            None => operation(self.0.as_fd(), name),
            Some(parent) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let parent = self.open_confined(&parent, flags, Mode::empty())?;
                operation(parent.as_fd(), name)
            }
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> Self {
        dir.0
    }
}

impl Error {
    /// The kind of the kernel's error, if there is one.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::ThroughLink { .. } | Self::NotRegular { .. } => None,
        }
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source),
            Self::ThroughLink { .. } | Self::NotRegular { .. } => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { source, .. } => source,
            refused => Self::new(io::ErrorKind::InvalidInput, refused),
        }
    }
}

fn io_error(operation: &'static str, path: &RelativePath, errno: Errno) -> Error {
    let path = path.quoted();
    match errno {
        Errno::LOOP => Error::ThroughLink { operation, path },
        errno => Error::Io { operation, path, source: errno.into() },
    }
}

fn self_error(operation: &'static str, errno: Errno) -> Error {
    Error::Io { operation, path: ".".to_owned(), source: errno.into() }
}

fn printable(path: &OsStr) -> String {
    path.as_bytes().escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
