//! Access rules whose paths lead through symbolic links.
//!
//! Operations from outside apply a rule to the real path of the opened file, and the jail to mounts.
//! A rule for a link would mean different files for the two, so it is refused.

use std::path::{Component, Path, PathBuf};

use crate::error::Error;

/// The maximal number of links on the way, as in the kernel.
const MAX_LINKS: usize = 40;

/// Refuses a path inside that leads through a link. `host_path` returns the path on the host of what
/// is at a path inside.
pub(super) fn refuse(
    path: &Path,
    host_path: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Result<(), Error> {
    let Some((link, mut real)) = follow(path, host_path) else { return Ok(()) };
    for _ in 0..MAX_LINKS {
        match follow(&real, host_path) {
            Some((_, next)) => real = next,
            None => break,
        }
    }
    Err(Error::Rules(format!(
        "an access rule for {} leads through the link {}: write it for {}",
        path.display(),
        link.display(),
        real.display()
    )))
}

/// The first link on the way to a path inside, and the path with that link followed.
fn follow(path: &Path, host_path: &dyn Fn(&Path) -> Option<PathBuf>) -> Option<(PathBuf, PathBuf)> {
    let mut ancestors: Vec<_> = path.ancestors().collect();
    ancestors.reverse();
    for above in ancestors {
        let Some(host) = host_path(above) else { continue };
        // Nothing is found behind what is no link: it was looked at before.
        let Ok(target) = std::fs::read_link(host) else { continue };
        let rest = path.strip_prefix(above).ok()?;
        return Some((above.to_owned(), normalize(&above.parent()?.join(target).join(rest))));
    }
    None
}

/// A path without `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn rules_through_links_are_refused_with_the_real_path() {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("usr/bin/deep")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/bin/deep", root.join("usr/absolute")).unwrap();
        symlink("../bin", root.join("usr/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let host_path = |inside: &Path| Some(root.join(inside.strip_prefix("/").ok()?));
        let refused = |path: &str| match refuse(Path::new(path), &host_path) {
            Ok(()) => None,
            Err(Error::Rules(text)) => Some(text),
            Err(other) => panic!("{other}"),
        };
        for good in ["/", "/usr/bin", "/usr/bin/deep", "/usr/bin/none", "/none/x"] {
            assert_eq!(refused(good), None, "{good}");
        }
        for (path, link, real) in [
            ("/bin", "/bin", "/usr/bin"),
            ("/bin/x/y", "/bin", "/usr/bin/x/y"),
            ("/usr/absolute/z", "/usr/absolute", "/usr/bin/deep/z"),
            ("/usr/up/deep", "/usr/up", "/usr/bin/deep"),
        ] {
            let expected = format!(
                "an access rule for {path} leads through the link {link}: write it for {real}"
            );
            assert_eq!(refused(path), Some(expected));
        }
        assert!(refused("/loop").is_some());
    }
}
