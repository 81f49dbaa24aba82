//! The place that a path of another process names: it is followed name by name, as the kernel does for that
//! process, because a link of `/proc` would lead to another place here (`/proc/self`).

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};

/// How many symbolic links a path may lead through (`MAXSYMLINKS` of linux/namei.h).
const MAX_LINKS: usize = 40;
/// The type of `/proc`, `PROC_SUPER_MAGIC` of linux/magic.h.
const PROC: u64 = 0x9fa0;

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) parent: OwnedFd,
    pub(super) name: CString,
}

impl Place {
    /// The place that `path` names from `start` on. `None` for a path that leads nowhere or through
    /// `/proc`, and for one without a last name.
    pub(super) fn find(root: &OwnedFd, start: OwnedFd, path: &[u8]) -> Option<Self> {
        let mut parent = start;
        let mut names = names(path).collect::<VecDeque<_>>();
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if is_proc(parent.as_fd())? {
                return None;
            }
            let name = CString::new(name).ok()?;
            if names.is_empty() {
                let has_name = !matches!(name.to_bytes(), b"." | b"..");
                return has_name.then_some(Self { parent, name });
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = rustix::fs::openat(&parent, &name, flags, Mode::empty()).ok()?;
            match FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode) {
                FileType::Directory => parent = found,
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS || is_proc(found.as_fd())? {
                        return None;
                    }
                    let target = rustix::fs::readlinkat(&found, c"", Vec::new()).ok()?;
                    if target.to_bytes().starts_with(b"/") {
                        parent = root.try_clone().ok()?;
                    }
                    let target = self::names(target.to_bytes()).collect::<Vec<_>>();
                    target.into_iter().rev().for_each(|name| names.push_front(name));
                }
                _ => return None,
            }
        }
        None
    }
}

/// The names in a path, without those that mean nothing.
fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}

fn is_proc(place: BorrowedFd<'_>) -> Option<bool> {
    let system = rustix::fs::fstatfs(place).ok()?;
    Some(system.f_type.cast_unsigned() == PROC)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// Where a path leads from `top`, which is the root for absolute links too.
    fn find(top: &Path, path: &str) -> Option<(u64, String)> {
        let place = Place::find(&open(top), open(top), path.as_bytes())?;
        let inode = rustix::fs::fstat(&place.parent).unwrap().st_ino;
        Some((inode, place.name.into_string().unwrap()))
    }

    #[test]
    fn a_path_is_followed_as_the_kernel_does() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        std::fs::create_dir_all(top.join("a/b/c")).unwrap();
        symlink("a/b", top.join("relative")).unwrap();
        symlink("/a", top.join("absolute")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        std::fs::write(top.join("file"), "").unwrap();
        let at = |path: &str, name: &str| {
            let inode = std::fs::metadata(top.join(path)).unwrap().ino();
            Some((inode, name.to_owned()))
        };
        assert_eq!(find(top, "a"), at("", "a"));
        assert_eq!(find(top, "./a//b/../b/new/"), at("a/b", "new"));
        assert_eq!(find(top, "relative/new"), at("a/b", "new"));
        assert_eq!(find(top, "relative/../new"), at("a", "new"));
        assert_eq!(find(top, "absolute/b/c"), at("a/b", "c"));
        // The last name is not followed.
        assert_eq!(find(top, "relative"), at("", "relative"));
        for nowhere in ["", "/", ".", "a/..", "missing/new", "file/new", "loop/new", "a/\0/b"] {
            assert_eq!(find(top, nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn no_path_leads_through_proc() {
        let directory = tempfile::tempdir().unwrap();
        symlink("/proc/self/cwd", directory.path().join("here")).unwrap();
        let root = open(Path::new("/"));
        for path in ["/proc/self/cwd/new", "/proc/new", "/dev/fd/0/new", "here/new"] {
            let start = open(if path.starts_with('/') { Path::new("/") } else { directory.path() });
            assert!(Place::find(&root, start, path.as_bytes()).is_none(), "{path}");
        }
        let inside = open(Path::new("/proc/self"));
        assert!(Place::find(&root, inside, b"cwd/new").is_none());
    }
}
