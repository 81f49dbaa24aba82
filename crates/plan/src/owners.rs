//! Whether an overlay can take changes to every file of a project. The kernel copies a file to the
//! upper layer only if the jail has an id for its owner and its group, else the change fails with
//! EOVERFLOW (`ovl_copy_up_one`). An ordinary user's jail has one user and one group.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat};
use stockade_jail::Identity;

/// How many entries a one-shot run looks at, from the top down.
pub const ENTRIES_OF_A_RUN: usize = 20_000;
/// The same where many sandboxes wait.
pub const ENTRIES_OF_A_KEEPER: usize = 500;

/// Which owners of files a jail can represent.
#[derive(Debug)]
enum Ids {
    /// One user and one group. `groups` are the caller's others, through which files are writable.
    Own { user: u32, group: u32, groups: Vec<u32> },
    /// All ids below a number.
    Below(u32),
}

impl Ids {
    fn of(identity: &Identity) -> Self {
        match identity {
            Identity::Range(range) => Self::Below(range.count),
            Identity::Own { user, group } => {
                let groups = rustix::process::getgroups().unwrap_or_default();
                let groups = groups.into_iter().map(|group| group.as_raw()).collect();
                Self::Own { user: *user, group: *group, groups }
            }
        }
    }

    /// Whether a change that the caller may make on the host fails in an overlay.
    fn lack(&self, stat: &Stat) -> bool {
        match self {
            Self::Below(count) => stat.uid >= *count || stat.gid >= *count,
            Self::Own { user, group, .. } if stat.uid == *user => stat.gid != *group,
            Self::Own { group, groups, .. } => {
                let is_member = stat.gid == *group || groups.contains(&stat.gid);
                stat.kind != FileKind::Symlink
                    && (stat.mode & 0o002 != 0 || is_member && stat.mode & 0o020 != 0)
            }
        }
    }
}

/// A file of the project that an overlay cannot change although the caller may, among the first
/// `most` entries. What cannot be read is left out: nothing inside can change it.
pub fn unrepresentable(identity: &Identity, project: &Path, most: usize) -> Option<PathBuf> {
    let ids = Ids::of(identity);
    let top = Dir::open(project).ok()?;
    if ids.lack(&top.stat_self().ok()?) {
        return Some(project.to_owned());
    }
    let mut directories = VecDeque::from([None::<RelativePath>]);
    let mut seen = 0;
    while let Some(directory) = directories.pop_front() {
        let opened = match &directory {
            None => top.reopen(),
            Some(path) => top.open_dir(path),
        };
        let Ok(dir) = opened else { continue };
        for (name, kind) in dir.entries_up_to(most as u64).ok().flatten().unwrap_or_default() {
            seen += 1;
            if seen > most {
                return None;
            }
            let Ok(single) = RelativePath::new(name.clone()) else { continue };
            let path = match &directory {
                None => single.clone(),
                Some(above) => match above.join(&name) {
                    Ok(path) => path,
                    Err(_) => continue,
                },
            };
            let Ok(Some(stat)) = dir.stat(&single) else { continue };
            if ids.lack(&stat) {
                return Some(project.join(path.as_os_str()));
            }
            if kind == FileKind::Directory {
                directories.push_back(Some(path));
            }
        }
    }
    None
}

/// Why an overlay is not used, for a message.
pub fn reason(path: &Path, identity: &Identity) -> String {
    let what = match identity {
        Identity::Own { .. } => "its owner or its group is not your first one",
        Identity::Range(_) => "its owner or its group has no id in the sandbox",
    };
    format!("{} cannot be changed in an overlay, because {what}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(uid: u32, gid: u32, mode: u32) -> Stat {
        let dir = tempfile::tempdir().unwrap();
        let stat = Stat::of_host(dir.path()).unwrap();
        Stat { uid, gid, mode, ..stat }
    }

    #[test]
    fn what_the_caller_may_write_needs_ids_and_what_he_may_not_needs_none() {
        let own = Ids::Own { user: 1000, group: 1000, groups: vec![50, 1000] };
        for (uid, gid, mode, lacks) in [
            (1000, 1000, 0o644, false),
            (1000, 50, 0o600, true),
            (1000, 7, 0o600, true),
            (0, 50, 0o664, true),
            (0, 50, 0o644, false),
            (0, 0, 0o666, true),
            (0, 0, 0o755, false),
            (0, 7, 0o775, false),
            (7, 1000, 0o660, true),
        ] {
            assert_eq!(own.lack(&stat(uid, gid, mode)), lacks, "{uid}:{gid} {mode:o}");
        }
        let range = Ids::Below(65_536);
        for (uid, gid, lacks) in
            [(0, 0, false), (65_535, 0, false), (65_536, 0, true), (0, 1 << 30, true)]
        {
            assert_eq!(range.lack(&stat(uid, gid, 0o600)), lacks, "{uid}:{gid}");
        }
    }

    #[test]
    fn deep_entries_are_found_up_to_a_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        let (user, group) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let own = Identity::Own { user, group };
        assert_eq!(unrepresentable(&own, dir.path(), 100), None);
        let other = Identity::Own { user, group: group + 1 };
        assert_eq!(unrepresentable(&other, dir.path(), 100).unwrap(), dir.path());
    }
}
