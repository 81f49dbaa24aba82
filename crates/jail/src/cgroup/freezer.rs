//! Stopping everything in a jail but its init, by a group that everything but init lives in.
//!
//! Init is in the group too while nothing is stopped, so that what it starts is born there. It
//! leaves before the group is frozen and comes back after it was thawed. So no process is ever
//! looked for, and none can be born outside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::detect::Hierarchies;
use super::{Version, files};

/// The child of a group of version 2 that is frozen. The group itself gives it no controllers, so
/// that both may hold processes.
const CHILD: &str = "commands";

/// The group that is frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Freezer {
    pub(super) version: Version,
    /// Where processes are stopped.
    pub(super) directory: PathBuf,
}

/// A group of a jail's own, and whether it was made for the freezer alone.
pub(super) type Outer<'a> = Option<&'a Path>;

impl Freezer {
    /// Makes the group: below `outer`, the jail's group of version 2, where it has one, else in a
    /// new group `name` of version 2, else in the hierarchy of version 1. Also gives that new
    /// group.
    ///
    /// # Errors
    /// `Unsupported` where no hierarchy can freeze, else what the kernel said.
    pub(super) fn make(
        found: &Hierarchies,
        outer: Outer<'_>,
        name: &str,
    ) -> io::Result<(Self, Option<PathBuf>)> {
        if let Some(outer) = outer {
            return Ok((Self::below(outer)?, None));
        }
        let unified = found.v2.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into());
        let made = unified.and_then(|unified| {
            let outer = unified.own.join(name);
            fs::create_dir(&outer)?;
            let made = Self::below(&outer).inspect_err(|_| {
                // Nobody is in it yet.
                let _ = fs::remove_dir(&outer);
            })?;
            Ok((made, Some(outer)))
        });
        match (&made, &found.freezer) {
            (Err(_), Some(own)) => {
                let directory = own.join(name);
                fs::create_dir(&directory)?;
                Ok((Self { version: Version::One, directory }, None))
            }
            _ => made,
        }
    }

    fn below(outer: &Path) -> io::Result<Self> {
        let directory = outer.join(CHILD);
        fs::create_dir(&directory)?;
        Ok(Self { version: Version::Two, directory })
    }

    /// Stops everything in the group but `init`, which leaves it. Afterwards [`Self::is_frozen`]
    /// tells when all have stopped.
    pub(super) fn freeze(&self, init: i32) -> io::Result<()> {
        let outside = self.directory.parent().ok_or(io::ErrorKind::NotFound)?;
        files::write(outside, "cgroup.procs", &init.to_string())?;
        match self.version {
            Version::One => files::write(&self.directory, "freezer.state", "FROZEN"),
            Version::Two => files::write(&self.directory, "cgroup.freeze", "1"),
        }
    }

    /// Whether there is nothing in the group but `init`.
    pub(super) fn has_none_but(&self, init: i32) -> io::Result<bool> {
        Ok(files::words(&self.directory, "cgroup.procs")? == [init.to_string()])
    }

    pub(super) fn is_frozen(&self) -> io::Result<bool> {
        match self.version {
            // The kernel looks at the processes when it is asked.
            Version::One => Ok(files::words(&self.directory, "freezer.state")? == ["FROZEN"]),
            Version::Two => Ok(files::number_of(&self.directory, "cgroup.events", "frozen")? == 1),
        }
    }

    /// Lets everything in the group go on.
    pub(super) fn thaw(&self) -> io::Result<()> {
        let written = match self.version {
            Version::One => files::write(&self.directory, "freezer.state", "THAWED"),
            Version::Two => files::write(&self.directory, "cgroup.freeze", "0"),
        };
        // Where nothing was left in it, it may have been swept: then nothing is stopped.
        written.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    /// Takes a process in.
    pub(super) fn add(&self, process: i32) -> io::Result<()> {
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        files::write(&self.directory, "cgroup.procs", &process.to_string())
    }
}

/// The group that a sweep must remove first, below one that it wants to remove.
pub(super) fn child_of(group: &Path) -> PathBuf {
    group.join(CHILD)
}
