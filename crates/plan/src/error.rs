//! Why a request cannot become a jail.

use std::io;
use std::path::PathBuf;

use stockade_core::sandbox::{LimitName, User};
use stockade_core::{SnapshotId, VolumeName};

/// Why a sandbox cannot be planned. Nothing was created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path of the host is, contains or lies in Stockade's data directory.
    #[error("{} contains Stockade's own data, which must not be visible in a sandbox", .0.display())]
    OwnData(PathBuf),
    /// A path that must lead through no link leads through one.
    #[error("{} leads through a link, so it is not the path that was allowed", .0.display())]
    Link(PathBuf),
    /// The host's root directory would be visible.
    #[error("the host's root directory cannot be mounted in a sandbox")]
    HostRoot,
    /// A program of the host listens in a directory whose mount would make it reachable.
    #[error(
        "{} contains the socket {} of a program of the host, which a mount of it would make reachable",
        directory.display(),
        socket.display()
    )]
    HostSocket {
        /// The directory.
        directory: PathBuf,
        /// The socket.
        socket: PathBuf,
    },
    /// A path of the host cannot be used.
    #[error("cannot use {} of the host", path.display())]
    HostPath {
        /// The path, as written in the request.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A root or workspace is no directory.
    #[error("{} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// The store of images has no such image for this host.
    #[error("there is no image {0} in the store of images")]
    NoImage(String),
    /// A text names no image.
    #[error(transparent)]
    ImageName(Box<stockade_image::InvalidReference>),
    /// The store of images cannot be used, or the image in it is damaged.
    #[error(transparent)]
    Image(Box<stockade_image::store::Error>),
    /// The configuration of an image cannot be used.
    #[error(transparent)]
    ImageProcess(Box<stockade_image::InvalidProcess>),
    /// Bubblewrap executes Stockade's init in the image, which cannot run there.
    #[error(
        "bubblewrap executes Stockade's init inside, and the image lacks the loader that it needs"
    )]
    NoLoader,
    /// There is no private base.
    #[error("cannot use the private base")]
    Base(#[source] Box<crate::private_base::Error>),
    /// The root is a directory of the host, whose files are the host's own.
    #[error("a private base is impossible with the root {}, whose files are the host's own", .0.display())]
    HostRootFiles(PathBuf),
    /// The layers of a snapshot are missing.
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    /// A path inside is not absolute or has a `..`.
    #[error("{} is not an absolute path without `..`", .0.display())]
    NotAbsolute(PathBuf),
    /// A path inside belongs to the sandbox itself.
    #[error("{} is reserved for the sandbox itself", .0.display())]
    Reserved(PathBuf),
    /// A mount point in the workspace is missing, and its creation would appear as a change.
    #[error("{} does not exist in the workspace", .0.display())]
    MissingInWorkspace(PathBuf),
    /// Two mounts have the same mount point.
    #[error("two mounts are at {}", .0.display())]
    MountedTwice(PathBuf),
    /// A cache is neither that of a tool nor has it a path.
    #[error("there is no cache {0}, and it has no path inside")]
    UnknownCache(VolumeName),
    /// A cache that is only for what `run --keep-ignored` keeps.
    #[error("the cache {0} is for what `run --keep-ignored` keeps, and cannot be mounted")]
    OwnCache(VolumeName),
    /// A volume cannot be used.
    #[error(transparent)]
    Volume(#[from] stockade_volume::Error),
    /// A name or value of an environment variable that no process can have.
    #[error("the environment variable {0:?} has an invalid name or value")]
    Variable(String),
    /// The access rules are invalid.
    #[error("{0}")]
    Rules(String),
    /// A limit of zero.
    #[error("the limit `{0}` must be greater than 0")]
    ZeroLimit(LimitName),
    /// A limit cannot be enforced here, and was not left to best effort.
    #[error("the limit `{limit}` cannot be enforced here: {reason}")]
    Limit {
        /// The limit.
        limit: LimitName,
        /// The reason.
        reason: String,
        /// What would make it possible.
        remedy: stockade_jail::cgroup::Remedy,
    },
    /// Only root can give a sandbox another user than the caller.
    #[error("users: not supported here: {}", single_user(*.0))]
    OneUser(User),
    /// An id that is outside a sandbox's range.
    #[error("the ids {}:{} are not below {limit}", user.user, user.group)]
    UserTooLarge {
        /// The ids.
        user: User,
        /// The first id that no sandbox has.
        limit: u32,
    },
    /// A resource of this host was exhausted while files were prepared.
    #[error("{what}")]
    Exhausted {
        /// The step that failed.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the request names a path that is never visible in a sandbox, such as Stockade's own
    /// data.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::OwnData(_) | Self::HostRoot | Self::HostSocket { .. })
    }
}

/// Why another user is not possible: the same text for a run and for a runtime.
pub fn single_user(own: User) -> String {
    format!("only root can give a sandbox another user than {}:{}", own.user, own.group)
}
