//! The data directory, which stores everything between runs. It is private to its owner.
//!
//! Every command and process opens it with [`DataDir`], before anything else in it: the owner and
//! the mode are checked on a descriptor, nothing is created before, and what is below is opened
//! relative to that descriptor without following links. Otherwise the owner of a directory could
//! lead root, who uses it by mistake, to any file.

mod search;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use self::search::Entry;
use crate::beneath::{self, Dir, Stat};
use crate::path::RelativePath;

/// The directory of the copies of the host's system directories.
pub const BASES: &str = "bases";

/// How often a directory is searched that other processes create at the same time.
const MAX_ATTEMPTS: u32 = 8;
/// The permission bits with which others can change a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// An open data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    dir: Dir,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be found or created.
    #[error("cannot open or create the data directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It would be created by root in a directory of another user, who could not use it then.
    #[error(
        "the data directory {} would be created in a directory of user {owner}, not of yours",
        path.display()
    )]
    ForeignParent {
        /// The directory.
        path: PathBuf,
        /// The owner of the directory above it.
        owner: u32,
    },
    /// A link of another user leads to it.
    #[error(
        "the data directory {} is reached through the link {} of user {owner}, not of yours",
        path.display(),
        link.display()
    )]
    ForeignLink {
        /// The directory.
        path: PathBuf,
        /// The link.
        link: PathBuf,
        /// The owner of the link.
        owner: u32,
    },
    /// It, or a directory in it, belongs to another user, who could change its content.
    #[error("the data directory {} belongs to user {owner}, not to you", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Other users may write to it, or to a directory in it.
    #[error("the data directory {} can be written by others (mode {mode:o})", path.display())]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It could not be read, or a directory in it could not be created.
    #[error("cannot use the data directory {}", path.display())]
    Use {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: beneath::Error,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Foreign { .. } | Self::ForeignParent { .. } => {
                Some("export STOCKADE_DATA_DIR=/a/directory/of/your/own".into())
            }
            Self::ForeignLink { path, .. } => {
                let real = path.canonicalize().ok()?;
                Some(format!("export STOCKADE_DATA_DIR={}", real.display()))
            }
            Self::Writable { path, .. } => Some(format!("chmod go-w {}", path.display())),
            Self::Create { .. } | Self::Use { .. } => None,
        }
    }
}

impl DataDir {
    /// Opens the data directory. Creates it with mode 0700 if it does not exist. Refuses a
    /// directory that belongs to another user or that others may write to.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut attempts = 0;
        loop {
            let (parent, names) = match search(path)? {
                Entry::Directory(directory) => return Self::checked(path, directory),
                Entry::Missing { parent, names } => (parent, names),
            };
            attempts += 1;
            match create(path, parent, &names) {
                Err(Error::Create { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists
                        && attempts < MAX_ATTEMPTS => {}
                created => return Self::checked(path, created?),
            }
        }
    }

    /// Opens the data directory if it exists, with the same checks.
    pub fn find(path: &Path) -> Result<Option<Self>, Error> {
        match search(path)? {
            Entry::Directory(directory) => Self::checked(path, directory).map(Some),
            Entry::Missing { .. } => Ok(None),
        }
    }

    fn checked(path: &Path, directory: OwnedFd) -> Result<Self, Error> {
        let dir = Dir::from_fd(directory);
        check(path, &dir)?;
        Ok(Self { path: path.to_owned(), dir })
    }

    /// The path of the data directory, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the open directory as the kernel reports it: absolute and without links.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn real_path(&self) -> std::io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.dir.as_fd().as_raw_fd()))
    }

    /// Whether a path leads to the open directory, without a link. For programs that can only use
    /// paths: somebody who owns a directory above this one may have exchanged it.
    pub fn is_at(&self, path: &Path) -> bool {
        let stats = Dir::open_recorded(path).and_then(|dir| dir.stat_self());
        let same =
            |one: &Stat, other: &Stat| (one.device, one.inode) == (other.device, other.inode);
        matches!((stats, self.dir.stat_self()), (Ok(one), Ok(other)) if same(&one, &other))
    }

    /// A path of an entry that starts at the open directory, wherever the directory is by now. It
    /// is valid in this process, as long as this value lives.
    pub fn entry(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.dir.as_fd().as_raw_fd()).into()
    }

    /// The directory of the copies of the host's `/etc`.
    pub fn etc(&self) -> Result<Dir, Error> {
        self.subdirectory("etc")
    }

    /// The directory of the views.
    pub fn views(&self) -> Result<Dir, Error> {
        let views = self.subdirectory("views")?;
        views.spread_subdirectories();
        Ok(views)
    }

    /// The directory of the bundles.
    pub fn bundles(&self) -> Result<Dir, Error> {
        self.subdirectory("bundles")
    }

    /// The directory of the journals of apply operations.
    pub fn journals(&self) -> Result<Dir, Error> {
        self.subdirectory("journals")
    }

    /// The directory that records what persistent sandboxes have offered in their bundles.
    pub fn histories(&self) -> Result<Dir, Error> {
        self.subdirectory("histories")
    }

    /// The directory that records which bundle of each project was shown last.
    pub fn shown(&self) -> Result<Dir, Error> {
        self.subdirectory("shown")
    }

    /// The directory of what apply operations have displaced.
    pub fn undo(&self) -> Result<Dir, Error> {
        self.subdirectory("undo")
    }

    /// The directory of the history of decisions.
    pub fn decisions(&self) -> Result<Dir, beneath::Error> {
        self.subdirectory("decisions").map_err(|error| match error {
            Error::Use { source, .. } => source,
            error => beneath::Error::Io {
                operation: "open directory",
                path: "decisions".to_owned(),
                source: std::io::Error::other(error),
            },
        })
    }

    /// The directory of the persistent sandboxes.
    pub fn runtime(&self) -> Result<Dir, Error> {
        self.subdirectory("runtime")
    }

    /// The directory of the persistent sandboxes that the program bubblewrap holds.
    pub fn runtime_bwrap(&self) -> Result<Dir, Error> {
        self.subdirectory("runtime-bwrap")
    }

    /// The directory of the persistent sandboxes that are containers of a Docker Engine.
    pub fn runtime_docker(&self) -> Result<Dir, Error> {
        self.subdirectory("runtime-docker")
    }

    /// The directory of images that are being downloaded.
    pub fn downloads(&self) -> Result<Dir, Error> {
        self.subdirectory("downloads")
    }

    /// The directory of unpacked images.
    pub fn images(&self) -> Result<Dir, Error> {
        self.subdirectory("images")
    }

    /// The directory of the volumes of all owners.
    pub fn volumes(&self) -> Result<Dir, Error> {
        self.subdirectory("volumes")
    }

    /// The directory of the copies of the host's system directories.
    pub fn bases(&self) -> Result<Dir, Error> {
        self.subdirectory(BASES)
    }

    /// The directory of synchronizations: what both sides last had in common, and what is being
    /// copied.
    pub fn sync(&self) -> Result<Dir, Error> {
        self.subdirectory("sync")
    }

    /// The directory of the workspaces of all owners.
    pub fn workspaces(&self) -> Result<Dir, Error> {
        self.subdirectory("workspaces")
    }

    /// The directory of the files of projects as steps of workflow runs found them.
    pub fn run_files(&self) -> Result<Dir, Error> {
        self.subdirectory("run-files")
    }

    /// The directory of the records of trusted project files.
    pub fn trust(&self) -> Result<Dir, Error> {
        self.subdirectory("trust")
    }

    fn subdirectory(&self, name: &'static str) -> Result<Dir, Error> {
        let path = RelativePath::literal(name);
        let failed = |source| Error::Use { path: self.path.clone(), source };
        let dir = match self.dir.open_dir(&path) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                match self.dir.mkdir(&path, 0o700) {
                    Err(error) if error.errno() != Some(Errno::EXIST) => Err(error),
                    _ => self.dir.open_dir(&path),
                }
            }
            other => other,
        }
        .map_err(failed)?;
        check(&self.path.join(name), &dir)?;
        Ok(dir)
    }
}

impl AsFd for DataDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Searches the data directory.
fn search(path: &Path) -> Result<Entry, Error> {
    search::find(path).map_err(|error| match error {
        search::Error::ForeignLink { link, owner } => {
            Error::ForeignLink { path: path.to_owned(), link, owner }
        }
        search::Error::Io(source) => Error::Create { path: path.to_owned(), source },
    })
}

/// Creates the missing directories.
fn create(path: &Path, parent: OwnedFd, names: &[OsString]) -> Result<OwnedFd, Error> {
    let failed = |errno: Errno| Error::Create { path: path.to_owned(), source: errno.into() };
    // Only root may create anything in a directory of another user.
    let owner = Stat::of(&parent).map_err(failed)?.uid;
    if owner != 0 && rustix::process::geteuid().is_root() {
        return Err(Error::ForeignParent { path: path.to_owned(), owner });
    }
    search::create(parent, names).map_err(failed)
}

/// Refuses a directory that another user owns or can change.
fn check(path: &Path, dir: &Dir) -> Result<(), Error> {
    let stat = dir.stat_self().map_err(|source| Error::Use { path: path.to_owned(), source })?;
    if stat.uid != rustix::process::geteuid().as_raw() {
        return Err(Error::Foreign { path: path.to_owned(), owner: stat.uid });
    }
    if stat.mode & WRITABLE_BY_OTHERS != 0 {
        return Err(Error::Writable { path: path.to_owned(), mode: stat.mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
