//! Turns access rules into the access mounts of a jail. The rights of a path change only where a
//! rule names it, so there is one area for each such path, and for each system directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stockade_core::access::{Level, Rules, SYSTEM};
use stockade_core::sandbox::User;
use stockade_jail::{AccessMount, AccessMounts, Rights};

use crate::error::Error;

/// Directories that the jail itself provides, and whose content is not the sandbox's.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The one directory below those that contains files.
const SHARED_MEMORY: &str = "/dev/shm";

/// The areas of a jail for these rules; `None` without rules. Directories that are created for them
/// belong to `user`.
pub(crate) fn access_mounts(rules: &Rules, user: User) -> Result<Option<AccessMounts>, Error> {
    let invalid = |error: stockade_core::access::Error| Error::Rules(error.to_string());
    let list = rules.as_slice().map_err(invalid)?;
    if list.is_empty() {
        return Ok(None);
    }
    let named: BTreeSet<&Path> = list.iter().map(|rule| Path::new(&rule.path)).collect();
    for path in &named {
        let of_kernel = KERNEL.iter().any(|top| path.starts_with(top) && *path != Path::new(top));
        if of_kernel && *path != Path::new(SHARED_MEMORY) {
            let text = format!(
                "an access rule for {}, which is reserved for the sandbox itself",
                path.display()
            );
            return Err(Error::Rules(text));
        }
    }
    let kernel = KERNEL.iter().chain([&SHARED_MEMORY]);
    let fixed = SYSTEM.iter().chain(kernel).chain([&"/"]).map(Path::new);
    // Sorted by component, so that a directory comes before its content.
    let paths: BTreeSet<&Path> = named.iter().copied().chain(fixed).collect();

    let mounts = paths.into_iter().map(|path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        let may = |level| rules.allows_processes(level, bytes).is_ok();
        let is_of_kernel = KERNEL.iter().any(|top| path == Path::new(top));
        // Readable, as all of `/dev` is, but writable only by a rule.
        let is_seen = path == Path::new(SHARED_MEMORY)
            && !rules.denies(Level::Read, bytes).map_err(invalid)?;
        let reach = if is_of_kernel && !named.contains(path) {
            Rights::AsIs
        } else if may(Level::Read) || is_seen {
            Rights::Open { write: may(Level::ReadWrite), execute: may(Level::Execute) }
        } else {
            Rights::Closed
        };
        Ok(AccessMount {
            path: PathBuf::from(path),
            rights: reach,
            create_missing: named.contains(path),
        })
    });
    let list = mounts.collect::<Result<_, Error>>()?;
    Ok(Some(AccessMounts { list, user: user.user, group: user.group }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const USER: User = User { user: 1000, group: 1000 };

    fn rules(list: &[(&str, &str, &str)]) -> Rules {
        let rule = |(effect, level, path): &(&str, &str, &str)| serde_json::json!({"effect": effect, "level": level, "path": path});
        Rules::from_values(list.iter().map(rule).collect()).unwrap()
    }

    fn rights_of(list: &[(&str, &str, &str)]) -> BTreeMap<String, Rights> {
        let access_mounts = access_mounts(&rules(list), USER).unwrap().unwrap();
        assert_eq!(access_mounts.list[0].path, Path::new("/"));
        let named = |access_mount: AccessMount| {
            (access_mount.path.display().to_string(), access_mount.rights)
        };
        access_mounts.list.into_iter().map(named).collect()
    }

    const fn open(write: bool, execute: bool) -> Rights {
        Rights::Open { write, execute }
    }

    #[test]
    fn no_rules_make_no_areas_and_unreadable_ones_no_sandbox() {
        assert!(access_mounts(&Rules::default(), USER).unwrap().is_none());
        assert!(matches!(access_mounts(&Rules::from_stored("{"), USER), Err(Error::Rules(_))));
    }

    #[test]
    fn what_no_rule_allows_is_closed_but_for_the_system() {
        let reaches =
            rights_of(&[("allow", "readwrite", "/w"), ("deny", "readwrite", "/w/vendor")]);
        for (path, reach) in [
            ("/", Rights::Closed),
            ("/w", open(true, false)),
            ("/w/vendor", open(false, false)),
            ("/usr", open(false, true)),
            ("/etc", open(false, true)),
            ("/dev", Rights::AsIs),
            ("/dev/shm", open(false, false)),
            ("/proc", Rights::AsIs),
        ] {
            assert_eq!(reaches[path], reach, "{path}");
        }
    }

    #[test]
    fn a_rule_that_names_a_directory_of_the_system_decides_on_it() {
        let named = rights_of(&[("allow", "read", "/usr"), ("allow", "readwrite", "/dev/shm")]);
        assert_eq!(named["/usr"], open(false, false));
        assert_eq!(named["/dev/shm"], open(true, false));
        let carved = rights_of(&[
            ("allow", "read", "/"),
            ("deny", "execute", "/usr/bin"),
            ("deny", "read", "/etc"),
            ("allow", "readwrite", "/usr/local/mine"),
        ]);
        assert_eq!(carved["/"], open(false, false));
        assert_eq!(carved["/usr"], open(false, true));
        assert_eq!(carved["/usr/bin"], open(false, false));
        assert_eq!(carved["/usr/local/mine"], open(true, true));
        assert_eq!(carved["/etc"], Rights::Closed);
    }

    #[test]
    fn what_is_in_the_directories_of_the_kernel_has_no_rules() {
        for path in ["/proc/self", "/sys/kernel", "/dev/null"] {
            let refused = access_mounts(&rules(&[("allow", "read", path)]), USER).unwrap_err();
            assert!(matches!(refused, Error::Rules(text) if text.contains(path)));
        }
    }
}
