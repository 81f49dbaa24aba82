//! Whether an overlay can take changes to every file of a project, and which files have several names,
//! which an overlay would separate. The kernel copies a file to the
//! upper layer only if the jail has an id for its owner and its group, else the change fails with
//! EOVERFLOW (`ovl_copy_up_one`). An ordinary user's jail has one user and one group.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat};
use stockade_bundle::view::{HardLinkLimits, HardLinks};
use stockade_jail::Identity;

/// How many entries a one-shot run looks at, from the top down.
pub const ENTRIES_OF_A_RUN: usize = 20_000;
/// The same where many sandboxes wait.
pub const ENTRIES_OF_A_KEEPER: usize = 500;

/// How many files with several names a one-shot run puts into its view.
pub const HARD_LINKS_OF_A_RUN: HardLinkLimits = HardLinkLimits { names: 2_000, bytes: 64 << 20 };
/// The same where many sandboxes wait.
pub const HARD_LINKS_OF_A_KEEPER: HardLinkLimits = HardLinkLimits { names: 100, bytes: 1 << 20 };

/// The id of what belongs to nobody in a namespace (`overflowuid` in `proc(5)`).
const NO_OWNER: u32 = 65_534;

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
            // Seen from outside of their namespace, only the caller's own files have an id.
            Identity::Range(range) if range.subordinate().is_some() => {
                Self::own(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
            // There, a file of another user has the id for files without an owner.
            Identity::Range(range) if range.is_unshifted() => Self::Below(NO_OWNER),
            Identity::Range(range) => Self::Below(range.count),
            Identity::Own { user, group } => Self::own(*user, *group),
        }
    }

    fn own(user: u32, group: u32) -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().map(|group| group.as_raw()).collect();
        Self::Own { user, group, groups }
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

/// What is particular about the files of a project, where it is shown through an overlay.
#[derive(Debug, Default)]
pub struct Survey {
    /// A file that an overlay cannot change although the caller may.
    pub unrepresentable: Option<PathBuf>,
    /// The files with several names. Those in git directories are left out, as git never writes to
    /// one, and so are those on other mounts, which an overlay does not show.
    pub hard_links: HardLinks,
}

/// Looks at the first `most` entries of a project, from the top down, until one is found that an overlay
/// cannot change. What cannot be read is left out: nothing inside can change it.
pub fn survey(identity: &Identity, project: &Path, most: usize) -> Survey {
    let ids = Ids::of(identity);
    let mut survey = Survey::default();
    // What cannot be read is reported when it is opened.
    let Ok(top) = Dir::open(project) else { return survey };
    let Ok(own) = top.stat_self() else { return survey };
    if ids.lack(&own) {
        survey.unrepresentable = Some(project.to_owned());
        return survey;
    }
    let mut directories = VecDeque::from([(None::<RelativePath>, true)]);
    let mut seen = 0;
    while let Some((directory, above_is_shown)) = directories.pop_front() {
        let opened = match &directory {
            None => top.reopen(),
            Some(path) => top.open_dir(path),
        };
        let Ok(dir) = opened else { continue };
        for (name, kind) in dir.entries_up_to(most as u64).ok().flatten().unwrap_or_default() {
            seen += 1;
            if seen > most {
                return survey;
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
                survey.unrepresentable = Some(project.join(path.as_os_str()));
                return survey;
            }
            let is_shown = above_is_shown && stat.mount == own.mount && name != b".git";
            if kind == FileKind::Directory {
                directories.push_back((Some(path), is_shown));
            } else if is_shown {
                survey.hard_links.add(&path, &stat);
            }
        }
    }
    survey
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
    fn files_with_several_names_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (user, group) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let own = Identity::Own { user, group };
        std::fs::create_dir_all(dir.path().join("a/.git")).unwrap();
        std::fs::write(dir.path().join("one"), "x").unwrap();
        std::fs::hard_link(dir.path().join("one"), dir.path().join("a/.git/two")).unwrap();
        assert!(survey(&own, dir.path(), 100).hard_links.is_empty());
        std::fs::hard_link(dir.path().join("one"), dir.path().join("a/three")).unwrap();
        assert!(!survey(&own, dir.path(), 100).hard_links.is_empty());
        assert!(survey(&own, dir.path(), 2).hard_links.is_empty());
    }

    #[test]
    fn deep_entries_are_found_up_to_a_number() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        let (user, group) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let own = Identity::Own { user, group };
        assert_eq!(survey(&own, dir.path(), 100).unrepresentable, None);
        let other = Identity::Own { user, group: group + 1 };
        assert_eq!(survey(&other, dir.path(), 100).unrepresentable.unwrap(), dir.path());
    }
}
