//! The directory through which clients find the server of a data directory; both the server and its
//! clients use this module. Only its owner can enter it. It contains the lock of the running server,
//! the socket, the build of the server and a log. Each is opened relative to the open directory, and
//! none through a symbolic link.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use stockade_core::{Code, Problem};
use tokio::net::UnixListener;

const NAME: &str = "server";
const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const LOG: &str = "log";
/// The file that contains the build of the listening server, and its process number.
const BUILD: &str = "build";
/// The file that contains the URL under which browsers reach the listening server, if there is one.
const ADDRESS: &str = "address";
/// The longest URL that is read.
const ADDRESS_BYTES: u64 = 1024;

/// The directory `server` of a data directory.
#[derive(Debug)]
pub struct ServerDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl ServerDirectory {
    /// Opens the server directory of a data directory, which is open already and has this path.
    /// Creates it if it does not exist.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be created, or is accessible to other users.
    pub fn open(data: BorrowedFd<'_>, data_path: &Path) -> Result<Self, Problem> {
        let path = data_path.join(NAME);
        match rustix::fs::mkdirat(data, NAME, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(unusable(&path, errno)),
        }
        let directory = open_directory(data).map_err(|errno| unusable(&path, errno))?;
        Self::checked(path, directory)
    }

    /// Finds the server directory of a data directory, which is open already and has this path;
    /// `None` if there never was a server.
    ///
    /// # Errors
    /// [`Code::Io`] when it is accessible to other users.
    pub fn find(data: BorrowedFd<'_>, data_path: &Path) -> Result<Option<Self>, Problem> {
        let path = data_path.join(NAME);
        match open_directory(data) {
            Ok(directory) => Self::checked(path, directory).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(unusable(&path, errno)),
        }
    }

    fn checked(path: PathBuf, directory: OwnedFd) -> Result<Self, Problem> {
        let stat = rustix::fs::fstat(&directory).map_err(|errno| unusable(&path, errno))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            let message =
                format!("{} belongs to another user, or other users can enter it", path.display());
            return Err(Problem::new(Code::Io, message)
                .remedied_by("export STOCKADE_DATA_DIR=/a/directory/of/your/own"));
        }
        // A client connects to the socket by its path, which the kernel would resolve.
        match rustix::fs::statat(&directory, SOCKET, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
                let socket = path.join(SOCKET);
                Err(Problem::new(Code::Io, format!("{} is no socket", socket.display()))
                    .remedied_by(format!("rm {}", socket.display())))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(Self { path, directory }),
            Err(errno) => Err(unusable(&path, errno)),
        }
    }

    /// Takes the lock of the running server; `None` while another process holds it.
    ///
    /// # Errors
    /// [`Code::Io`] when the file cannot be created or locked.
    pub fn lock(&self) -> Result<Option<File>, Problem> {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let lock = self.file(LOCK, flags).map_err(|error| self.problem(LOCK, &error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(lock)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.problem(LOCK, &errno.into())),
        }
    }

    /// Listens on the socket, and records this server's build. Only for the process that holds the
    /// lock.
    ///
    /// # Errors
    /// [`Code::Io`] when the socket cannot be created.
    pub fn listen(&self, build: &str) -> Result<UnixListener, Problem> {
        self.remove_socket();
        self.write_build(build).map_err(|error| self.problem(BUILD, &error))?;
        UnixListener::bind(self.socket()).map_err(|error| self.problem(SOCKET, &error))
    }

    fn write_build(&self, build: &str) -> io::Result<()> {
        let mut file = self.file(BUILD, OFlags::WRONLY | OFlags::CREATE)?;
        file.set_len(0)?;
        write!(file, "{build} {}", std::process::id())
    }

    /// Records the URL under which browsers reach this server; empty if it does not listen over TCP.
    /// Only for the process that holds the lock.
    ///
    /// # Errors
    /// [`Code::Io`] when the file cannot be written.
    pub fn write_address(&self, url: &str) -> Result<(), Problem> {
        let written = self.file(ADDRESS, OFlags::WRONLY | OFlags::CREATE).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(url.as_bytes())
        });
        written.map_err(|error| self.problem(ADDRESS, &error))
    }

    /// The URL under which browsers reach the server, if it runs and listens over TCP.
    pub fn read_address(&self) -> Option<String> {
        std::os::unix::net::UnixStream::connect(self.socket()).ok()?;
        let file = self.file(ADDRESS, OFlags::RDONLY).ok()?;
        let mut url = String::new();
        file.take(ADDRESS_BYTES).read_to_string(&mut url).ok()?;
        (!url.is_empty()).then_some(url)
    }

    /// Checks that the listening server is of this build.
    ///
    /// # Errors
    /// [`Code::Unsupported`] when it is of another build.
    pub fn check_build(&self, build: &str) -> Result<(), Problem> {
        let mut found = String::new();
        let read =
            self.file(BUILD, OFlags::RDONLY).and_then(|mut file| file.read_to_string(&mut found));
        if read.is_err() {
            found.clear();
        }
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
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
    }

    /// Whether the directory was removed, so that no client can find this server any more.
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|found| found.st_nlink == 0)
    }

    /// The path of the socket in a form that fits into a socket address, however deep the data
    /// directory is. It is valid as long as this value lives.
    pub fn socket(&self) -> PathBuf {
        format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd()).into()
    }

    /// Opens the log for appending.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn log(&self) -> io::Result<File> {
        self.file(LOG, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)
    }

    /// Opens a regular file in the directory.
    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, name, flags | safe, mode)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    fn problem(&self, name: &str, error: &io::Error) -> Problem {
        let problem = Problem::caused(Code::Io, error);
        let path = self.path.join(name);
        Problem { message: format!("cannot use {}: {error}", path.display()), ..problem }
    }
}

/// Opens the server directory, which is a directory and no link.
fn open_directory(data: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(data, NAME, flags, Mode::empty(), resolve)
}

fn unusable(path: &Path, errno: Errno) -> Problem {
    let error = io::Error::from(errno);
    let problem = Problem::caused(Code::Io, &error);
    Problem { message: format!("cannot use {}: {error}", path.display()), ..problem }
}
