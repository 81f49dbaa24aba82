//! Access to the files of a `node_modules` directory, and no others: links are followed as long as
//! they stay below it. The total amount that is read is bounded.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::error::Error;

/// The most files that are read.
const MAX_FILES: usize = 4_000;
/// The most bytes that are read.
const MAX_BYTES: u64 = 16 << 20;
/// How often opening is retried after a concurrent rename.
const ATTEMPTS: usize = 8;

/// An open directory of packages.
#[derive(Debug)]
pub(super) struct Tree {
    directory: OwnedFd,
    root_path: PathBuf,
    files: usize,
    bytes: u64,
}

/// A file that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PackageFile {
    /// Its path below the directory, without links.
    pub(super) path: String,
    /// Its text.
    pub(super) text: String,
}

impl Tree {
    /// Opens a directory by a path that the user gave.
    pub(super) fn open(directory: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Open(directory.to_owned(), error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty());
        let opened = opened.map_err(|errno| failed(errno.into()))?;
        let real = real_path(&opened).map_err(failed)?;
        Ok(Self { directory: opened, root_path: real, files: 0, bytes: 0 })
    }

    /// The path without links of a regular file; `None` where there is none.
    pub(super) fn find(&self, path: &str) -> Result<Option<String>, Error> {
        Ok(self.locate(path)?.map(|(_, path)| path))
    }

    /// Reads a regular file; `None` where there is none.
    pub(super) fn read(&mut self, path: &str) -> Result<Option<PackageFile>, Error> {
        let Some((file, real)) = self.locate(path)? else { return Ok(None) };
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(Error::TooManyFiles(MAX_FILES));
        }
        let mut text = String::new();
        let left = MAX_BYTES - self.bytes;
        let read = std::fs::File::from(file).take(left + 1).read_to_string(&mut text);
        read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        self.bytes += text.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(Error::TooLarge(MAX_BYTES));
        }
        Ok(Some(PackageFile { path: real, text }))
    }

    fn locate(&self, path: &str) -> Result<Option<(OwnedFd, String)>, Error> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let failed = |errno: Errno| Error::Read { path: path.to_owned(), source: errno.into() };
        let open = || rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve);
        let mut opened = open();
        for _ in 1..ATTEMPTS {
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
            opened = open();
        }
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => return Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => return Err(Error::OutsideDirectory(path.to_owned())),
            Err(errno) => return Err(failed(errno)),
        };
        let kind = rustix::fs::fstat(&file).map_err(failed)?.st_mode;
        if !rustix::fs::FileType::from_raw_mode(kind).is_file() {
            return Ok(None);
        }
        let real =
            real_path(&file).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let below = real.strip_prefix(&self.root_path).ok().and_then(Path::to_str);
        let below = below.ok_or_else(|| Error::OutsideDirectory(path.to_owned()))?.to_owned();
        Ok(Some((file, below)))
    }
}

fn real_path(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_only_below() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.js"), "secret").unwrap();
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("node_modules");
        fs::create_dir_all(modules.join(".store/a@1/node_modules/a")).unwrap();
        fs::write(modules.join(".store/a@1/node_modules/a/x.js"), "x").unwrap();
        symlink(".store/a@1/node_modules/a", modules.join("a")).unwrap();
        symlink(outside.path(), modules.join("absolute")).unwrap();
        symlink("../../..", modules.join("up")).unwrap();
        symlink("/proc/self/root", modules.join("magic")).unwrap();
        symlink("loop", modules.join("loop")).unwrap();
        let mut tree = Tree::open(&modules).unwrap();
        let found = tree.read("a/x.js").unwrap().unwrap();
        assert_eq!(
            (found.path.as_str(), found.text.as_str()),
            (".store/a@1/node_modules/a/x.js", "x")
        );
        for path in ["absolute/secret.js", "up/etc/passwd", "magic/etc/passwd", "loop/x", "../x.js"]
        {
            assert!(matches!(tree.read(path), Err(Error::OutsideDirectory(_))), "{path}");
        }
        assert_eq!(tree.read("a").unwrap(), None);
        assert_eq!(tree.find("b/x.js").unwrap(), None);
        assert!(matches!(Tree::open(&root.path().join("none")), Err(Error::Open(..))));
    }

    #[test]
    fn what_is_read_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        fs::File::create(root.path().join("large.js")).unwrap().set_len(MAX_BYTES).unwrap();
        fs::write(root.path().join("small.js"), "1").unwrap();
        let mut tree = Tree::open(root.path()).unwrap();
        assert!(tree.read("large.js").unwrap().is_some());
        assert!(matches!(tree.read("small.js"), Err(Error::TooLarge(_))));
        let mut tree = Tree::open(root.path()).unwrap();
        for _ in 0..MAX_FILES {
            tree.read("small.js").unwrap().unwrap();
        }
        assert!(matches!(tree.read("small.js"), Err(Error::TooManyFiles(_))));
    }
}
