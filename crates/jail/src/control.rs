//! The protocol to the init of a persistent jail: requests to it and reports from it, each one
//! message on a socket on which init listens.
//!
//! A process inside may have taken over init. Messages from init are bounded in size and parsed
//! defensively: an invalid message is an error, never a guess, and nothing in it is trusted beyond
//! its own jail.

pub(crate) mod wire;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::channel::{Channel, MESSAGE_BYTES};
use crate::refused_calls::RefusedCalls;
use crate::spec::WindowSize;
use crate::walls::Wall;

/// The longest request, in bytes: more than the kernel accepts for a command's arguments and
/// environment. A long request is sent as a file in memory.
pub const REQUEST_BYTES: usize = 8 << 20;
/// The longest key of a command, in bytes.
pub const KEY_BYTES: usize = 64;
/// How many commands one init serves at the same time, including commands that ended and were not
/// forgotten.
pub const COMMANDS: usize = 1024;

/// The abstract name of the socket on which init listens inside, where the jail has several users: a process whose
/// user may become root sends [`Request::Execute`] with its own standard input, output and error, and receives the
/// reports about that command. The command ends when the connection does.
pub const INSIDE: &str = "stockade-root";

/// The message whose request is in its last file descriptor.
const IN_FILE: &[u8] = b"M";

/// A connection to an init. Init serves one connection at a time: the newest.
#[derive(Debug)]
pub struct Control(Channel);

/// A request to init. `number` is the caller's name for a command; it is never reused in the life
/// of the jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Start a command. With pipes, the request carries six file descriptors: the command's
    /// standard input, output and error, then the other ends of the same pipes, which init keeps
    /// for later clients. With a terminal it carries none.
    Execute(Box<Execute>),
    /// Send a signal to the command's process group.
    Signal {
        /// The command's number.
        number: u64,
        /// The signal.
        signal: i32,
    },
    /// Kill the command and everything that it has started.
    Kill {
        /// The command's number.
        number: u64,
    },
    /// Close the outer end of the command's standard input.
    CloseInput {
        /// The command's number.
        number: u64,
    },
    /// Forget a command that has ended, and close its streams.
    Forget {
        /// The command's number.
        number: u64,
    },
    /// Connect to a listening socket inside as this user.
    Connect {
        /// The caller's name for the connection.
        number: u64,
        /// The address.
        target: Target,
        /// The user id.
        user: u32,
        /// The group id.
        group: u32,
    },
    /// Set the time until the jail ends, unless the lease is renewed.
    Lease(Duration),
    /// Every process is stopped: by a control group, or by init on this request (`SIGSTOP`) where
    /// no group can. Subreapers that wait for a command exit. Commands that are killed meanwhile or
    /// time out are ended all the same, and no other process resumes for that.
    Stop {
        /// Whether init must stop them.
        by_signal: bool,
    },
    /// Where init follows renames ([`crate::PersistentJail::follows_renames`]): finish those that are under way,
    /// report that ([`Report::RenamesFinished`]), and begin none before [`Request::Continue`]. A thread
    /// whose rename is under way cannot be stopped.
    FinishRenames,
    /// Every process resumes. Init resumes those that it has stopped (`SIGCONT`).
    Continue,
    /// Send the root directory.
    Root,
    /// Send the network listeners ([`crate::network::Listeners`]), for a client other than the one
    /// that received them at launch.
    Listeners,
    /// Report every command: one [`Report::Record`] each, then [`Report::Listed`].
    List,
    /// Start later commands with these limits.
    Limits(CommandLimits),
    /// Kill everything and exit.
    End,
}

/// The limits with which init starts commands. Running commands keep those that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLimits {
    /// Processes and threads of each user
    /// ([`ResourceLimits::processes`](crate::rlimits::ResourceLimits::processes)).
    pub processes: u64,
    /// On how many processors a command starts; `None` is all.
    pub processors: Option<u32>,
}

/// How many supplementary groups a command may have.
pub const GROUPS: usize = 64;

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// The caller's number for it.
    pub number: u64,
    /// The caller's key for it, which init returns in [`Report::Record`]. A key that init knows is
    /// not started again: init answers with the record.
    pub key: Vec<u8>,
    /// The program and its arguments, found as `execvp(3)` does. No NUL byte.
    pub arguments: Vec<Vec<u8>>,
    /// The complete environment, as `NAME=value`. No NUL byte.
    pub environment: Vec<Vec<u8>>,
    /// The directory inside in which it starts. No NUL byte.
    pub working_directory: Vec<u8>,
    /// The user id inside.
    pub user: u32,
    /// The group id inside.
    pub group: u32,
    /// The ids of its supplementary groups, at most [`GROUPS`].
    pub groups: Vec<u32>,
    /// Whether processes of its user may ask init from now on to start commands as any other user
    /// ([`INSIDE`]), where the jail has several.
    pub may_become_root: bool,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<WindowSize>,
    /// The maximal running time.
    pub timeout: Option<Duration>,
}

/// A listening socket inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A TCP port of the jail's loopback.
    Tcp(u16),
    /// A stream socket at a path.
    Unix(Vec<u8>),
}

/// A report of init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The command has a process, which executes the program next. Carries the terminal's outer
    /// end, where there is one.
    Started {
        /// The command's number.
        number: u64,
    },
    /// The command was not started, because the program could not be run or a wall could not be
    /// enabled for it. The only further reports about it are its record and that its process no
    /// longer exists.
    NotStarted {
        /// The command's number.
        number: u64,
        /// The wall, where one failed.
        wall: Option<Wall>,
        /// The step, as text.
        step: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// The command has ended. With a cause, everything that it had started has ended too.
    Exited {
        /// The command's number.
        number: u64,
        /// The status as `wait(2)` gives it.
        status: i32,
        /// Why init ended it, where it did.
        cause: Option<Cause>,
    },
    /// The command has ended by itself, and nothing that it started is alive: one report for both.
    Finished {
        /// The command's number.
        number: u64,
        /// The status as `wait(2)` gives it.
        status: i32,
    },
    /// Nothing that the command started is alive any more.
    Gone {
        /// The command's number.
        number: u64,
    },
    /// The requested connection, which this carries. It does not block, and may still be
    /// connecting.
    Connected {
        /// The connection's number.
        number: u64,
    },
    /// The requested connection cannot be made.
    Refused {
        /// The connection's number.
        number: u64,
        /// The kernel's error number.
        errno: i32,
    },
    /// The root directory, which this carries as an `O_PATH` descriptor.
    Root,
    /// The network listeners, which this carries in the order of their fields. None where the jail
    /// has none or init has too few free file descriptors.
    Listeners,
    /// A command that init knows. Carries the outer ends of its streams that init still keeps: with
    /// pipes the input (unless closed), output and error; otherwise the terminal.
    Record(Record),
    /// All records were sent.
    Listed,
    /// The system calls that the filter has refused while the command ran, where init hears of them. It
    /// comes before the report of its end, or after its record, unless there are none.
    RefusedCalls {
        /// The command's number.
        number: u64,
        /// The calls.
        calls: RefusedCalls,
    },
    /// No rename is under way, and none begins.
    RenamesFinished,
    /// Init must end a process that a control group has stopped. Init has also stopped every
    /// process by a signal, so that the control group may be thawed: only the processes to be ended
    /// will run.
    Thaw,
}

/// Why init ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It timed out.
    TimedOut,
    /// A client requested it.
    Killed,
    /// Its subreaper was killed from inside, so its end was not observed.
    SubreaperLost,
}

/// The state of a command as init knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub number: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Whether init keeps the outer end of its input.
    pub input: bool,
    /// Its state.
    pub progress: Progress,
}

/// The state of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is starting or running.
    Running,
    /// It could not be started.
    NotStarted {
        /// The kernel's error number.
        errno: i32,
    },
    /// It has ended.
    Exited {
        /// The status as `wait(2)` gives it.
        status: i32,
        /// Why init ended it, where it did.
        cause: Option<Cause>,
    },
}

impl Control {
    /// Connects to the init that listens on the socket `name` in a directory of the host. The
    /// connection does not block.
    ///
    /// # Errors
    /// `ConnectionRefused` or `NotFound` when no init listens there, else the error of
    /// `connect(2)`.
    pub fn connect(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        Channel::connect(directory, name).map(Self)
    }

    /// Sends a request with its file descriptors.
    ///
    /// # Errors
    /// `InvalidInput` for a request that is too long; `WouldBlock` while init does not receive;
    /// `BrokenPipe` when init no longer exists.
    pub fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = request.encode().filter(|bytes| bytes.len() <= REQUEST_BYTES);
        let mut bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let sent = self.send_bytes(&bytes, descriptors);
        // Arguments of a command may contain secrets, and a fork copies what remains in memory.
        bytes.fill(0);
        std::hint::black_box(&bytes);
        sent
    }

    fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() <= MESSAGE_BYTES {
            return self.0.send(bytes, descriptors);
        }
        let file = File::from(memfd_create(c"request", MemfdFlags::CLOEXEC)?);
        file.write_all_at(bytes, 0)?;
        let with_file: Vec<_> = descriptors.iter().copied().chain([file.as_fd()]).collect();
        self.0.send(IN_FILE, &with_file)
    }

    /// The next report and the file descriptors that it carries; `None` once init no longer exists.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` for an invalid message: no further message of
    /// the jail can be trusted then, and the jail should be ended.
    pub fn receive(&self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        let Some((bytes, descriptors)) = self.0.receive()? else { return Ok(None) };
        let report = Report::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((report, descriptors)))
    }
}

impl Request {
    /// The request in a message and its file descriptors; `None` for anything else.
    pub(crate) fn receive(bytes: &[u8], descriptors: &mut Vec<OwnedFd>) -> Option<Self> {
        if bytes != IN_FILE {
            return Self::decode(bytes);
        }
        let file = File::from(descriptors.pop()?);
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        let mut bytes = vec![0; Some(length).filter(|length| *length <= REQUEST_BYTES)?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket for an init to listen on, bound to `name` in a directory of the host.
///
/// # Errors
/// The error of `bind(2)`: `AddrInUse` when the name exists.
pub fn listen(directory: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    Channel::listen(directory, name)
}
