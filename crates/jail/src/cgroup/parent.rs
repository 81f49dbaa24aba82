//! Groups of persistent jails: created by one process for many jails, stopped and resumed, and
//! taken over by that process's successor.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::detect::Hierarchies;
use super::freezer::{self, Freezer};
use super::{Group, Limit, Limits, Part, Unavailable, Version, files, hierarchies, v2};

/// Where a process creates the groups of its jails.
#[derive(Debug)]
pub struct ParentGroup(Hierarchies);

impl ParentGroup {
    /// The calling process's own groups. On version 2, if the process is alone in its group, it
    /// moves permanently into a child of it, so that the group can give controllers to others.
    pub fn prepare() -> Self {
        let hierarchies = hierarchies();
        if let Some(unified) = &hierarchies.v2 {
            let leaf = unified.own.join(format!("{}.self", super::fresh_name()));
            // If this fails, a limit that needs it is refused with the reason.
            let _ = v2::move_to_leaf(&unified.own, &leaf);
        }
        Self(hierarchies)
    }

    #[cfg(test)]
    pub(super) const fn from_hierarchies(hierarchies: Hierarchies) -> Self {
        Self(hierarchies)
    }

    /// Creates groups that enforce `limits`, and that [`Group::stop`] can stop where this host
    /// permits such groups. `name` must be new.
    ///
    /// # Errors
    /// Every limit that cannot be enforced; then none is, and no group was created.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group, Unavailable> {
        let mut group = Group::create_in(&self.0, name, limits)?;
        let unified = group.parts.iter().find(|part| part.version == Version::Two);
        if let Some(part) = unified.filter(|part| part.enforced.contains(&Limit::Memory)) {
            // A command that exceeds the limit must not end the others, nor init. The file exists
            // since Linux 4.19; older kernels always behave in this way.
            let _ = files::write(&part.directory, "memory.oom.group", "0");
        }
        let outer = unified.map(|part| part.directory.as_path());
        if let Ok((freezer, made)) = Freezer::make(&self.0, outer, name) {
            group.freezer = Some(freezer);
            group.parts.extend(made.map(|directory| Part {
                version: Version::Two,
                directory,
                enforced: Vec::new(),
                leaf: None,
            }));
        }
        Ok(group)
    }
}

impl Group {
    /// Whether [`Group::stop`] is available.
    pub fn can_stop(&self) -> bool {
        self.freezer.is_some()
    }

    /// Whether the groups contain no process but `init`, so that there is nothing to stop.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn contains_only(&self, init: i32) -> io::Result<bool> {
        self.freezer()?.contains_only(init)
    }

    /// Excludes a process from what [`Group::stop`] stops. Its limits stay. Has no effect where no
    /// group can stop its processes.
    pub(crate) fn exclude(&self, process: i32) -> io::Result<()> {
        self.freezer.as_ref().map_or(Ok(()), |freezer| freezer.exclude(process))
    }

    /// Stops every process in the groups except `init`, which must be alive and in them.
    /// [`Group::has_stopped`] reports when this is complete.
    ///
    /// # Errors
    /// `Unsupported` where no group can stop its processes, else the kernel's error; then
    /// [`Group::resume`] reverts the partial change.
    pub fn stop(&self, init: i32) -> io::Result<()> {
        self.freezer()?.freeze(init)
    }

    /// Whether all processes have stopped.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn has_stopped(&self) -> io::Result<bool> {
        self.freezer()?.is_frozen()
    }

    /// Resumes every process, and moves `init` into the group again. Has no effect on processes
    /// that were not stopped.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn resume(&self, init: i32) -> io::Result<()> {
        self.thaw()?;
        self.freezer()?.add(init)
    }

    /// Resumes every process, so that those that were killed can die.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn thaw(&self) -> io::Result<()> {
        self.freezer()?.thaw()
    }

    fn freezer(&self) -> io::Result<&Freezer> {
        self.freezer.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Removes the groups that contain no process; never waits.
    ///
    /// # Errors
    /// The error of the first that could not be removed; a later call tries the remaining ones.
    pub fn try_remove(&mut self) -> io::Result<()> {
        let remove = |directory: &Path| match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        if let Some(freezer) = &self.freezer {
            remove(&freezer.directory)?;
            self.freezer = None;
        }
        while let Some(part) = self.parts.last() {
            remove(&part.directory)?;
            self.parts.pop();
        }
        Ok(())
    }

    /// Releases the groups without removing them, because another process owns them now.
    pub fn release(mut self) {
        self.parts.clear();
        self.freezer = None;
    }

    /// The data with which another process can take the groups over: a text for
    /// [`Group::from_record`].
    pub fn to_record(&self) -> Vec<u8> {
        let mut record = Vec::new();
        let mut line = |version, what: &str, directory: &Path| {
            let version = if version == Version::One { "1" } else { "2" };
            record.extend_from_slice(format!("{version} {what} ").as_bytes());
            record.extend_from_slice(directory.as_os_str().as_bytes());
            record.push(b'\n');
        };
        for part in &self.parts {
            let enforced: Vec<_> = part.enforced.iter().map(|limit| limit.name()).collect();
            line(part.version, &format!("holds,{}", enforced.join(",")), &part.directory);
        }
        if let Some(freezer) = &self.freezer {
            line(freezer.version, "stops", &freezer.directory);
        }
        record
    }

    /// The groups that another process created and recorded; they may no longer exist. `None` for
    /// an invalid record.
    pub fn from_record(record: &[u8]) -> Option<Self> {
        let mut group = Self::default();
        for line in record.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // The kernel allows no line feed in a group's name.
            let mut fields = line.splitn(3, |byte| *byte == b' ');
            let version = match fields.next()? {
                b"1" => Version::One,
                b"2" => Version::Two,
                _ => return None,
            };
            let what = std::str::from_utf8(fields.next()?).ok()?;
            let directory = PathBuf::from(OsStr::from_bytes(fields.next()?));
            if what == "stops" {
                group.freezer = Some(Freezer { version, directory });
                continue;
            }
            let enforced = what.strip_prefix("holds,")?.split(',').filter(|name| !name.is_empty());
            let limit = |name| Limit::ALL.into_iter().find(|limit| limit.name() == name);
            let enforced = enforced.map(limit).collect::<Option<_>>()?;
            group.parts.push(Part { version, directory, enforced, leaf: None });
        }
        Some(group)
    }
}

/// Removes a group that a sweep found, with its frozen child group.
pub(super) fn remove_abandoned(group: &Path) -> io::Result<()> {
    if !files::words(group, "cgroup.procs")?.is_empty() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // If there is no child, removing the group itself reports any error.
    let _ = fs::remove_dir(freezer::child_of(group));
    fs::remove_dir(group)
}
