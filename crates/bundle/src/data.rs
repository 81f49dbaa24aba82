//! The data directory, which stores views, bundles and journals between runs. It is private to
//! its owner.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::beneath::{self, Dir};
use crate::path::RelativePath;

/// An open data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    dir: Dir,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be created.
    #[error("cannot create the data directory {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It belongs to another user, who could change its content.
    #[error("the data directory {} belongs to user {owner}, not to you", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Other users may write to it.
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
            Self::Foreign { .. } => Some("set STOCKADE_DATA_DIR to a directory of your own".into()),
            Self::Writable { path, .. } => Some(format!("chmod 700 {}", path.display())),
            Self::Create { .. } | Self::Use { .. } => None,
        }
    }
}

impl DataDir {
    /// Opens the data directory. Creates it with mode 0700 if it does not exist. Refuses a
    /// directory that belongs to another user or that others may write to.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Use { path: path.to_owned(), source };
        let dir = match Dir::open(path) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(path)
                    .map_err(|source| Error::Create { path: path.to_owned(), source })?;
                Dir::open(path)
            }
            other => other,
        }
        .map_err(failed)?;
        let stat = dir.stat_self().map_err(failed)?;
        if stat.uid != rustix::process::geteuid().as_raw() {
            return Err(Error::Foreign { path: path.to_owned(), owner: stat.uid });
        }
        if stat.mode & 0o022 != 0 {
            return Err(Error::Writable { path: path.to_owned(), mode: stat.mode });
        }
        Ok(Self { path: path.to_owned(), dir })
    }

    /// The path of the data directory.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// The directory of the persistent sandboxes.
    pub fn runtime(&self) -> Result<Dir, Error> {
        self.subdirectory("runtime")
    }

    fn subdirectory(&self, name: &'static str) -> Result<Dir, Error> {
        let name = RelativePath::literal(name);
        let failed = |source| Error::Use { path: self.path.clone(), source };
        match self.dir.open_dir(&name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                match self.dir.mkdir(&name, 0o700) {
                    Err(error) if error.errno() != Some(Errno::EXIST) => Err(failed(error)),
                    _ => self.dir.open_dir(&name).map_err(failed),
                }
            }
            other => other.map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::chmod;

    #[test]
    fn it_is_made_private_and_refused_when_it_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a/b");
        let data = DataDir::open(&path).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        data.views().unwrap();
        data.views().unwrap();
        assert_eq!((mode(&path), mode(&path.join("views"))), (0o700, 0o700));

        chmod(&path, 0o770);
        assert!(matches!(DataDir::open(&path), Err(Error::Writable { mode: 0o770, .. })));
        chmod(&path, 0o700);
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
            path.as_path()
        } else {
            Path::new("/")
        };
        assert!(matches!(DataDir::open(foreign), Err(Error::Foreign { .. })));
    }
}
