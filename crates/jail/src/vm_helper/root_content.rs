//! The content of the jail's own root before anything is mounted in it: directories, files,
//! symbolic links, and mount points. All of it is made while that root is detached, so this need
//! not wait until the host's root is unmounted.
//!
//! [`RootContent::make`] runs in the helper, which shares the memory of a concurrently running
//! process: it allocates nothing and makes bare system calls only. Its paths lead only through
//! directories that it has made itself, in a file system that no other process has, and through no
//! link.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, mknodat, openat, symlinkat};

use crate::dev_proc::{DEVICES, DevProc, LINKS};
use crate::mounts::c_path;
use crate::spec::{Mount, Source};

/// All nodes of a root, each after its parent directory.
#[derive(Debug, Default)]
pub(crate) struct RootContent {
    nodes: Vec<(CString, Node)>,
    /// The index of the node at each path; the paths are [`normalized`].
    index: BTreeMap<Vec<u8>, usize>,
}

/// One node, at its path below the root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    /// A file that everybody may read.
    File(Vec<u8>),
    /// A symbolic link to this path.
    Link(CString),
    /// An empty file, to be covered by a mount.
    MountPoint,
}

/// The nodes of a root to which all fixtures can be attached.
fn mount_points() -> impl Iterator<Item = (&'static str, Node)> {
    let directories = ["/dev", "/dev/pts", "/dev/shm", "/proc", "/sys"];
    let directories = directories.into_iter().map(|path| (path, Node::Directory));
    let devices = DEVICES.into_iter().map(|path| (path, Node::MountPoint));
    let links = LINKS.into_iter().map(|(path, to)| (path, Node::Link(to.to_owned())));
    let text = |(path, node): (&'static CStr, _)| Some((path.to_str().ok()?, node));
    directories.chain(devices.chain(links).filter_map(text))
}

/// The content of a root that is otherwise empty.
#[derive(Debug)]
pub(crate) struct RootPlan {
    pub(crate) content: RootContent,
    /// For each remaining mount, whether its mount point is part of the content.
    pub(crate) have_mount_points: Vec<bool>,
}

impl RootPlan {
    /// Takes the files, links and directories from the mounts of an empty root. Leaves, in the same
    /// order, real mounts and everything that lies within a mount or behind a link.
    ///
    /// # Errors
    /// A path that contains a null byte, and the error of fstat(2).
    pub(crate) fn new(mounts: &mut Vec<(PathBuf, Mount)>) -> io::Result<Self> {
        let mut content = RootContent::default();
        for (path, node) in mount_points() {
            content.put(path.as_bytes(), node)?;
        }
        let mut mounted = BTreeSet::new();
        let (mut left, mut have_mount_points) = (Vec::new(), Vec::new());
        for (path, mount) in std::mem::take(mounts) {
            let at = normalized(&path);
            let is_within = above(&at).any(|above| mounted.contains(above));
            let is_ours = !is_within && !DevProc::contains(&path) && content.can_have(&at);
            let is_free = is_ours && content.is_free(&at);
            let rest = match mount {
                Mount::File(text) if is_ours => content.put_file(&at, text)?.map(Mount::File),
                Mount::Link(to) if is_free => {
                    content.put(&at, Node::Link(c_path(&to)?))?;
                    None
                }
                Mount::Directory if is_free => {
                    content.put(&at, Node::Directory)?;
                    None
                }
                Mount::Tree(_) | Mount::Scratch(_) => {
                    if is_free {
                        content.put(&at, mount_point_of(&mount)?)?;
                    }
                    mounted.insert(at);
                    Some(mount)
                }
                Mount::File(_) | Mount::Link(_) | Mount::Directory | Mount::Optional(_) => {
                    Some(mount)
                }
            };
            if let Some(mount) = rest {
                let is_mounted = matches!(mount, Mount::Tree(_) | Mount::Scratch(_));
                have_mount_points.push(is_free && is_mounted);
                left.push((path, mount));
            }
        }
        *mounts = left;
        Ok(Self { content, have_mount_points })
    }
}

impl RootContent {
    /// Whether everything above a path is, or will be, a directory.
    fn can_have(&self, path: &[u8]) -> bool {
        above(path).all(|above| match self.at(above) {
            None | Some(Node::Directory) => true,
            Some(Node::File(_) | Node::Link(_) | Node::MountPoint) => false,
        })
    }

    fn at(&self, path: &[u8]) -> Option<&Node> {
        self.index.get(path).and_then(|at| self.nodes.get(*at)).map(|(_, node)| node)
    }

    fn is_free(&self, path: &[u8]) -> bool {
        path.len() > 1 && !self.index.contains_key(path)
    }

    /// Adds a node, with missing parent directories.
    fn put(&mut self, path: &[u8], node: Node) -> io::Result<()> {
        if let Some(above) = above(path).next().filter(|above| self.is_free(above)) {
            self.put(above, Node::Directory)?;
        }
        let below = CString::new(path.strip_prefix(b"/").unwrap_or(path))?;
        self.index.insert(path.to_owned(), self.nodes.len());
        self.nodes.push((below, node));
        Ok(())
    }

    /// Adds or replaces a file; returns its text if another kind of node exists there.
    fn put_file(&mut self, path: &[u8], text: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
        if self.is_free(path) {
            return self.put(path, Node::File(text)).map(|()| None);
        }
        let at = self.index.get(path).copied();
        match at.and_then(|at| self.nodes.get_mut(at)) {
            Some((_, Node::File(before))) => {
                *before = text;
                Ok(None)
            }
            _ => Ok(Some(text)),
        }
    }

    /// Makes all nodes below a root that is empty and that no other process has.
    ///
    /// # Errors
    /// The error of the first node that could not be made.
    pub(crate) fn make(&self, root: BorrowedFd<'_>) -> rustix::io::Result<()> {
        for (path, node) in &self.nodes {
            match node {
                Node::Directory => mkdirat(root, path, Mode::from_raw_mode(0o755))?,
                Node::Link(to) => symlinkat(to, root, path)?,
                Node::MountPoint => {
                    mknodat(root, path, FileType::RegularFile, Mode::from_raw_mode(0o444), 0)?;
                }
                Node::File(text) => {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                    let file = openat(root, path, flags, Mode::from_raw_mode(0o644))?;
                    let mut rest = text.as_slice();
                    while !rest.is_empty() {
                        let written = rustix::io::write(&file, rest)?;
                        rest = rest.get(written..).unwrap_or_default();
                    }
                }
            }
        }
        Ok(())
    }
}

/// A path without empty and `.` components, so that equal paths have equal bytes.
fn normalized(path: &Path) -> Vec<u8> {
    path.components().collect::<PathBuf>().into_os_string().into_vec()
}

/// The parent directories of a normalized path, from the nearest to the root.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at.max(1)).filter(|end| *end < path.len());
    ends.filter_map(|end| path.get(..end))
}

/// The node that a mount covers.
fn mount_point_of(mount: &Mount) -> io::Result<Node> {
    let Mount::Tree(Source::Host { tree, .. }) = mount else { return Ok(Node::Directory) };
    let kind = FileType::from_raw_mode(fstat(&tree.file)?.st_mode);
    Ok(if kind.is_dir() { Node::Directory } else { Node::MountPoint })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::spec::{Access, HostTree, Owners, Scratch};

    fn tree(path: &str) -> Mount {
        let tree = HostTree::open(Path::new(path)).unwrap();
        Mount::Tree(Source::Host { tree, access: Access::Read, owners: Owners::Nobody })
    }

    fn scratch() -> Mount {
        Mount::Scratch(Scratch { mode: 0o700, size_bytes: 4096, user: 0, group: 0 })
    }

    fn file(text: &str) -> Mount {
        Mount::File(text.as_bytes().to_vec())
    }

    fn of(mounts: Vec<(&str, Mount)>) -> (RootContent, Vec<(String, bool)>) {
        let mut mounts = mounts.into_iter().map(|(path, mount)| (path.into(), mount)).collect();
        let RootPlan { content, have_mount_points } = RootPlan::new(&mut mounts).unwrap();
        let left = mounts.iter().map(|(path, _)| path.display().to_string()).zip(have_mount_points);
        (content, left.collect())
    }

    #[test]
    fn everything_is_made_below_the_root_and_mounts_find_their_places() {
        let (content, left) = of(vec![
            ("/usr", tree("/usr")),
            ("/lib64", Mount::Link("usr/lib64".into())),
            ("/etc/passwd", file("root\n")),
            ("/etc/hosts", file("first")),
            ("/etc/hosts", file("last")),
            ("/etc/services", tree("/etc/passwd")),
            ("/run", Mount::Directory),
            ("/a/b/c", scratch()),
        ]);
        let there = |path: &str| (path.to_owned(), true);
        assert_eq!(left, [there("/usr"), there("/etc/services"), there("/a/b/c")]);
        let dir = tempfile::tempdir().unwrap();
        let root = fs::File::open(dir.path()).unwrap();
        content.make(root.as_fd()).unwrap();
        let at = |path: &str| dir.path().join(path);
        assert_eq!(fs::read_to_string(at("etc/hosts")).unwrap(), "last");
        assert_eq!(fs::read_link(at("lib64")).unwrap(), Path::new("usr/lib64"));
        assert_eq!(fs::metadata(at("etc/services")).unwrap().len(), 0);
        for path in ["usr", "run", "a/b/c", "dev/pts", "dev/shm", "proc", "sys"] {
            assert!(fs::metadata(at(path)).unwrap().is_dir(), "{path}");
        }
        assert_eq!(fs::metadata(at("etc/passwd")).unwrap().mode() & 0o777, 0o644);
        assert!(fs::metadata(at("dev/null")).unwrap().is_file());
    }

    #[test]
    fn what_lies_in_a_mount_or_behind_a_link_waits_until_that_is_there() {
        let (content, left) = of(vec![
            ("/tmp", scratch()),
            ("/tmp/project", tree("/usr")),
            ("/tmp/file", file("x")),
            ("//tmp/.//more/", file("x")),
            ("/bin", Mount::Link("/tmp".into())),
            ("/bin/tool", tree("/etc/passwd")),
            ("/etc/hosts", file("x")),
            ("/etc/hosts/below", file("x")),
            ("/dev/own", tree("/etc/passwd")),
            ("/etc/hosts", tree("/etc/passwd")),
        ]);
        let later = |path: &str| (path.to_owned(), false);
        let expected = [
            ("/tmp".to_owned(), true),
            later("/tmp/project"),
            later("/tmp/file"),
            later("//tmp/.//more/"),
            later("/bin/tool"),
            later("/etc/hosts/below"),
            later("/dev/own"),
            // It covers the existing file.
            later("/etc/hosts"),
        ];
        assert_eq!(left, expected);
        for path in ["/tmp/project", "/bin/tool", "/tmp/file", "/dev/own"] {
            assert_eq!(content.at(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn it_is_made_in_an_empty_root_only() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("etc")).unwrap();
        let root = fs::File::open(dir.path()).unwrap();
        let (content, _) = of(vec![("/etc/passwd", file("x"))]);
        assert_eq!(content.make(root.as_fd()), Err(rustix::io::Errno::EXIST));
    }
}
