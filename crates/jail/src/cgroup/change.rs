//! Changes of the limits of groups in which processes already are.

use std::io;
use std::path::Path;

use super::{Group, Limit, Limits, Part, Version, v1, v2};

/// Why a limit could not be changed. The limits are as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeRefused {
    /// The groups do not enforce this limit, and those of version 1 cannot be made to do so while
    /// processes run: each would have to be moved.
    #[error("the sandbox was created without the limit `{}`, and its control groups cannot get it while processes run", .0.name())]
    Absent(Limit),
    /// The group above cannot be made to give the controller: other processes are in it.
    #[error("the sandbox was created without the limit `{}`, and {file} cannot be changed now", limit.name())]
    NotGiven {
        /// The limit.
        limit: Limit,
        /// The control file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// More memory is in use.
    #[error(
        "the sandbox uses {used} bytes of memory now, which is more than the new limit of {limit} bytes"
    )]
    InUse {
        /// Bytes that are in use.
        used: u64,
        /// The new limit.
        limit: u64,
    },
    /// The kernel refused the change.
    #[error("the kernel refused to change {file}")]
    Kernel {
        /// The limit.
        limit: Limit,
        /// The control file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl ChangeRefused {
    /// The limit.
    pub const fn limit(&self) -> Limit {
        match self {
            Self::Absent(limit) | Self::NotGiven { limit, .. } | Self::Kernel { limit, .. } => {
                *limit
            }
            Self::InUse { .. } => Limit::Memory,
        }
    }
}

impl Group {
    /// Changes the limits that are given, from what they are now, `before`. Groups of version 2 can also
    /// get limits that they did not have.
    ///
    /// # Errors
    /// Why one of them cannot be changed; then none is.
    pub fn change(&mut self, before: &Limits, limits: &Limits) -> Result<(), ChangeRefused> {
        let given = || Limit::ALL.into_iter().filter(|limit| limits.get(*limit).is_some());
        for limit in given() {
            self.give_controller(limit)?;
        }
        let mut changed: Vec<Limit> = Vec::new();
        for limit in given() {
            let Err(refused) = self.change_one(limit, &limits.only(&[limit])) else {
                changed.push(limit);
                continue;
            };
            for limit in changed {
                let _ = match (before.get(limit), self.part(limit)) {
                    (None, Some(part)) => v2::lift(&part.directory, limit),
                    _ => self.change_one(limit, &before.only(&[limit])).map_err(io::Error::other),
                };
            }
            return Err(refused);
        }
        Ok(())
    }

    /// Whether the groups enforce a limit, or can be made to.
    pub fn can_limit(&self, limit: Limit) -> bool {
        self.part(limit).is_some() || self.parts.iter().any(|part| part.can_get(limit))
    }

    /// Ensures that one of the groups can enforce a limit.
    fn give_controller(&mut self, limit: Limit) -> Result<(), ChangeRefused> {
        if self.part(limit).is_some() {
            return Ok(());
        }
        let part = self.parts.iter_mut().find(|part| part.can_get(limit));
        let part = part.ok_or(ChangeRefused::Absent(limit))?;
        let parent = part.parent();
        v2::give(parent, &[limit.controller()]).map_err(|source| {
            let file = parent.join("cgroup.subtree_control").display().to_string();
            ChangeRefused::NotGiven { limit, file, source }
        })?;
        part.enforced.push(limit);
        Ok(())
    }

    fn change_one(&self, limit: Limit, limits: &Limits) -> Result<(), ChangeRefused> {
        let part = self.part(limit).ok_or(ChangeRefused::Absent(limit))?;
        let group = &part.directory;
        let changed = match part.version {
            Version::One => v1::change(group, limits),
            Version::Two => {
                // The kernel would kill processes instead of refusing it.
                let used = limits.memory_bytes.and_then(|_| v2::memory_in_use(group).ok());
                if let (Some(used), Some(limit)) = (used, limits.memory_bytes)
                    && used > limit
                {
                    return Err(ChangeRefused::InUse { used, limit });
                }
                v2::change(group, limits)
            }
        };
        changed.map_err(|(file, source)| match limits.memory_bytes {
            Some(limit) if source.kind() == io::ErrorKind::ResourceBusy => {
                let used = self.memory_current().unwrap_or(limit);
                ChangeRefused::InUse { used, limit }
            }
            _ => {
                let file = group.join(file).display().to_string();
                ChangeRefused::Kernel { limit, file, source }
            }
        })
    }
}

impl Part {
    /// Whether it can be made to enforce a limit: its parent has the controller.
    fn can_get(&self, limit: Limit) -> bool {
        self.version == Version::Two && v2::has(self.parent(), limit.controller())
    }

    fn parent(&self) -> &Path {
        self.directory.parent().unwrap_or_else(|| Path::new("/"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A directory that imitates a group with these files, and its parent.
    fn group(version: Version, enforced: &[Limit], files: &[(&str, &str)]) -> (Group, PathBuf) {
        let place = tempfile::tempdir().unwrap().keep();
        let directory = place.join("box");
        fs::create_dir(&directory).unwrap();
        fs::write(place.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(place.join("cgroup.subtree_control"), "").unwrap();
        for (file, content) in files {
            fs::write(directory.join(file), content).unwrap();
        }
        let part = Part { version, directory, enforced: enforced.to_vec(), leaf: None };
        (Group { parts: vec![part], freezer: None }, place)
    }

    fn read(place: &Path, file: &str) -> String {
        fs::read_to_string(place.join("box").join(file)).unwrap()
    }

    #[test]
    fn a_group_of_version_2_changes_its_limits_and_gets_new_ones() {
        let files = [
            ("memory.max", "9"),
            ("memory.current", "3000000"),
            ("memory.stat", "active_file 0\ninactive_file 1000000\nslab_reclaimable 0\n"),
            ("cpu.max", ""),
            ("pids.max", ""),
        ];
        let (mut group, place) = group(Version::Two, &[Limit::Memory], &files);
        let before = Limits { memory_bytes: Some(9), ..Limits::default() };
        let limits = Limits { memory_bytes: Some(4 * MIB), cpu_millis: Some(1500), pids: Some(7) };
        group.change(&before, &limits).unwrap();
        assert_eq!(read(&place, "memory.max"), (4 * MIB).to_string());
        assert_eq!(read(&place, "cpu.max"), "150000 100000");
        assert_eq!(read(&place, "pids.max"), "7");
        // Each new controller was switched on in the parent.
        let given = fs::read_to_string(place.join("cgroup.subtree_control")).unwrap();
        assert_eq!(given, "+pids");
        assert_eq!(group.enforcer(Limit::Cpus), Some("cgroup v2"));
        // One without the controllers is beside hierarchies of version 1 that have them.
        fs::write(place.join("cgroup.controllers"), "\n").unwrap();
        let parts = vec![Part { enforced: Vec::new(), ..group.parts.remove(0) }];
        let mut beside = Group { parts, freezer: None };
        assert!(!beside.can_limit(Limit::Memory));
        let refused = beside.change(&Limits::default(), &limits).unwrap_err();
        assert!(matches!(refused, ChangeRefused::Absent(Limit::Memory)), "{refused}");
        let parts = vec![Part { enforced: vec![Limit::Memory], ..beside.parts.remove(0) }];
        let mut group = Group { parts, freezer: None };

        let refused = group.change(&limits, &Limits { memory_bytes: Some(MIB), ..before });
        let Err(ChangeRefused::InUse { used: 2_000_000, limit: MIB }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(read(&place, "memory.max"), (4 * MIB).to_string());
        std::mem::forget(group);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_group_of_version_1_changes_only_what_it_limits() {
        let files = [("memory.limit_in_bytes", "9"), ("memory.memsw.limit_in_bytes", "9")];
        let (mut group, place) = group(Version::One, &[Limit::Memory], &files);
        let before = Limits { memory_bytes: Some(9), ..Limits::default() };
        for bytes in [5, 4 * MIB] {
            let limits = Limits { memory_bytes: Some(bytes), ..Limits::default() };
            group.change(&before, &limits).unwrap();
            assert_eq!(read(&place, "memory.limit_in_bytes"), bytes.to_string());
            assert_eq!(read(&place, "memory.memsw.limit_in_bytes"), bytes.to_string());
        }
        let limits = Limits { memory_bytes: Some(5), cpu_millis: Some(100), pids: None };
        let refused = group.change(&before, &limits).unwrap_err();
        assert!(matches!(refused, ChangeRefused::Absent(Limit::Cpus)), "{refused}");
        assert_eq!(read(&place, "memory.limit_in_bytes"), (4 * MIB).to_string());
        std::mem::forget(group);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn limits_that_were_changed_are_set_back_when_another_one_fails() {
        for before in [Some(1_000_000), None] {
            let files = [("memory.max", "1000000"), ("memory.swap.max", "0")];
            let (mut group, place) = group(Version::Two, &[Limit::Memory], &files);
            let before = Limits { memory_bytes: before, ..Limits::default() };
            // The kernel made no file for the processors.
            let limits = Limits { memory_bytes: Some(MIB), cpu_millis: Some(100), pids: None };
            let refused = group.change(&before, &limits).unwrap_err();
            assert_eq!(refused.limit(), Limit::Cpus, "{refused}");
            // A file of these tests is not cut short.
            let is_lifted = read(&place, "memory.max").starts_with("max");
            assert_eq!(is_lifted, before.memory_bytes.is_none());
            assert!(is_lifted || read(&place, "memory.max") == "1000000");
            std::mem::forget(group);
            fs::remove_dir_all(place).unwrap();
        }
    }
}
