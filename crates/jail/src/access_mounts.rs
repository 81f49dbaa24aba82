//! Access rules as mounts: each path with rights of its own ([`Area`]) becomes a bind mount with
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

use crate::mounts::{self, At as _, Failure};
use crate::spec::{Area, Areas, Reach};
use crate::sys;
use crate::walls::Wall;

/// The maximal number of mounts for areas. The kernel's own limit is far higher (`fs.mount-max`),
/// but each mount slows down every path that leads through it.
const MOUNTS: usize = 4096;

/// A mount point from which the covers are cloned; it exists in every jail and is empty.
const COVERS: &str = "/sys";

/// One mount of an area.
#[derive(Debug)]
struct Piece {
    path: PathBuf,
    reach: Reach,
    is_directory: bool,
}

/// The mounts to make, in this order.
#[derive(Debug, Default)]
struct Plan {
    pieces: Vec<Piece>,
    /// Links that a new root must contain as well, with their targets.
    links: Vec<(PathBuf, PathBuf)>,
}

/// Gives every area its rights. Returns the enforced rights for Landlock: each path with its
/// rights, the root first.
pub(crate) fn raise(areas: &Areas) -> Result<Vec<(PathBuf, Reach)>, Failure> {
    let Some(root) = areas.list.first().filter(|area| area.path == Path::new("/")) else {
        return Err(Errno::INVAL)
            .at(Wall::Root, || "find the root among the access mounts".to_owned());
    };
    let plan = Plan::of(root.reach, areas)?;
    let sources = plan.sources()?;
    match root.reach {
        Reach::Closed => plan.enter_empty_root()?,
        reach => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let step = || "restrict the root".to_owned();
            let open = rustix::fs::open("/", flags, Mode::empty()).at(Wall::Root, step)?;
            restrict(&open, reach).at(Wall::Root, step)?;
        }
    }
    for (piece, source) in plan.pieces.iter().zip(&sources) {
        mounts::attach_mount(source, &piece.path)
            .at(Wall::Root, || format!("attach the access mount {}", piece.path.display()))?;
    }
    if root.reach == Reach::Closed {
        let step = || "make the root read-only".to_owned();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open("/", flags, Mode::empty()).at(Wall::Root, step)?;
        sys::mount_setattr(open.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
            .at(Wall::Root, step)?;
    }
    let raised = plan.pieces.into_iter().map(|piece| (piece.path, piece.reach));
    Ok(std::iter::once((PathBuf::from("/"), root.reach)).chain(raised).collect())
}

impl Plan {
    fn of(root: Reach, areas: &Areas) -> Result<Self, Failure> {
        let mut plan = Self::default();
        for area in areas.list.iter().skip(1) {
            plan.add(root, area, areas)?;
            if plan.pieces.len() > MOUNTS {
                return Err(Errno::NOSPC)
                    .at(Wall::Root, || format!("use more than {MOUNTS} access mounts"));
            }
        }
        Ok(plan)
    }

    fn add(&mut self, root: Reach, area: &Area, areas: &Areas) -> Result<(), Failure> {
        let Area { path, reach, is_made } = area;
        let (above, around) = self.around(root, path);
        let step = || format!("inspect {}", path.display());
        let is_directory = match look(path).at(Wall::Root, step)? {
            Found::There { is_directory } => is_directory,
            Found::Link { at, target } => {
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
                if root == Reach::Closed && at == *path {
                    self.links.push((at, target));
                }
                return Ok(());
            }
            Found::Nothing if *reach == around || !*is_made => return Ok(()),
            Found::Nothing => match make(path, areas) {
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
        if matches!(around, Reach::Open { write: true, .. }) {
            self.pin(&above, path, around);
        }
        self.pieces.push(Piece { path: path.clone(), reach: *reach, is_directory });
        Ok(())
    }

    /// Prevents the directories that lead from one path to another from being moved away.
    fn pin(&mut self, above: &Path, below: &Path, reach: Reach) {
        let mut leading: Vec<_> =
            below.ancestors().skip(1).take_while(|path| *path != above).collect();
        leading.reverse();
        for path in leading {
            self.pieces.push(Piece { path: path.to_owned(), reach, is_directory: true });
        }
    }

    /// The planned mount that contains a path, and its rights.
    fn around(&self, root: Reach, path: &Path) -> (PathBuf, Reach) {
        let around = self.pieces.iter().filter(|piece| path.starts_with(&piece.path));
        let deepest = around.max_by_key(|piece| piece.path.as_os_str().len());
        deepest.map_or_else(|| ("/".into(), root), |piece| (piece.path.clone(), piece.reach))
    }

    /// Opens the source of every piece, with its flags: all sources before any is attached, so that
    /// no source contains another piece.
    fn sources(&self) -> Result<Vec<OwnedFd>, Failure> {
        let mut covers = self.covers()?.into_iter();
        let source = |piece: &Piece| {
            let step = || format!("open the access mount {}", piece.path.display());
            if piece.reach == Reach::Closed {
                return covers.next().ok_or(Errno::BADF).at(Wall::Root, step);
            }
            let clone = clone(&piece.path).at(Wall::Root, step)?;
            restrict(&clone, piece.reach).at(Wall::Root, step)?;
            Ok(clone)
        };
        self.pieces.iter().map(source).collect()
    }

    /// The cover of each closed piece: an empty directory or file that nobody may open.
    fn covers(&self) -> Result<Vec<OwnedFd>, Failure> {
        let closed: Vec<_> =
            self.pieces.iter().filter(|piece| piece.reach == Reach::Closed).collect();
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
            mounts::make_directory(Path::new(COVERS))?;
            // Only an attached mount can be cloned.
            mounts::attach_mount(&memory, Path::new(COVERS))?;
            let cover = |piece: &&Piece| {
                let name = if piece.is_directory { "directory" } else { "file" };
                clone(&Path::new(COVERS).join(name))
            };
            let covers = closed.iter().map(cover).collect();
            unmount(COVERS, UnmountFlags::DETACH)?;
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
        for piece in &self.pieces {
            // The mount point of a piece that lies in another one is there.
            if shown.iter().any(|above| piece.path.starts_with(above)) {
                continue;
            }
            let made = match piece.is_directory {
                true => mounts::make_directory(&piece.path),
                false => mounts::touch(&piece.path),
            };
            made.at(Wall::Root, step)?;
            shown.push(&piece.path);
        }
        for (path, target) in &self.links {
            mounts::make_link(target, path).at(Wall::Root, step)?;
        }
        Ok(())
    }
}

/// The file at a path.
#[derive(Debug)]
enum Found {
    There { is_directory: bool },
    Link { at: PathBuf, target: PathBuf },
    Nothing,
}

/// Inspects a path component by component, without following links.
fn look(path: &Path) -> io::Result<Found> {
    let mut found = Found::There { is_directory: true };
    let mut at = PathBuf::new();
    for component in path.components() {
        if let Found::There { is_directory: false } = found {
            return Err(Errno::NOTDIR.into());
        }
        at.push(component);
        let stat = match rustix::fs::lstat(&at) {
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            other => other?,
        };
        found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => return Ok(Found::Link { target: fs::read_link(&at)?, at }),
            kind => Found::There { is_directory: kind.is_dir() },
        };
    }
    Ok(found)
}

/// Creates a directory for the ordinary user, with missing parents.
fn make(path: &Path, areas: &Areas) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).recursive(true).create(path)?;
    chown(path, Some(areas.user), Some(areas.group))
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
fn restrict(mount: &OwnedFd, reach: Reach) -> io::Result<()> {
    let Reach::Open { write, execute } = reach else { return Ok(()) };
    let read_only = if write { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let no_execution = if execute { 0 } else { libc::MOUNT_ATTR_NOEXEC };
    match read_only | no_execution {
        0 => Ok(()),
        set => sys::mount_setattr(mount.as_fd(), true, set, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Reach = Reach::Open { write: false, execute: false };
    const ALL: Reach = Reach::Open { write: true, execute: true };

    fn area(path: &Path, reach: Reach) -> Area {
        Area { path: path.to_owned(), reach, is_made: true }
    }

    /// The plan for these areas below a directory, as paths in it.
    fn plan(top: &Path, root: Reach, areas: &[(&str, Reach)]) -> Result<Vec<String>, Failure> {
        let mut list = vec![area(Path::new("/"), root)];
        list.extend(areas.iter().map(|(path, reach)| area(&top.join(path), *reach)));
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let areas = Areas { list, user: user.as_raw(), group: group.as_raw() };
        let plan = Plan::of(root, &areas)?;
        let name = |piece: &Piece| piece.path.strip_prefix(top).ok().map(Path::to_owned);
        Ok(plan.pieces.iter().filter_map(name).map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn an_area_with_the_rights_around_it_takes_no_mount() {
        let top = tempfile::tempdir().unwrap();
        let areas = [("a", ALL), ("a/b", ALL), ("a/b/c", READ), ("a/b/c/d", READ)];
        let planned = plan(top.path(), READ, &areas).unwrap();
        assert_eq!(planned, ["a", "a/b", "a/b/c"], "the second leads to the third");
        assert!(top.path().join("a/b/c").is_dir() && !top.path().join("a/b/c/d").exists());
    }

    #[test]
    fn what_leads_to_an_area_is_held_where_it_could_be_moved() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b/c")).unwrap();
        fs::write(top.path().join("a/b/file"), "").unwrap();
        let areas = [("a/b/c", Reach::Closed), ("a/b/file", READ)];
        let writable = [&[("", ALL)], &areas[..]].concat();
        assert_eq!(
            plan(top.path(), READ, &writable).unwrap(),
            ["", "a", "a/b", "a/b/c", "a/b/file"]
        );
        assert_eq!(plan(top.path(), READ, &areas[..1]).unwrap(), ["a/b/c"]);
    }

    #[test]
    fn a_link_may_grant_and_not_deny() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.path().join("link")).unwrap();
        for path in ["link", "link/below"] {
            assert_eq!(plan(top.path(), READ, &[(path, ALL)]).unwrap(), [""; 0]);
            let refused = plan(top.path(), READ, &[(path, Reach::Closed)]).unwrap_err();
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
