//! Everything that a jail is made from, complete before the first system call.
//!
//! Only data. Who decides what belongs in a spec (projects, limits, policy)
//! lives outside this room.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::identity::Identity;

/// One jail: its identity, what it sees of the file system, its limits and its command.
#[derive(Debug)]
pub struct JailSpec {
    /// Which host ids stand behind the ids inside.
    pub identity: Identity,
    /// The root of the file system.
    pub root: Source,
    /// Whether the root directory may be written, where its source can be.
    pub root_writable: bool,
    /// Whether nobody but the caller has put anything into the root. Where others have, a link may lead
    /// to `/..`, which is the host's root until that is let go of: the jail waits for that.
    pub root_is_own: bool,
    /// What is mounted below the root, in order; a later mount may lie in an earlier one.
    pub mounts: Vec<(PathBuf, Mount)>,
    /// The name that the machine has inside.
    pub hostname: String,
    /// What there is beyond the jail's own loopback.
    pub network: Network,
    /// What the jail is for.
    pub task: Task,
    /// Resource limits of each process.
    pub rlimits: crate::rlimits::ResourceLimits,
    /// The jail's control groups, already made; the jail joins them before its walls go up.
    pub cgroup: Option<crate::cgroup::Group>,
    /// Descriptors that init keeps open: locks that are to be held as long as the jail lives.
    pub kept: Vec<OwnedFd>,
    /// What may be done where, when that is not the same everywhere.
    pub areas: Option<Areas>,
    /// Whether a kernel without Landlock is accepted. Every other wall is always required.
    pub landlock_optional: bool,
}

/// What a jail reaches beyond its own loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// Nothing.
    #[default]
    Off,
    /// What is let through by whoever holds the jail's [`crate::network::Listeners`].
    Egress,
}

/// What may be done where.
#[derive(Debug, Clone)]
pub struct Areas {
    /// The root, then places below it with rights of their own; what lies in a place comes after it.
    pub list: Vec<Area>,
    /// Whom the directories belong to that are made for areas, inside.
    pub user: u32,
    /// See `user`.
    pub group: u32,
}

/// A place inside with rights of its own, which hold for everything below but other areas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// An absolute path in normal form. Where it leads through a link, it can take nothing away,
    /// and what it leads to has the rights that it has by its own name.
    pub path: PathBuf,
    /// What may be done there.
    pub reach: Reach,
    /// Whether it becomes a directory where it is missing.
    pub is_made: bool,
}

/// What may be done in an area, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What could be done there anyway.
    AsIs,
    /// Nothing: what is there cannot be seen.
    Closed,
    /// Reading, and what is said.
    Open {
        /// Changing what is there.
        write: bool,
        /// Executing it.
        execute: bool,
    },
}

impl Reach {
    /// Whether something may be done there that may not be done here.
    pub(crate) const fn lacks(self, there: Self) -> bool {
        match (self, there) {
            (Self::AsIs, _) | (_, Self::Closed) => false,
            (Self::Closed, _) => true,
            (Self::Open { write, execute }, Self::Open { write: writes, execute: executes }) => {
                (writes && !write) || (executes && !execute)
            }
            (Self::Open { write, execute }, Self::AsIs) => !(write && execute),
        }
    }
}

/// What a jail is for.
#[derive(Debug)]
pub enum Task {
    /// To run one command, and to end with it.
    Once {
        /// What runs.
        command: Command,
        /// How its streams are made.
        streams: Streams,
    },
    /// To be held, and to run what is asked for on a socket ([`crate::control`]).
    Serve {
        /// Where init listens.
        listener: OwnedFd,
        /// How long the jail lives unless it is told to live on.
        lease: std::time::Duration,
    },
    /// To prepare something once, and to fork a worker for each call ([`crate::zygote`]).
    Fork(crate::zygote::Work),
}

/// Where the content of a mount or of the root comes from.
#[derive(Debug)]
pub enum Source {
    /// An empty file system in memory.
    Empty,
    /// A directory tree or file of the host.
    Host {
        /// Which.
        tree: HostTree,
        /// Whether it may be written.
        access: Access,
        /// Who its owners are inside, where the jail has a range of ids.
        owners: Owners,
    },
    /// A copy-on-write view.
    Overlay(Overlay),
}

/// Who the owners of a host's tree are inside a jail that has a range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Nobody: what only its owner may do, nobody may. For what everybody may read.
    Nobody,
    /// On-disk id `n` is inside id `n`.
    OnDisk,
    /// The tree belongs to the jail's own range already.
    Range,
}

/// A tree or file of the host.
#[derive(Debug)]
pub struct HostTree {
    /// Its path.
    pub path: PathBuf,
    /// What the path led to when the spec was made; it must still do so at the launch.
    pub file: OwnedFd,
}

impl HostTree {
    /// Opens a path, following links.
    pub fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags};
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: path.to_owned(), file })
    }
}

/// A copy-on-write view of a directory. Where the jail has a range of ids, the directory's
/// owners are mapped.
#[derive(Debug)]
pub struct Overlay {
    /// The directory that is read through.
    pub lower: HostTree,
    /// A directory that holds `upper` and `work`, where changes go. In memory when absent, and
    /// then gone with the jail.
    pub view: Option<HostTree>,
    /// The size of an upper layer in memory.
    pub size_bytes: u64,
    /// Whether programs inside can have changes written to the disk, as `fsync(2)` does. The end of
    /// such a jail waits until all that its file system holds is there, whosever it is. A `work`
    /// that was used without serves no second time, until what is in it was removed.
    pub synced: bool,
}

/// Whether a mount may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may not.
    Read,
    /// It may.
    Write,
}

/// One thing that is put below the root.
#[derive(Debug)]
pub enum Mount {
    /// A tree or file.
    Tree(Source),
    /// A file system in memory that the command may write.
    Scratch(Scratch),
    /// A file with this content, read-only.
    File(Vec<u8>),
    /// A symbolic link to this target.
    Link(PathBuf),
    /// An empty directory, read-only.
    Directory,
}

/// A writable file system in memory.
#[derive(Debug, Clone, Copy)]
pub struct Scratch {
    /// The mode of its root, such as 0o1777.
    pub mode: u32,
    /// Its size in bytes at most.
    pub size_bytes: u64,
    /// Whose it is, inside.
    pub user: u32,
    /// See `user`.
    pub group: u32,
}

/// The command and what it starts with.
#[derive(Debug)]
pub struct Command {
    /// What runs.
    pub payload: Payload,
    /// The environment, whole: nothing is inherited.
    pub environment: Vec<CString>,
    /// The directory that the command starts in, inside.
    pub working_directory: CString,
    /// The user and group id inside.
    pub user: u32,
    /// See `user`.
    pub group: u32,
    /// A time of the coarse clock (seconds and nanoseconds) that must have passed before the
    /// command starts, so that what it sees is older than any change stamped later.
    pub not_before: Option<(i64, u32)>,
}

/// What the command process does once all walls stand.
#[derive(Debug)]
pub enum Payload {
    /// Runs a program, found as `execvp(3)` does, with these arguments (the first is its name).
    Program(Vec<CString>),
    /// Runs this function and exits with what it returns: how `doctor` proves walls.
    Function(fn() -> u8),
}

impl Payload {
    /// Whether it is a program, beside which init goes on.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

/// How the command's standard streams are made. They are never the caller's own descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// A pipe for each stream.
    Pipes,
    /// A terminal of the jail's own for all three.
    Terminal(WindowSize),
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}
