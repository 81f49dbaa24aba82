//! Paths of the host that a request names: which may be visible in a sandbox. Every such path goes
//! through [`HostPaths::open`], whatever its purpose.
//!
//! Stockade's data directory is never visible, nor its content, nor a directory that contains it.
//! Paths are compared by identity and not by text, in two ways. First by device and inode of each
//! directory on the way to the root, which detects every link. Second by their positions within
//! their file systems, as listed in `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`), which detects
//! bind mounts: of the data directory, of directories that contain it, of its content, and those
//! below the path, because a tree is visible with all mounts in it.

mod mountinfo;
mod sockets;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use stockade_jail::HostTree;

use self::mountinfo::{Location, MountTable};
use crate::error::Error;

/// The directory of unpacked images, below the data directory: see [`HostPaths::open_root`].
pub const IMAGES: &str = "images";

/// The directory of Stockade's own programs for images, below the data directory: see
/// [`HostPaths::open_to_read`].
pub const PROGRAMS: &str = "programs";

/// A path of the host that may be visible.
#[derive(Debug)]
pub struct HostPath {
    /// The path without links.
    pub real: PathBuf,
    /// The tree or file at the path.
    pub tree: HostTree,
}

/// The unique identity of a file or directory: device and inode.
type Identity = (u32, u32, u64);

/// Checks paths of the host against one data directory.
#[derive(Debug)]
pub struct HostPaths {
    /// The data directory without links.
    data: PathBuf,
    /// Its identity, then those of its ancestors, up to the root.
    ancestry: Vec<Identity>,
    mounts: MountTable,
    /// The position of the data directory in its file system; unknown where the mount is not
    /// listed, as after a `chroot(2)`.
    location: Option<Location>,
    /// Whether no path may lead through a link.
    exact: bool,
}

/// An open path with its properties.
struct OpenPath {
    path: HostPath,
    ancestry: Vec<Identity>,
    mount_id: Option<u64>,
}

impl HostPaths {
    /// Looks up the data directory and the mounts of this process.
    ///
    /// # Errors
    /// [`Error::HostPath`] where the data directory or the mount table cannot be read.
    pub fn new(data: &Path) -> Result<Self, Error> {
        let opened = OpenPath::open(data)?;
        let mounts = MountTable::read()
            .map_err(|source| Error::HostPath { path: mountinfo::PATH.into(), source })?;
        let location = opened.mount_id.and_then(|id| mounts.locate(id, &opened.path.real));
        Ok(Self {
            data: opened.path.real,
            ancestry: opened.ancestry,
            mounts,
            location,
            exact: false,
        })
    }

    /// The same checks, and from now on no path may lead through a link: the caller has checked
    /// where the path leads to, and a link that was made since then would lead elsewhere.
    #[must_use]
    pub fn exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// Opens a path that will be visible, following links.
    ///
    /// # Errors
    /// [`Error::OwnData`] and [`Error::HostRoot`] for paths that are never visible;
    /// [`Error::HostPath`] for one that cannot be opened; [`Error::Link`].
    pub fn open(&self, path: &Path) -> Result<HostPath, Error> {
        let opened = OpenPath::open(path)?;
        if opened.path.real == Path::new("/") {
            return Err(Error::HostRoot);
        }
        if self.is_own_data(&opened) {
            return Err(Error::OwnData(path.to_owned()));
        }
        if self.exact && opened.path.real != path {
            return Err(Error::Link(path.to_owned()));
        }
        Ok(opened.path)
    }

    /// Opens a path that will be visible and read-only: as [`HostPaths::open`], but also accepts
    /// Stockade's own programs in the data directory.
    ///
    /// # Errors
    /// As [`HostPaths::open`].
    pub(crate) fn open_to_read(&self, path: &Path) -> Result<HostPath, Error> {
        match path.canonicalize() {
            Ok(real) if real.parent().is_some_and(|above| above.starts_with(self.programs())) => {
                Ok(HostPath { tree: open(&real)?, real })
            }
            _ => self.open(path),
        }
    }

    fn programs(&self) -> PathBuf {
        self.data.join(PROGRAMS)
    }

    /// The data directory, without links.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Whether something is mounted below a path without links.
    pub(crate) fn has_mounts_below(&self, real: &Path) -> bool {
        self.mounts.below(real).next().is_some()
    }

    /// Refuses a directory in which a program of the host listens, for mounts that would make it
    /// reachable. Sockets in `named` are mounted by their own names.
    ///
    /// # Errors
    /// [`Error::HostSocket`], and [`Error::HostPath`] where the list of sockets cannot be read.
    pub(crate) fn refuse_sockets(&self, directory: &Path, named: &[PathBuf]) -> Result<(), Error> {
        let found = sockets::below(directory, named)
            .map_err(|source| Error::HostPath { path: sockets::PATH.into(), source })?;
        match found {
            Some(socket) => Err(Error::HostSocket { directory: directory.to_owned(), socket }),
            None => Ok(()),
        }
    }

    /// Opens a directory that will be the root of a sandbox: as [`HostPaths::open`], but also
    /// accepts an image that was unpacked in the data directory.
    ///
    /// # Errors
    /// As [`HostPaths::open`], and [`Error::NotDirectory`].
    pub fn open_root(&self, path: &Path) -> Result<HostPath, Error> {
        let root = match path.canonicalize() {
            Ok(real) if real.parent() == Some(&self.data.join(IMAGES)) => {
                HostPath { tree: open(&real)?, real }
            }
            _ => self.open(path)?,
        };
        if !root.real.is_dir() {
            return Err(Error::NotDirectory(path.to_owned()));
        }
        Ok(root)
    }

    /// Whether a path is, contains, or lies in the data directory, under any name.
    fn is_own_data(&self, opened: &OpenPath) -> bool {
        let [own, above @ ..] = self.ancestry.as_slice() else { return true };
        let holds = |identity: &Identity| above.contains(identity) || identity == own;
        if opened.ancestry.contains(own) || opened.ancestry.first().is_some_and(holds) {
            return true;
        }
        let Some(data) = &self.location else { return false };
        // A path on a mount of another namespace cannot be compared.
        let location = opened.mount_id.and_then(|id| self.mounts.locate(id, &opened.path.real));
        let Some(location) = location else { return true };
        location.overlaps(data)
            || self.mounts.below(&opened.path.real).any(|below| below.overlaps(data))
    }
}

impl OpenPath {
    fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::HostPath { path: path.to_owned(), source };
        let mut tree = open(path)?;
        let real = real_path(&tree.file).map_err(failed)?;
        tree.path.clone_from(&real);
        let stat = stat(&tree.file).map_err(failed)?;
        let mut ancestry = vec![identity(&stat)];
        for above in real.ancestors().skip(1) {
            let stat = statx(CWD, above, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO);
            ancestry.push(identity(&stat.map_err(|errno| failed(errno.into()))?));
        }
        let has_id = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        let mount_id = has_id.then_some(stat.stx_mnt_id);
        Ok(Self { path: HostPath { real, tree }, ancestry, mount_id })
    }
}

fn open(path: &Path) -> Result<HostTree, Error> {
    HostTree::open(path).map_err(|source| Error::HostPath { path: path.to_owned(), source })
}

fn stat(file: impl AsFd) -> io::Result<rustix::fs::Statx> {
    Ok(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::MNT_ID)?)
}

const fn identity(stat: &rustix::fs::Statx) -> Identity {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

/// The path of an open file, without links.
fn real_path(file: impl AsFd) -> io::Result<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))?;
    // The kernel marks paths that are not below this process's root in this way.
    if path.is_absolute() && !path.starts_with("/(unreachable)") {
        return Ok(path);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "it is not below this process's root directory"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory `top` with `home/data`, the data directory, with one directory in it.
    fn scene() -> (tempfile::TempDir, HostPaths) {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("home/data/journals")).unwrap();
        fs::create_dir_all(top.path().join("elsewhere/below")).unwrap();
        fs::write(top.path().join("home/data/stockade.db"), "").unwrap();
        let paths = HostPaths::new(&top.path().join("home/data")).unwrap();
        (top, paths)
    }

    fn is_own(paths: &HostPaths, path: &Path) -> bool {
        match paths.open(path) {
            Err(Error::OwnData(named)) => named == path,
            Ok(_) => false,
            Err(other) => panic!("{}: {other}", path.display()),
        }
    }

    #[test]
    fn the_data_directory_is_known_by_every_name() {
        let (top, paths) = scene();
        let top = top.path();
        symlink("home", top.join("link")).unwrap();
        symlink(top.join("home/data/journals"), top.join("elsewhere/journals")).unwrap();
        for own in [
            "home",
            "home/data",
            "home/data/journals",
            "home/data/stockade.db",
            "link",
            "link/data",
            "link/data/journals",
            "elsewhere/journals",
            "elsewhere/../home",
            "",
        ] {
            assert!(is_own(&paths, &top.join(own)), "{own}");
        }
        for other in ["elsewhere", "elsewhere/below"] {
            assert!(!is_own(&paths, &top.join(other)), "{other}");
        }
    }

    #[test]
    fn the_data_directory_may_be_named_through_a_link() {
        let (top, _) = scene();
        symlink("home", top.path().join("link")).unwrap();
        let paths = HostPaths::new(&top.path().join("link/data")).unwrap();
        assert!(is_own(&paths, &top.path().join("home")));
        assert!(is_own(&paths, &top.path().join("home/data")));
        assert!(!is_own(&paths, &top.path().join("elsewhere")));
    }

    #[test]
    fn an_exact_path_leads_through_no_link() {
        let (top, paths) = scene();
        let top = top.path().canonicalize().unwrap();
        symlink("elsewhere", top.join("link")).unwrap();
        let paths = paths.exact(true);
        paths.open(&top.join("elsewhere/below")).unwrap();
        for bad in ["link", "link/below", "elsewhere/../elsewhere"] {
            assert!(matches!(paths.open(&top.join(bad)), Err(Error::Link(_))), "{bad}");
        }
        assert!(paths.exact(false).open(&top.join("link/below")).is_ok());
    }

    #[test]
    fn the_root_is_refused_and_what_is_missing_is_an_error() {
        let (top, paths) = scene();
        for root in ["/", "/..", "/usr/..", "/proc/self/root"] {
            assert!(matches!(paths.open(Path::new(root)), Err(Error::HostRoot)), "{root}");
        }
        let missing = paths.open(&top.path().join("none")).unwrap_err();
        assert!(
            matches!(missing, Error::HostPath { source, .. } if source.kind() == io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn the_programs_for_images_may_be_read_and_nothing_else() {
        let (top, paths) = scene();
        let build = top.path().join("home/data/programs/build");
        fs::create_dir_all(build.join("lib")).unwrap();
        symlink("../../journals", build.join("link")).unwrap();
        let real = build.canonicalize().unwrap();
        assert_eq!(paths.open_to_read(&build.join("lib")).unwrap().real, real.join("lib"));
        let data = top.path().join("home/data");
        for bad in [build.join("link"), data.join("programs"), data.clone(), data.join("journals")]
        {
            let refused = paths.open_to_read(&bad);
            assert!(matches!(refused, Err(Error::OwnData(_))), "{}", bad.display());
        }
        assert!(is_own(&paths, &build.join("lib")));
    }

    #[test]
    fn an_unpacked_image_may_be_a_root_and_nothing_else() {
        let (top, paths) = scene();
        let image = top.path().join("home/data/images/0123");
        fs::create_dir_all(image.join("usr")).unwrap();
        assert_eq!(paths.open_root(&image).unwrap().real, image.canonicalize().unwrap());
        for bad in [image.join("usr"), top.path().join("home/data/images"), top.path().join("home")]
        {
            assert!(matches!(paths.open_root(&bad), Err(Error::OwnData(_))), "{}", bad.display());
        }
        assert!(is_own(&paths, &image));
        let file = top.path().join("elsewhere/file");
        fs::write(&file, "").unwrap();
        assert!(matches!(paths.open_root(&file), Err(Error::NotDirectory(_))));
    }
}
