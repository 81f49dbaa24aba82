//! Groups of jails that are held: made by one process for many jails, stopped and let go on, and
//! found again by the process that comes after their maker.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::detect::Hierarchies;
use super::freezer::{self, Freezer};
use super::{Group, Limit, Limits, Part, Unavailable, Version, files, hierarchies, v2};

/// Where a process makes the groups of the jails that it holds.
#[derive(Debug)]
pub struct Place(Hierarchies);

impl Place {
    /// The calling process's own groups. On version 2 it moves for good into a child of its group
    /// where it is alone in that, so that the group can give controllers to others.
    pub fn settle() -> Self {
        let found = hierarchies();
        if let Some(unified) = &found.v2 {
            let leaf = unified.own.join(format!("{}.self", super::fresh_name()));
            // Where this cannot be had, a limit that needs it is refused with the reason.
            let _ = v2::settle(&unified.own, &leaf);
        }
        Self(found)
    }

    #[cfg(test)]
    pub(super) const fn of(found: Hierarchies) -> Self {
        Self(found)
    }

    /// Makes groups that hold `limits`, and that [`Group::stop`] can stop where this host lets
    /// them be made. `name` must be new.
    ///
    /// # Errors
    /// Every limit that cannot be held; then none is, and no group was made.
    pub fn create(&self, name: &str, limits: &Limits) -> Result<Group, Unavailable> {
        let mut group = Group::create_in(&self.0, name, limits)?;
        let unified = group.parts.iter().find(|part| part.version == Version::Two);
        if let Some(part) = unified.filter(|part| part.held.contains(&Limit::Memory)) {
            // One command that takes too much shall not end the others, and init with them. Since
            // Linux 4.19; before, this is how it was.
            let _ = files::write(&part.directory, "memory.oom.group", "0");
        }
        let outer = unified.map(|part| part.directory.as_path());
        if let Ok((freezer, made)) = Freezer::make(&self.0, outer, name) {
            group.freezer = Some(freezer);
            group.parts.extend(made.map(|directory| Part {
                version: Version::Two,
                directory,
                held: Vec::new(),
                leaf: None,
            }));
        }
        Ok(group)
    }
}

impl Group {
    /// Whether [`Group::stop`] can be had.
    pub fn can_stop(&self) -> bool {
        self.freezer.is_some()
    }

    /// Whether there is nothing to stop in the groups, no process but `init`.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn has_none_but(&self, init: i32) -> io::Result<bool> {
        self.freezer()?.has_none_but(init)
    }

    /// Stops every process in the groups but `init`, which has to live and to be in them. It is
    /// done once [`Group::has_stopped`] says so.
    ///
    /// # Errors
    /// `Unsupported` where no group can stop its processes, else what the kernel said; then
    /// [`Group::go_on`] takes back what was done.
    pub fn stop(&self, init: i32) -> io::Result<()> {
        self.freezer()?.freeze(init)
    }

    /// Whether all have stopped.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn has_stopped(&self) -> io::Result<bool> {
        self.freezer()?.is_frozen()
    }

    /// Lets every process go on, and takes `init` in again. Where none was stopped, does nothing.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn go_on(&self, init: i32) -> io::Result<()> {
        self.thaw()?;
        self.freezer()?.add(init)
    }

    /// Lets every process go on, so that those that were killed can die.
    ///
    /// # Errors
    /// As [`Group::stop`].
    pub fn thaw(&self) -> io::Result<()> {
        self.freezer()?.thaw()
    }

    fn freezer(&self) -> io::Result<&Freezer> {
        self.freezer.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Removes the groups, or as many of them as no process lives in; never waits.
    ///
    /// # Errors
    /// The first that could not be removed; a later call tries those that are left.
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

    /// Lets go of the groups without removing them: somebody else has them.
    pub fn release(mut self) {
        self.parts.clear();
        self.freezer = None;
    }

    /// What another process needs to take the groups over: a text for [`Group::recorded`].
    pub fn to_record(&self) -> Vec<u8> {
        let mut record = Vec::new();
        let mut line = |version, what: &str, directory: &Path| {
            let version = if version == Version::One { "1" } else { "2" };
            record.extend_from_slice(format!("{version} {what} ").as_bytes());
            record.extend_from_slice(directory.as_os_str().as_bytes());
            record.push(b'\n');
        };
        for part in &self.parts {
            let held: Vec<_> = part.held.iter().map(|limit| limit.name()).collect();
            line(part.version, &format!("holds,{}", held.join(",")), &part.directory);
        }
        if let Some(freezer) = &self.freezer {
            line(freezer.version, "stops", &freezer.directory);
        }
        record
    }

    /// The groups that another process made and recorded; nothing tells whether they still exist.
    /// `None` for what is no record.
    pub fn recorded(record: &[u8]) -> Option<Self> {
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
            let held = what.strip_prefix("holds,")?.split(',').filter(|name| !name.is_empty());
            let limit = |name| Limit::ALL.into_iter().find(|limit| limit.name() == name);
            let held = held.map(limit).collect::<Option<_>>()?;
            group.parts.push(Part { version, directory, held, leaf: None });
        }
        Some(group)
    }
}

/// Removes a group that a sweep found, with the one in it that stopped its processes.
pub(super) fn remove_abandoned(group: &Path) -> io::Result<()> {
    if !files::words(group, "cgroup.procs")?.is_empty() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // Where there is none, the group itself tells what is wrong.
    let _ = fs::remove_dir(freezer::child_of(group));
    fs::remove_dir(group)
}
