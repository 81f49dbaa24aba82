//! Stopping everything in a jail except its init, by a group that contains everything except init.
//!
//! While nothing is stopped, init is in the group too, so that its children are created there. It
//! leaves the group before the freeze and returns after the thaw. So no search for processes is
//! needed, and none can be created outside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::detect::Hierarchies;
use super::{Version, files};

/// The name of the frozen child group of a version 2 group. The group itself gives the child no
/// controllers, so that both may contain processes.
const CHILD: &str = "commands";

/// The group that can be frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Freezer {
    pub(super) version: Version,
    /// The directory of the group.
    pub(super) directory: PathBuf,
}

/// The jail's own group of version 2, where it has one.
pub(super) type ParentPath<'a> = Option<&'a Path>;

impl Freezer {
    /// Creates the group: below `outer`, the jail's group of version 2, where it has one, else in a
    /// new group `name` of version 2, else in the hierarchy of version 1. Also returns that new
    /// group.
    ///
    /// # Errors
    /// `Unsupported` where no hierarchy can freeze, else the kernel's error.
    pub(super) fn make(
        hierarchies: &Hierarchies,
        outer: ParentPath<'_>,
        name: &str,
    ) -> io::Result<(Self, Option<PathBuf>)> {
        if let Some(outer) = outer {
            return Ok((Self::below(outer)?, None));
        }
        let unified = hierarchies.v2.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into());
        let made = unified.and_then(|unified| {
            let outer = unified.own.join(name);
            files::make_group(&outer)?;
            let made = Self::below(&outer).inspect_err(|_| {
                // No process is in it yet.
                let _ = fs::remove_dir(&outer);
            })?;
            Ok((made, Some(outer)))
        });
        match (&made, &hierarchies.freezer) {
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

    /// Stops everything in the group except `init`, which leaves it. Afterwards [`Self::is_frozen`]
    /// reports whether all have stopped.
    pub(super) fn freeze(&self, init: i32) -> io::Result<()> {
        self.exclude(init)?;
        match self.version {
            Version::One => files::write(&self.directory, "freezer.state", "FROZEN"),
            Version::Two => files::write(&self.directory, "cgroup.freeze", "1"),
        }
    }

    /// Moves a process out of the group, so that it is never stopped.
    pub(super) fn exclude(&self, process: i32) -> io::Result<()> {
        let outside = self.directory.parent().ok_or(io::ErrorKind::NotFound)?;
        files::write(outside, "cgroup.procs", &process.to_string())
    }

    /// Whether the group contains no process but `init`.
    pub(super) fn contains_only(&self, init: i32) -> io::Result<bool> {
        Ok(files::words(&self.directory, "cgroup.procs")? == [init.to_string()])
    }

    pub(super) fn is_frozen(&self) -> io::Result<bool> {
        match self.version {
            // The kernel updates this state when it is read.
            Version::One => Ok(files::words(&self.directory, "freezer.state")? == ["FROZEN"]),
            Version::Two => Ok(files::number_of(&self.directory, "cgroup.events", "frozen")? == 1),
        }
    }

    /// Resumes everything in the group.
    pub(super) fn thaw(&self) -> io::Result<()> {
        let written = match self.version {
            Version::One => files::write(&self.directory, "freezer.state", "THAWED"),
            Version::Two => files::write(&self.directory, "cgroup.freeze", "0"),
        };
        // If the group was empty, it may have been swept: then nothing is stopped.
        written.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    }

    /// Moves a process into the group.
    pub(super) fn add(&self, process: i32) -> io::Result<()> {
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        files::write(&self.directory, "cgroup.procs", &process.to_string())
    }
}

/// The child group that a sweep must remove before this group.
pub(super) fn child_of(group: &Path) -> PathBuf {
    group.join(CHILD)
}
