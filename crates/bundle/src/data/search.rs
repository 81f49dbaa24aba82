//! Finds a directory by a trusted path, component by component, and follows no link of another
//! user on the way: a user who may put a link somewhere could otherwise lead this process, which may
//! be root's, to any directory.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The maximal number of links on the way, as in the kernel.
const MAX_LINKS: usize = 40;

/// What a path leads to.
#[derive(Debug)]
pub(super) enum Entry {
    /// A directory, opened for reading.
    Directory(OwnedFd),
    /// Nothing yet.
    Missing {
        /// The last directory on the way that exists.
        parent: OwnedFd,
        /// The directories below it that do not exist; there is at least one.
        names: Vec<OsString>,
    },
}

/// Why a path leads nowhere.
#[derive(Debug)]
pub(super) enum Error {
    /// A link on the way belongs to a user who is neither root nor the caller.
    ForeignLink { link: PathBuf, owner: u32 },
    /// The error of the kernel.
    Io(io::Error),
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Searches a path.
pub(super) fn find(path: &Path) -> Result<Entry, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(directory) => Ok(Entry::Directory(directory)),
        Err(Errno::LOOP | Errno::NOENT) => Search::from(path)?.run(),
        Err(errno) => Err(errno.into()),
    }
}

/// A search that has arrived at a directory.
struct Search {
    directory: OwnedFd,
    /// The path of the directory, for messages.
    path: PathBuf,
    /// The components to follow; the next one is the last.
    remaining: Vec<OsString>,
    links: usize,
}

impl Search {
    fn from(path: &Path) -> Result<Self, Error> {
        let start = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
        let mut search =
            Self { directory: open(start)?, path: start.into(), remaining: Vec::new(), links: 0 };
        search.push(path);
        Ok(search)
    }

    /// Makes the components of a path the next ones.
    fn push(&mut self, path: &Path) {
        let names = path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
        self.remaining.extend(names);
    }

    fn run(mut self) -> Result<Entry, Error> {
        while let Some(name) = self.remaining.pop() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&self.directory, &name, flags, Mode::empty()) {
                Ok(file) => self.enter(&name, file)?,
                Err(Errno::NOENT) if self.is_plain(&name) => {
                    self.remaining.push(name);
                    self.remaining.reverse();
                    return Ok(Entry::Missing { parent: self.directory, names: self.remaining });
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Entry::Directory(openat(&self.directory, ".", flags, Mode::empty())?))
    }

    /// Whether the next components are names: nothing is created on a way that leads back.
    fn is_plain(&self, name: &OsStr) -> bool {
        name != ".." && self.remaining.iter().all(|name| name != "..")
    }

    fn enter(&mut self, name: &OsStr, file: OwnedFd) -> Result<(), Error> {
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.path.push(name);
                self.directory = file;
                Ok(())
            }
            FileType::Symlink => self.follow(name, &file, stat.st_uid),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn follow(&mut self, name: &OsStr, link: &OwnedFd, owner: u32) -> Result<(), Error> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Err(Error::ForeignLink { link: self.path.join(name), owner });
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            self.directory = open(Path::new("/"))?;
            self.path = "/".into();
        }
        self.push(target);
        Ok(())
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Creates directories below a directory, each in the one before, and opens the last one. None of
/// them may exist: a process that creates one at the same time may have made something else.
pub(super) fn create(parent: OwnedFd, names: &[OsString]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = parent;
    for name in names {
        rustix::fs::mkdirat(&directory, name, Mode::RWXU)?;
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(directory)
}
