//! How much of the disk a directory uses. No link is followed: the files of a sandbox are not trusted.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

/// The deepest directory that is measured.
const MAX_DEPTH: usize = 256;

/// Disk usage.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    /// What it takes on the disk.
    pub bytes: u64,
    /// The files and directories.
    pub files: u64,
    /// Directories that could not be read.
    pub unreadable: u64,
}

impl Usage {
    /// Adds an entry, and everything below it.
    pub fn add(&mut self, directory: BorrowedFd<'_>, name: &CStr) {
        self.add_at(directory, name, 0);
    }

    fn add_at(&mut self, directory: BorrowedFd<'_>, name: &CStr, depth: usize) {
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.files += 1;
        self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(directory, name, flags, Mode::empty());
        let listed = opened.and_then(|opened| Ok((names(opened.as_fd())?, opened)));
        match listed {
            Ok((entries, opened)) if depth < MAX_DEPTH => {
                entries.iter().for_each(|name| self.add_at(opened.as_fd(), name, depth + 1));
            }
            _ => self.unreadable += 1,
        }
    }
}

/// What a directory uses on the disk, with everything below it.
#[must_use]
pub fn used_bytes(path: &Path) -> u64 {
    let mut usage = Usage::default();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return 0 };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = CString::new(name.as_bytes());
    if let (Ok(parent), Ok(name)) = (rustix::fs::open(parent, flags, Mode::empty()), name) {
        usage.add(parent.as_fd(), &name);
    }
    usage.bytes
}

/// The names in a directory.
///
/// # Errors
/// Those of the file system.
pub fn names(directory: BorrowedFd<'_>) -> rustix::io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_measured_without_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let big = directory.path().join("big");
        std::fs::write(&big, vec![1; 1 << 20]).unwrap();
        let below = directory.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(below.join("file"), vec![1; 8 << 10]).unwrap();
        std::os::unix::fs::symlink(&big, below.join("link")).unwrap();
        std::os::unix::fs::symlink(directory.path(), below.join("loop")).unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let mut usage = Usage::default();
        usage.add(opened.as_fd(), c"below");
        assert_eq!((usage.files, usage.unreadable), (4, 0));
        assert!(usage.bytes >= 8 << 10 && usage.bytes < 1 << 20, "{usage:?}");
        assert_eq!(used_bytes(&below), usage.bytes);
    }
}
