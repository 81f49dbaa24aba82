//! Access rules as mounts: each path with rights of its own ([`AccessMount`]) becomes a bind mount with
//! flags of its own, such as read-only or noexec. A path that must not be read is covered, or left
//! out. Mounts also enforce what Landlock cannot: a closed path in an open directory, and changes
//! of modes, owners and times.
//!
//! Runs when all other mounts are attached and before any command runs. A directory that leads to
//! an area, and lies in a writable one, becomes a mount too: a mount point cannot be renamed or
//! removed, so the area keeps its path.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, UnmountFlags, open_tree, unmount};

use crate::attach::attach_mount;
use crate::mounts::{self, At as _, Failure};
use crate::nodes;
use crate::spec::{AccessMount, AccessMounts, Rights};
use crate::sys;
use crate::walls::Wall;

/// The maximal number of mounts for areas. The kernel's own limit is far higher (`fs.mount-max`),
/// but each mount slows down every path that leads through it.
const MAX_MOUNTS: usize = 4096;

/// A mount point from which the covers are cloned; it exists in every jail and is empty.
const COVER_DIR: &str = "/sys";

/// One mount of an area.
#[derive(Debug)]
struct PlannedMount {
    path: PathBuf,
    rights: Rights,
    is_directory: bool,
}

/// The mounts to make, in this order.
#[derive(Debug, Default)]
struct Plan {
    mounts: Vec<PlannedMount>,
    /// Links that a new root must contain as well, with their targets.
    links: Vec<(PathBuf, PathBuf)>,
}

/// Gives every area its rights. Returns the enforced rights for Landlock: each path with its
/// rights, the root first.
pub(crate) fn apply(access_mounts: &AccessMounts) -> Result<Vec<(PathBuf, Rights)>, Failure> {
    let Some(root) = access_mounts.list.first().filter(|area| area.path == Path::new("/")) else {
        return Err(Errno::INVAL)
            .at(Wall::Root, || "find the root among the access mounts".to_owned());
    };
    let plan = Plan::new(root.rights, access_mounts)?;
    let sources = plan.sources()?;
    match root.rights {
        Rights::Closed => plan.enter_empty_root()?,
        reach => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let step = || "restrict the root".to_owned();
            let open = rustix::fs::open("/", flags, Mode::empty()).at(Wall::Root, step)?;
            restrict(&open, reach).at(Wall::Root, step)?;
        }
    }
    for (piece, source) in plan.mounts.iter().zip(&sources) {
        attach_mount(source, &piece.path)
            .at(Wall::Root, || format!("attach the access mount {}", piece.path.display()))?;
    }
    if root.rights == Rights::Closed {
        let step = || "make the root read-only".to_owned();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open("/", flags, Mode::empty()).at(Wall::Root, step)?;
        sys::mount_setattr(open.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
            .at(Wall::Root, step)?;
    }
    let raised = plan.mounts.into_iter().map(|piece| (piece.path, piece.rights));
    Ok(std::iter::once((PathBuf::from("/"), root.rights)).chain(raised).collect())
}

impl Plan {
    fn new(root: Rights, access_mounts: &AccessMounts) -> Result<Self, Failure> {
        let mut plan = Self::default();
        for area in access_mounts.list.iter().skip(1) {
            plan.add(root, area, access_mounts)?;
            if plan.mounts.len() > MAX_MOUNTS {
                return Err(Errno::NOSPC)
                    .at(Wall::Root, || format!("use more than {MAX_MOUNTS} access mounts"));
            }
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        root: Rights,
        access_mount: &AccessMount,
        access_mounts: &AccessMounts,
    ) -> Result<(), Failure> {
        let AccessMount { path, rights: reach, create_missing: is_made } = access_mount;
        let (above, around) = self.enclosing(root, path);
        let step = || format!("inspect {}", path.display());
        let is_directory = match inspect(path).at(Wall::Root, step)? {
            Entry::Existing { is_directory } => is_directory,
            Entry::Link { at, target } => {
                if *is_made && reach.lacks(around) {
                    return Err(Errno::LOOP).at(Wall::Root, || {
                        format!(
                            "enforce a rule for {}, which leads through the link {}: use the target of the link instead",
                            path.display(),
                            at.display()
                        )
                    });
                }
                // The target has rights of its own.
                if root == Rights::Closed && at == *path {
                    self.links.push((at, target));
                }
                return Ok(());
            }
            Entry::Missing if *reach == around || !*is_made => return Ok(()),
            Entry::Missing => match create_directory(path, access_mounts) {
                // The file system is read-only, so nothing can be created there.
                Err(error) if error.raw_os_error() == Some(libc::EROFS) => return Ok(()),
                made => {
                    made.at(Wall::Root, || format!("make {}", path.display()))?;
                    true
                }
            },
        };
        if *reach == around {
            return Ok(());
        }
        if matches!(around, Rights::Open { write: true, .. }) {
            self.pin(&above, path, around);
        }
        self.mounts.push(PlannedMount { path: path.clone(), rights: *reach, is_directory });
        Ok(())
    }

    /// Prevents the directories that lead from one path to another from being moved away.
    fn pin(&mut self, above: &Path, below: &Path, rights: Rights) {
        let mut leading: Vec<_> =
            below.ancestors().skip(1).take_while(|path| *path != above).collect();
        leading.reverse();
        for path in leading {
            self.mounts.push(PlannedMount { path: path.to_owned(), rights, is_directory: true });
        }
    }

    /// The planned mount that contains a path, and its rights.
    fn enclosing(&self, root: Rights, path: &Path) -> (PathBuf, Rights) {
        let around = self.mounts.iter().filter(|piece| path.starts_with(&piece.path));
        let deepest = around.max_by_key(|piece| piece.path.as_os_str().len());
        deepest.map_or_else(|| ("/".into(), root), |piece| (piece.path.clone(), piece.rights))
    }

    /// Opens the source of every piece, with its flags: all sources before any is attached, so that
    /// no source contains another piece.
    fn sources(&self) -> Result<Vec<OwnedFd>, Failure> {
        let mut covers = self.covers()?.into_iter();
        let source = |piece: &PlannedMount| {
            let step = || format!("open the access mount {}", piece.path.display());
            if piece.rights == Rights::Closed {
                return covers.next().ok_or(Errno::BADF).at(Wall::Root, step);
            }
            let clone = clone(&piece.path).at(Wall::Root, step)?;
            restrict(&clone, piece.rights).at(Wall::Root, step)?;
            Ok(clone)
        };
        self.mounts.iter().map(source).collect()
    }

    /// The cover of each closed piece: an empty directory or file that nobody may open.
    fn covers(&self) -> Result<Vec<OwnedFd>, Failure> {
        let closed: Vec<_> =
            self.mounts.iter().filter(|piece| piece.rights == Rights::Closed).collect();
        if closed.is_empty() {
            return Ok(Vec::new());
        }
        let make = || -> io::Result<Vec<OwnedFd>> {
            let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            let memory = mounts::new_tmpfs(0o755, 1 << 16, &[], flags)?;
            rustix::fs::mkdirat(&memory, "directory", Mode::empty())?;
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(rustix::fs::openat(&memory, "file", flags, Mode::empty())?);
            sys::mount_setattr(memory.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)?;
            nodes::make_directory(Path::new(COVER_DIR))?;
            // Only an attached mount can be cloned.
            attach_mount(&memory, Path::new(COVER_DIR))?;
            let cover = |piece: &&PlannedMount| {
                let name = if piece.is_directory { "directory" } else { "file" };
                clone(&Path::new(COVER_DIR).join(name))
            };
            let covers = closed.iter().map(cover).collect();
            unmount(COVER_DIR, UnmountFlags::DETACH)?;
            covers
        };
        make().at(Wall::Root, || "make covers".to_owned())
    }

    /// Changes from the root to an empty one that contains only mount points for the pieces.
    fn enter_empty_root(&self) -> Result<(), Failure> {
        let step = || "make an empty root".to_owned();
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let root = mounts::new_tmpfs(0o755, 4 << 20, &[], flags).at(Wall::Root, step)?;
        mounts::enter_root(&root)?;
        let mut shown: Vec<&Path> = Vec::new();
        for piece in &self.mounts {
            // The mount point of a piece that lies in another one is there.
            if shown.iter().any(|above| piece.path.starts_with(above)) {
                continue;
            }
            let made = match piece.is_directory {
                true => nodes::make_directory(&piece.path),
                false => nodes::touch(&piece.path),
            };
            made.at(Wall::Root, step)?;
            shown.push(&piece.path);
        }
        for (path, target) in &self.links {
            nodes::make_link(target, path).at(Wall::Root, step)?;
        }
        Ok(())
    }
}

/// The file at a path.
#[derive(Debug)]
enum Entry {
    Existing { is_directory: bool },
    Link { at: PathBuf, target: PathBuf },
    Missing,
}

/// Inspects a path component by component, without following links.
fn inspect(path: &Path) -> io::Result<Entry> {
    let mut entry = Entry::Existing { is_directory: true };
    let mut at = PathBuf::new();
    for component in path.components() {
        if let Entry::Existing { is_directory: false } = entry {
            return Err(Errno::NOTDIR.into());
        }
        at.push(component);
        let stat = match rustix::fs::lstat(&at) {
            Err(Errno::NOENT) => return Ok(Entry::Missing),
            other => other?,
        };
        entry = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => return Ok(Entry::Link { target: fs::read_link(&at)?, at }),
            kind => Entry::Existing { is_directory: kind.is_dir() },
        };
    }
    Ok(entry)
}

/// Creates a directory for the ordinary user, with missing parents, which are the user's as well: rules
/// may allow that something else is created in them.
fn create_directory(path: &Path, access_mounts: &AccessMounts) -> io::Result<()> {
    let is_missing = |path: &&Path| fs::symlink_metadata(path).is_err_and(is_not_found);
    let missing: Vec<_> = path.ancestors().take_while(is_missing).collect();
    for path in missing.into_iter().rev() {
        fs::DirBuilder::new().mode(0o755).create(path)?;
        chown(path, Some(access_mounts.user), Some(access_mounts.group))?;
    }
    Ok(())
}

fn is_not_found(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Clones the tree at a path with all mounts below it.
fn clone(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    Ok(open_tree(CWD, path, flags)?)
}

/// Removes from a mount, and all mounts below it, the rights that its area does not have.
fn restrict(mount: &OwnedFd, rights: Rights) -> io::Result<()> {
    let Rights::Open { write, execute } = rights else { return Ok(()) };
    let read_only = if write { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let no_execution = if execute { 0 } else { libc::MOUNT_ATTR_NOEXEC };
    match read_only | no_execution {
        0 => Ok(()),
        set => sys::mount_setattr(mount.as_fd(), true, set, None),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const READ: Rights = Rights::Open { write: false, execute: false };
    const ALL: Rights = Rights::Open { write: true, execute: true };

    fn access_mount(path: &Path, rights: Rights) -> AccessMount {
        AccessMount { path: path.to_owned(), rights, create_missing: true }
    }

    #[test]
    fn missing_parents_belong_to_the_user_as_well() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b/c");
        let own = rustix::process::geteuid();
        // Only root can give a directory to another user.
        let user = if own.is_root() { 1000 } else { own.as_raw() };
        let group = if own.is_root() { 1000 } else { rustix::process::getegid().as_raw() };
        create_directory(&path, &AccessMounts { list: Vec::new(), user, group }).unwrap();
        for path in path.ancestors().take(3) {
            let made = fs::symlink_metadata(path).unwrap();
            assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (user, group, 0o755));
        }
        assert_eq!(fs::symlink_metadata(top.path()).unwrap().uid(), own.as_raw());
    }

    /// The plan for these areas below a directory, as paths in it.
    fn plan(
        top: &Path,
        root: Rights,
        access_mounts: &[(&str, Rights)],
    ) -> Result<Vec<String>, Failure> {
        let mut list = vec![access_mount(Path::new("/"), root)];
        list.extend(
            access_mounts.iter().map(|(path, reach)| access_mount(&top.join(path), *reach)),
        );
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let access_mounts = AccessMounts { list, user: user.as_raw(), group: group.as_raw() };
        let plan = Plan::new(root, &access_mounts)?;
        let name = |piece: &PlannedMount| piece.path.strip_prefix(top).ok().map(Path::to_owned);
        Ok(plan.mounts.iter().filter_map(name).map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn an_area_with_the_rights_around_it_takes_no_mount() {
        let top = tempfile::tempdir().unwrap();
        let access_mounts = [("a", ALL), ("a/b", ALL), ("a/b/c", READ), ("a/b/c/d", READ)];
        let planned = plan(top.path(), READ, &access_mounts).unwrap();
        assert_eq!(planned, ["a", "a/b", "a/b/c"], "the second leads to the third");
        assert!(top.path().join("a/b/c").is_dir() && !top.path().join("a/b/c/d").exists());
    }

    #[test]
    fn what_leads_to_an_area_is_held_where_it_could_be_moved() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b/c")).unwrap();
        fs::write(top.path().join("a/b/file"), "").unwrap();
        let access_mounts = [("a/b/c", Rights::Closed), ("a/b/file", READ)];
        let writable = [&[("", ALL)], &access_mounts[..]].concat();
        assert_eq!(
            plan(top.path(), READ, &writable).unwrap(),
            ["", "a", "a/b", "a/b/c", "a/b/file"]
        );
        assert_eq!(plan(top.path(), READ, &access_mounts[..1]).unwrap(), ["a/b/c"]);
    }

    #[test]
    fn a_link_may_grant_and_not_deny() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.path().join("link")).unwrap();
        for path in ["link", "link/below"] {
            assert_eq!(plan(top.path(), READ, &[(path, ALL)]).unwrap(), [""; 0]);
            let refused = plan(top.path(), READ, &[(path, Rights::Closed)]).unwrap_err();
            assert_eq!(refused.errno, libc::ELOOP);
            assert!(refused.step.contains("use the target of the link"), "{}", refused.step);
        }
    }

    #[test]
    fn nothing_lies_below_a_file() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        let refused = plan(top.path(), READ, &[("file/x", ALL)]).unwrap_err();
        assert_eq!(refused.errno, libc::ENOTDIR);
    }
}
