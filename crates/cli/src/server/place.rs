//! Where the server of a data directory is found: a directory that only its owner can enter, with
//! a lock that the living server holds, the socket, and a log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use stockade_core::{Code, Problem};
use tokio::net::UnixListener;

use crate::problem::caused;

/// A data directory's `server`.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    directory: OwnedFd,
}

impl Place {
    /// The place below a data directory; both are made where they are missing.
    pub(crate) fn open(data: &Path) -> Result<Self, Problem> {
        let path = data.join("server");
        let mut maker = fs::DirBuilder::new();
        let made = maker.recursive(true).mode(0o700).create(&path);
        made.and_then(|()| path.metadata())
            .map_err(|error| unusable(&path, &error))
            .and_then(|found| Self::checked(path.clone(), &found))
    }

    /// The place below a data directory, if there was ever a server.
    pub(crate) fn find(data: &Path) -> Result<Option<Self>, Problem> {
        let path = data.join("server");
        match path.metadata() {
            Ok(found) => Self::checked(path, &found).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    fn checked(path: PathBuf, found: &fs::Metadata) -> Result<Self, Problem> {
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            let message =
                format!("{} belongs to somebody else, or others can enter it", path.display());
            return Err(Problem::new(Code::Io, message)
                .remedied_by("export STOCKADE_DATA_DIR=/a/directory/of/your/own"));
        }
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty());
        let directory = directory.map_err(|error| unusable(&path, &error.into()))?;
        Ok(Self { directory, path })
    }

    /// The lock of the living server; `None` while another process has it.
    pub(crate) fn lock(&self) -> Result<Option<File>, Problem> {
        let mut options = OpenOptions::new();
        let lock = options.create(true).write(true).truncate(false).mode(0o600);
        let lock = lock.open(self.path.join("lock")).map_err(|error| caused(Code::Io, &error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(caused(Code::Io, &error)),
        }
    }

    /// Takes connections. Only for whoever holds the lock.
    pub(crate) fn listen(&self) -> Result<UnixListener, Problem> {
        self.leave();
        UnixListener::bind(self.socket()).map_err(|error| caused(Code::Io, &error))
    }

    /// Takes the socket away.
    pub(crate) fn leave(&self) {
        // One that is not there is not in the way.
        let _ = fs::remove_file(self.path.join("socket"));
    }

    /// Whether somebody has removed the directory, so that no client finds this server again.
    pub(crate) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|found| found.st_nlink == 0)
    }

    /// The socket, by a path that fits into an address however deep the data directory is. Good for
    /// as long as this value lives.
    pub(crate) fn socket(&self) -> PathBuf {
        format!("/proc/self/fd/{}/socket", self.directory.as_raw_fd()).into()
    }

    /// What a server writes that nobody waits for.
    pub(crate) fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join("log"))
    }
}

fn unusable(path: &Path, error: &io::Error) -> Problem {
    let problem = caused(Code::Io, error);
    Problem { message: format!("cannot use {}: {error}", path.display()), ..problem }
}
