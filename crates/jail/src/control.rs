//! The way to the init of a jail that is held: requests to it and reports from it, each one
//! message on a socket that init listens on.
//!
//! Init may have been taken over by what runs inside. What comes from it is bounded and parsed
//! defensively: a message that is not understood is an error, never a guess, and nothing in it is
//! trusted beyond its own jail.

pub(crate) mod wire;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::channel::{Channel, MESSAGE_BYTES};
use crate::spec::WindowSize;
use crate::walls::Wall;

/// The longest request, in bytes: what the kernel takes for a command's arguments and environment,
/// and more. A long one travels in a file in memory.
pub const REQUEST_BYTES: usize = 8 << 20;
/// The longest key of a command, in bytes.
pub const KEY_BYTES: usize = 64;
/// How many commands one init serves at once, those that ended and were not forgotten included.
pub const COMMANDS: usize = 1024;

/// The message whose request is in its last descriptor.
const IN_FILE: &[u8] = b"M";

/// A connection to an init. Init serves one at a time: the newest.
#[derive(Debug)]
pub struct Control(Channel);

/// What is asked of init. `number` is the caller's name for a command; it is never used again in
/// the life of the jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Start a command. With pipes, six descriptors come along: the command's standard input,
    /// output and error, then the other ends of the same, which init keeps for whoever comes after
    /// the caller. With a terminal none do.
    Execute(Box<Execute>),
    /// Send a signal to the command's process group.
    Signal {
        /// Which command.
        number: u64,
        /// The signal.
        signal: i32,
    },
    /// Kill the command and everything that it has started.
    Kill {
        /// Which command.
        number: u64,
    },
    /// Let go of the outer end of the command's standard input.
    CloseInput {
        /// Which command.
        number: u64,
    },
    /// Forget a command that has ended, and let go of its streams.
    Forget {
        /// Which command.
        number: u64,
    },
    /// Connect to something inside as this user.
    Connect {
        /// The caller's name for the connection.
        number: u64,
        /// To what.
        target: Target,
        /// As whom.
        user: u32,
        /// See `user`.
        group: u32,
    },
    /// Live this long from now on unless told again.
    Lease(Duration),
    /// Every process is stopped: by a control group, or where none can, by init now (`SIGSTOP`).
    /// Subreapers that wait for a command leave. What is killed meanwhile, or has no time left, is ended all the same, and
    /// nothing else goes on for it.
    Stop {
        /// Whether init is to stop them.
        by_signal: bool,
    },
    /// Every process goes on: those that init has stopped by `SIGCONT`.
    Continue,
    /// Hand out the root directory.
    Root,
    /// Hand out the ways out of the network ([`crate::network::Listeners`]): for whoever comes after
    /// the one who was told that the walls stand.
    Listeners,
    /// Tell every command: one [`Report::Record`] each, then [`Report::Listed`].
    List,
    /// Kill everything and end.
    End,
}

/// A command to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// The caller's number for it.
    pub number: u64,
    /// The caller's key for it, which init gives back in [`Report::Record`]. A key that init
    /// knows is not started again: it answers with the record.
    pub key: Vec<u8>,
    /// The program and its arguments, found as `execvp(3)` does. No NUL byte.
    pub arguments: Vec<Vec<u8>>,
    /// The environment, whole, as `NAME=value`. No NUL byte.
    pub environment: Vec<Vec<u8>>,
    /// Where it starts, inside. No NUL byte.
    pub working_directory: Vec<u8>,
    /// The user id inside.
    pub user: u32,
    /// The group id inside.
    pub group: u32,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<WindowSize>,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// Something inside that takes connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A TCP port of the jail's loopback.
    Tcp(u16),
    /// A stream socket at a path.
    Unix(Vec<u8>),
}

/// What init tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The command has a process, which becomes its program next. Carries the terminal's outer end,
    /// where there is one.
    Started {
        /// Which command.
        number: u64,
    },
    /// The command was not started, for the program could not be run or a wall not be raised for
    /// it. Nothing else is told of it but its record, and that its process is gone.
    NotStarted {
        /// Which command.
        number: u64,
        /// The wall, where it was one.
        wall: Option<Wall>,
        /// The step, in words.
        step: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// The command has ended; with a cause, everything that it had started has too.
    Exited {
        /// Which command.
        number: u64,
        /// The status as `wait(2)` gives it.
        status: i32,
        /// What init did to end it, where it did.
        cause: Option<Cause>,
    },
    /// The command has ended by itself, and nothing that it started is alive: both at once.
    Finished {
        /// Which command.
        number: u64,
        /// The status as `wait(2)` gives it.
        status: i32,
    },
    /// Nothing that the command started is alive any more.
    Gone {
        /// Which command.
        number: u64,
    },
    /// The connection that was asked for; carries it. It does not block, and may still be in the
    /// making.
    Connected {
        /// Which connection.
        number: u64,
    },
    /// The connection that was asked for cannot be had.
    Refused {
        /// Which connection.
        number: u64,
        /// The kernel's error number.
        errno: i32,
    },
    /// The root directory, which this carries as an `O_PATH` descriptor.
    Root,
    /// The ways out of the network, which this carries in the order of their fields; none where the
    /// jail has none, or init has too few descriptors for them now.
    Listeners,
    /// A command that init knows. Carries the outer ends of its streams that init still keeps:
    /// with pipes input (unless closed), output, error; with a terminal that.
    Record(Record),
    /// All records were told.
    Listed,
    /// Something has to be ended that a control group has stopped. Init has stopped every process
    /// by a signal as well, so that the group may let them go on: only what is to end will.
    Thaw,
}

/// Why init ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its time was up.
    TimedOut,
    /// It was asked to.
    Killed,
    /// What stood for it in the jail was killed from inside, so its end was not seen.
    Unseen,
}

/// What init knows of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub number: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Whether the outer end of its input is kept.
    pub input: bool,
    /// Where it is.
    pub progress: Progress,
}

/// Where a command is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is being started, or runs.
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
        /// What init did to end it, where it did.
        cause: Option<Cause>,
    },
}

impl Control {
    /// Connects to the init that listens on the socket `name` in a directory of the host. Does
    /// not block afterwards.
    ///
    /// # Errors
    /// `ConnectionRefused` or `NotFound` when no init listens there, else what `connect(2)` said.
    pub fn connect(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        Channel::connect(directory, name).map(Self)
    }

    /// Sends a request with its descriptors.
    ///
    /// # Errors
    /// `InvalidInput` for a request that is too long; `WouldBlock` while init does not listen;
    /// `BrokenPipe` when it is gone.
    pub fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = request.encode().filter(|bytes| bytes.len() <= REQUEST_BYTES);
        let mut bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let sent = self.send_bytes(&bytes, descriptors);
        // A command's words may hold secrets, and what is left in memory is copied by a fork.
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

    /// The next report, with what it carries; `None` once init is gone.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` for what init may not say: the jail is not
    /// to be trusted with another word then, and should be ended.
    pub fn receive(&self) -> io::Result<Option<(Report, Vec<OwnedFd>)>> {
        let Some((bytes, descriptors)) = self.0.receive()? else { return Ok(None) };
        let report = Report::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((report, descriptors)))
    }
}

impl Request {
    /// The request in a message and the descriptors that came with it; `None` for anything else.
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
/// What `bind(2)` said; `AddrInUse` when the name exists.
pub fn listen(directory: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    Channel::listen(directory, name)
}
