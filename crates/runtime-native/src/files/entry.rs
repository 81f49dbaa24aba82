//! Resolution of sandbox paths. The kernel resolves them, inside only, regardless of concurrent
//! renames and links (`openat2(2)`, `RESOLVE_IN_ROOT`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Stat};
use stockade_core::access::Rules;

use super::special;

/// How many symbolic links are followed at the end of a path: the kernel's own limit within a path.
const LINKS: usize = 40;
/// How often a path with a `..` is resolved again when the kernel could not resolve it safely
/// because of a concurrent rename anywhere (`EAGAIN`).
const ATTEMPTS: usize = 256;

/// An `O_PATH` descriptor of the entry at a path. Symbolic links are followed, the last one unless
/// `flags` forbid it.
pub(super) fn resolve(root: BorrowedFd<'_>, path: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// The directory below which paths are resolved, and the access rules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) rules: &'a Rules,
}

/// A name in a directory, whether or not the entry exists.
#[derive(Debug)]
pub(super) struct DirEntryRef {
    pub(super) parent: Dir,
    pub(super) name: RelativePath,
}

impl DirEntryRef {
    /// The directory and name of a path; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// `ResourceBusy` for the root itself; `InvalidInput` on a kernel file system.
    pub(super) fn new(root: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let (parent, name) = split(path.as_os_str()).ok_or(Errno::BUSY)?;
        Self::at(root, parent, name)
    }

    /// The directory and name of a path after following the symbolic links at its end.
    ///
    /// # Errors
    /// As [`DirEntryRef::new`]; `IsADirectory` for the root and for symbolic links that end in a slash or
    /// dots.
    pub(super) fn behind_links(root: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        let mut path = path.as_os_str().to_owned();
        for _ in 0..LINKS {
            let (parent, name) = split(&path).ok_or(Errno::ISDIR)?;
            let entry = Self::at(root, parent, name)?;
            let link = match rustix::fs::readlinkat(entry.parent.as_fd(), name, Vec::new()) {
                Err(Errno::INVAL | Errno::NOENT) => return Ok(entry),
                other => other?.into_bytes(),
            };
            // The kernel decides whether this user may follow the symbolic link.
            if let Err(error) = resolve(root, &path, OFlags::empty())
                && error.kind() == io::ErrorKind::PermissionDenied
            {
                return Err(error);
            }
            path = if link.starts_with(b"/") {
                OsStr::from_bytes(&link).to_owned()
            } else {
                OsStr::from_bytes(&[parent.as_bytes(), b"/", &link].concat()).to_owned()
            };
        }
        Err(Errno::LOOP.into())
    }

    fn at(root: BorrowedFd<'_>, parent: &OsStr, name: &OsStr) -> io::Result<Self> {
        let parent = resolve(root, parent, OFlags::DIRECTORY)?;
        special::refuse_kernel(parent.as_fd())?;
        let name = RelativePath::new(name.as_bytes())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self { parent: Dir::from_fd(parent), name })
    }

    /// The metadata of the entry.
    ///
    /// # Errors
    /// `ResourceBusy` for a mount point: from outside, the kernel would remove the name and detach
    /// the mount.
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match self.parent.stat(&self.name)? {
            Some(stat) if stat.mount_point => Err(Errno::BUSY.into()),
            other => Ok(other),
        }
    }
}

/// A path's parent and last name; `None` if the last one can only be a directory.
fn split(path: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = path.as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (parent, name) = (&bytes[..=at], &bytes[at + 1..]);
    let named = !matches!(name, b"" | b"." | b"..");
    named.then(|| (OsStr::from_bytes(parent), OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_parent_and_a_name() {
        let text = |path| split(OsStr::new(path)).map(|(a, b)| (a.to_str(), b.to_str()));
        assert_eq!(text("/a"), Some((Some("/"), Some("a"))));
        assert_eq!(text("/a/../b c"), Some((Some("/a/../"), Some("b c"))));
        for directory in ["/", "/a/", "/a/.", "/a/..", "//"] {
            assert_eq!(text(directory), None, "{directory}");
        }
    }
}
