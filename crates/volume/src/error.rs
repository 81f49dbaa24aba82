//! Why a volume cannot be used.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use stockade_bundle::{beneath, data};
use stockade_core::VolumeName;
use stockade_core::id::InvalidId;

/// Why a volume cannot be created, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such volume.
    #[error("there is no volume {0}")]
    NotFound(VolumeName),
    /// Running sandboxes have it mounted.
    #[error("the volume {name} is in use{}", process_list(processes))]
    InUse {
        /// The volume.
        name: VolumeName,
        /// The processes of the host that keep it in use, as far as the kernel lists them.
        processes: Vec<u32>,
    },
    /// The volume is removed, but not all its files: subordinate ids own some.
    #[error("the volume {0} is removed, but files of subordinate ids are left of it")]
    FilesLeft(VolumeName),
    /// A path in a volume cannot be mounted.
    #[error("{} of the volume {name} cannot be mounted: {reason}", path.display())]
    SubPath {
        /// The volume.
        name: VolumeName,
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A volume is a cache, which only sandboxes of its project use.
    #[error("the volume {0} is a cache, which is mounted by `--cache` only")]
    Cache(VolumeName),
    /// A volume is not the cache that its name says: it is of another project, or no cache.
    #[error("the volume {0} is not the cache of this name and project")]
    OtherCache(VolumeName),
    /// The owner has too many volumes.
    #[error("there are {0} volumes already, the maximum")]
    TooMany(usize),
    /// The name of a cache is too long.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// An error of the file system.
    #[error("cannot use the volumes in the data directory")]
    Io(#[source] io::Error),
    /// The record of a volume is damaged.
    #[error("the record of a volume is damaged")]
    Record(#[from] serde_json::Error),
}

impl Error {
    /// Whether the disk has no room left, or the quota of the user on the disk is exhausted.
    pub fn is_full(&self) -> bool {
        let Self::Io(source) = self else { return false };
        matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<beneath::Error> for Error {
    fn from(error: beneath::Error) -> Self {
        Self::Io(error.into())
    }
}

fn process_list(processes: &[u32]) -> String {
    let list: Vec<_> = processes.iter().map(ToString::to_string).collect();
    match list.as_slice() {
        [] => String::new(),
        [one] => format!(" by process {one}"),
        _ => format!(" by the processes {}", list.join(", ")),
    }
}
