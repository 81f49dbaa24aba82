//! The directory through which clients find the server of a data directory; both the server and its
//! clients use this module. Only its owner can enter it. It contains the lock of the running server,
//! the socket, the build of the server and a log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use stockade_core::{Code, Problem};
use tokio::net::UnixListener;

/// The file that contains the build of the listening server, and its process number.
const BUILD: &str = "build";

/// The directory `server` of a data directory.
#[derive(Debug)]
pub struct ServerDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl ServerDirectory {
    /// Opens the server directory of a data directory; creates both if they do not exist.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be created, or is accessible to other users.
    pub fn open(data: &Path) -> Result<Self, Problem> {
        let path = data.join("server");
        let mut maker = fs::DirBuilder::new();
        let created = maker.recursive(true).mode(0o700).create(&path);
        created
            .and_then(|()| path.metadata())
            .map_err(|error| unusable(&path, &error))
            .and_then(|found| Self::open_checked(path.clone(), &found))
    }

    /// Finds the server directory of a data directory; `None` if there never was a server.
    ///
    /// # Errors
    /// [`Code::Io`] when it is accessible to other users.
    pub fn find(data: &Path) -> Result<Option<Self>, Problem> {
        let path = data.join("server");
        match path.metadata() {
            Ok(found) => Self::open_checked(path, &found).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(&path, &error)),
        }
    }

    fn open_checked(path: PathBuf, found: &fs::Metadata) -> Result<Self, Problem> {
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            let message =
                format!("{} belongs to another user, or other users can enter it", path.display());
            return Err(Problem::new(Code::Io, message)
                .remedied_by("export STOCKADE_DATA_DIR=/a/directory/of/your/own"));
        }
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty());
        let directory = directory.map_err(|error| unusable(&path, &error.into()))?;
        Ok(Self { directory, path })
    }

    /// Takes the lock of the running server; `None` while another process holds it.
    ///
    /// # Errors
    /// [`Code::Io`] when the file cannot be created or locked.
    pub fn lock(&self) -> Result<Option<File>, Problem> {
        let mut options = OpenOptions::new();
        let lock = options.create(true).write(true).truncate(false).mode(0o600);
        let lock =
            lock.open(self.path.join("lock")).map_err(|error| Problem::caused(Code::Io, &error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Problem::caused(Code::Io, &error)),
        }
    }

    /// Listens on the socket, and records this server's build. Only for the process that holds the
    /// lock.
    ///
    /// # Errors
    /// [`Code::Io`] when the socket cannot be created.
    pub fn listen(&self, build: &str) -> Result<UnixListener, Problem> {
        self.remove_socket();
        let text = format!("{build} {}", std::process::id());
        fs::write(self.path.join(BUILD), text)
            .map_err(|error| Problem::caused(Code::Io, &error))?;
        UnixListener::bind(self.socket()).map_err(|error| Problem::caused(Code::Io, &error))
    }

    /// Checks that the listening server is of this build.
    ///
    /// # Errors
    /// [`Code::Unsupported`] when it is of another build.
    pub fn check_build(&self, build: &str) -> Result<(), Problem> {
        let found = fs::read_to_string(self.path.join(BUILD)).unwrap_or_default();
        let (other, process) = found.split_once(' ').unwrap_or(("an unknown one", "PID"));
        if other == build {
            return Ok(());
        }
        let message = "the server of this data directory is of another build";
        Err(Problem::new(Code::Unsupported, message)
            .because(format!("it is {other}, and this program {build}"))
            .remedied_by(format!("kill {process}")))
    }

    /// Removes the socket, so that no more clients connect.
    pub fn remove_socket(&self) {
        // It is not an error if the socket does not exist.
        let _ = fs::remove_file(self.path.join("socket"));
    }

    /// Whether the directory was removed, so that no client can find this server any more.
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|found| found.st_nlink == 0)
    }

    /// The path of the socket in a form that fits into a socket address, however deep the data
    /// directory is. It is valid as long as this value lives.
    pub fn socket(&self) -> PathBuf {
        format!("/proc/self/fd/{}/socket", self.directory.as_raw_fd()).into()
    }

    /// Opens the log for appending.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join("log"))
    }
}

fn unusable(path: &Path, error: &io::Error) -> Problem {
    let problem = Problem::caused(Code::Io, error);
    Problem { message: format!("cannot use {}: {error}", path.display()), ..problem }
}
