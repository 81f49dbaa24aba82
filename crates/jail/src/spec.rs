//! Everything that a jail is made from, complete before the first system call.
//!
//! Only data. The code that decides what belongs in a spec (projects, limits, policy) is outside
//! this crate.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::identity::Identity;
use crate::rlimits::ResourceLimits;

/// One jail: its identity, what it sees of the file system, its limits and its command.
#[derive(Debug)]
pub struct JailSpec {
    /// Which host ids the ids inside are mapped to.
    pub identity: Identity,
    /// The root of the file system.
    pub root: Source,
    /// Whether the root directory is writable, if its source is.
    pub root_writable: bool,
    /// Whether only the caller has put anything into the root. Otherwise a link may lead to `/..`,
    /// which is the host's root until that is unmounted, so the jail waits for the unmount.
    pub root_is_own: bool,
    /// What is mounted below the root, in order; a later mount may lie in an earlier one.
    pub mounts: Vec<(PathBuf, Mount)>,
    /// The host name inside.
    pub hostname: String,
    /// The network access beyond the jail's own loopback.
    pub network: Network,
    /// The purpose of the jail.
    pub task: Task,
    /// Resource limits of each process.
    pub rlimits: crate::rlimits::ResourceLimits,
    /// The jail's control groups, already created. The jail joins them before its walls are
    /// enabled.
    pub cgroup: Option<crate::cgroup::Group>,
    /// File descriptors that init keeps open, such as locks that must be held as long as the jail
    /// lives.
    pub locks: Vec<OwnedFd>,
    /// The access rights per path, where they are not the same everywhere.
    pub access_mounts: Option<AccessMounts>,
    /// Whether a kernel without Landlock is accepted. Every other wall is always required.
    pub landlock_optional: bool,
    /// Whether the supervisor hears of the system calls that the filter refuses
    /// ([`crate::CallListener`]). It must answer them, or close the listener.
    pub reports_refused_calls: bool,
}

/// The network access of a jail beyond its own loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// None.
    #[default]
    Off,
    /// None, but a process that holds the jail's [`crate::network::StubListeners`] can refuse lookups
    /// and requests, so that programs do not wait.
    Stub,
    /// What the process that holds the jail's [`crate::network::Listeners`] allows.
    Egress,
}

/// The access rights per path.
#[derive(Debug, Clone)]
pub struct AccessMounts {
    /// The root, then paths below it with rights of their own. A path that lies in another one
    /// comes after it.
    pub list: Vec<AccessMount>,
    /// The user inside who owns the directories that are created for areas.
    pub user: u32,
    /// See `user`.
    pub group: u32,
}

/// A path inside with rights of its own, which apply to everything below it except other areas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessMount {
    /// An absolute path in normal form. Where it leads through a link, it can take no rights away,
    /// and its target has the rights that it has by its own name.
    pub path: PathBuf,
    /// The rights.
    pub rights: Rights,
    /// Whether a missing path is created as a directory.
    pub create_missing: bool,
}

/// The maximal rights in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// No restriction beyond those of the jail.
    AsIs,
    /// None: the content is invisible.
    Closed,
    /// Reading, and the rights in the fields.
    Open {
        /// Changing the content.
        write: bool,
        /// Executing the content.
        execute: bool,
    },
}

impl Rights {
    /// Whether the other rights include one that these do not.
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

/// The purpose of a jail.
#[derive(Debug)]
pub enum Task {
    /// To run one command and to end with it.
    Once {
        /// The command.
        command: Command,
        /// How its streams are made.
        streams: Streams,
    },
    /// To persist, and to run commands on request through a socket ([`crate::control`]).
    Serve {
        /// The socket on which init listens.
        listener: OwnedFd,
        /// How long the jail lives unless the lease is renewed.
        lease: std::time::Duration,
        /// As [`Command::processors`], for each command.
        processors: Option<usize>,
        /// The program bubblewrap, if it makes the innermost namespaces ([`Bubblewrap`]).
        bubblewrap: Option<Bubblewrap>,
    },
    /// To prepare something once, and to fork a worker for each call ([`crate::zygote`]).
    Fork(ZygoteTask),
}

/// The program bubblewrap as the maker of a jail's innermost namespaces. The jail's file system is
/// assembled as always, in namespaces of its own; bubblewrap is executed in them, makes another set
/// of namespaces with that file system as the root, installs the filter, and executes this program
/// as pid 1, which continues as init ([`crate::executed_init`]).
#[derive(Debug)]
pub struct Bubblewrap {
    /// Its path on the host.
    pub program: PathBuf,
    /// The only user id inside.
    pub user: u32,
    /// The only group id inside.
    pub group: u32,
    /// Receives what the program writes to its standard error.
    pub log: OwnedFd,
}

/// Serves one call in a worker: communicates over the wire, and returns the exit code.
pub type Serve = Box<dyn Fn(OwnedFd) -> u8>;

/// The configuration of a zygote.
#[derive(Debug)]
pub struct ZygoteTask {
    /// The socket on which it receives requests: the second value of [`Requests::pair`](crate::zygote::Requests::pair).
    pub requests: OwnedFd,
    /// Runs once, with the input that the caller sent for the preparation.
    pub prepare: fn(OwnedFd) -> Result<Serve, String>,
    /// The stack of `prepare` and of each worker.
    pub stack_bytes: usize,
    /// Limits of each worker, below those of the jail.
    pub worker: ResourceLimits,
}

/// Where the content of a mount or of the root comes from.
#[derive(Debug)]
pub enum Source {
    /// An empty file system in memory.
    Empty,
    /// A directory tree or file of the host.
    Host {
        /// The tree or file.
        tree: HostTree,
        /// Whether it is writable.
        access: Access,
        /// Who owns the files inside, where the jail has a range of ids.
        owners: Owners,
    },
    /// A directory of the host, read-only, through which nothing is reached that listens in it,
    /// whenever it began: connections to its sockets, and writing into its pipes, fail.
    ReadOnly(HostTree),
    /// A directory of Stockade itself, read-only, with files that everyone may read. It is the lower
    /// layer of an overlay, so that its path on the host is not visible in the table of mounts.
    Layer(HostTree),
    /// A copy-on-write view.
    Overlay(Overlay),
}

/// How the file owners of a host's tree appear inside a jail that has a range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// As no user: permissions of the file owner apply to no process. For trees that everybody may
    /// read.
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
    /// What the path led to when the spec was made. At the launch it must still lead there.
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

/// A copy-on-write view of a directory. Where the jail has a range of ids, the file owners are
/// mapped.
#[derive(Debug)]
pub struct Overlay {
    /// The lower layer.
    pub lower: HostTree,
    /// Further layers below it, the topmost first.
    pub below: Vec<HostTree>,
    /// A directory that contains `upper` and `work`, which receive the changes. When absent, the
    /// changes are in memory and end with the jail.
    pub view: Option<HostTree>,
    /// The size of an upper layer in memory.
    pub size_bytes: u64,
    /// Whether `fsync(2)` by programs inside writes changes to the disk. Ending such a jail waits
    /// until all dirty data of the underlying file system is written, also that of other processes.
    /// A `work` directory that was used without this flag cannot be used again until its content
    /// was removed.
    pub synced: bool,
    /// Whether directories of the lower layer can be renamed. The overlay then belongs to the host, and
    /// its marks in the upper layer are attributes that no process inside can write. This requires a
    /// range of ids and a `view`, and that only such overlays ever used the view.
    pub records_renames: bool,
}

/// Whether a mount is writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read-only.
    Read,
    /// Writable.
    Write,
}

/// One item that is placed below the root.
#[derive(Debug)]
pub enum Mount {
    /// A tree or file.
    Tree(Source),
    /// A file system in memory that is writable for the command.
    Scratch(Scratch),
    /// A file with this content, read-only.
    File(Vec<u8>),
    /// A symbolic link to this target.
    Link(PathBuf),
    /// An empty directory, read-only.
    Directory,
    /// A tree that is mounted where only directories, or nothing, are in the way.
    Optional(OptionalMount),
}

/// A tree for a place in which a sandbox may have put something else before.
#[derive(Debug)]
pub struct OptionalMount {
    /// The tree.
    pub source: Source,
    /// The end of the mount point's path in which no link is followed, such as `.cache/pip`.
    pub below: PathBuf,
    /// The owner inside of the mount point and of each directory of `below` that is missing.
    pub user: u32,
    /// See `user`.
    pub group: u32,
}

/// A writable file system in memory.
#[derive(Debug, Clone, Copy)]
pub struct Scratch {
    /// The mode of its root, such as 0o1777.
    pub mode: u32,
    /// Its maximal size in bytes.
    pub size_bytes: u64,
    /// Its owner inside.
    pub user: u32,
    /// See `user`.
    pub group: u32,
}

/// The command and its initial state.
#[derive(Debug)]
pub struct Command {
    /// The program or function that runs.
    pub payload: Payload,
    /// The complete environment: nothing is inherited.
    pub environment: Vec<CString>,
    /// The directory inside in which the command starts.
    pub working_directory: CString,
    /// The user id inside.
    pub user: u32,
    /// The group id inside.
    pub group: u32,
    /// The ids of its supplementary groups; a jail without a range of ids can have none.
    pub groups: Vec<u32>,
    /// The permission bits that new files do not get (`umask(2)`).
    pub umask: u32,
    /// On how many of the caller's processors the command starts. It may choose others; this tells
    /// runtimes how many threads are useful.
    pub processors: Option<usize>,
    /// A time of the coarse clock (seconds and nanoseconds) that must have passed before the
    /// command starts, so that everything the command sees is older than any change stamped later.
    pub not_before: Option<(i64, u32)>,
}

/// What the command process does once all walls are enabled.
#[derive(Debug)]
pub enum Payload {
    /// Runs a program, found as `execvp(3)` does, with these arguments (the first is its name).
    Program(Vec<CString>),
    /// Runs this function and exits with its return value. `doctor` tests walls in this way.
    Function(fn() -> u8),
}

impl Payload {
    /// Whether it is a program, so that init continues beside it.
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

/// What the keeper decides about the commands of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerSettings {
    /// The user id of init and of every command.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// How long the container lives unless the lease is renewed.
    pub lease: std::time::Duration,
    /// How many file descriptors a command may have.
    pub open_files: u64,
    /// Whether the network of the container gets the listeners of an egress process. Init needs
    /// `CAP_NET_ADMIN` for that, which no command has.
    pub has_network: bool,
    /// Whether a file of the host is writable inside, so that commands must not put set-user-id bits
    /// on files ([`crate::seccomp::SetIdBits`]).
    pub writes_to_host: bool,
}
