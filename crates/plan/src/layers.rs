//! The layers of a persistent sandbox, in directories of its own.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};

use stockade_core::sandbox::User;
use stockade_jail::Identity;

use crate::account::HOME;
use crate::error::Error;

/// The origin of the upper layers of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// They are created empty.
    New,
    /// They exist, from a snapshot, with the file owners as seen inside.
    Snapshot,
    /// They exist and are complete trees, because no overlay is possible.
    FullCopy,
}

/// Creates the directory with the layers over `lower`: new ones, unless an upper layer exists.
///
/// # Errors
/// [`Error::Exhausted`] when the disk is full, else [`Error::HostPath`].
pub fn make(
    directory: &Path,
    lower: &Path,
    identity: &Identity,
    origin: Origin,
) -> Result<PathBuf, Error> {
    try_make(directory, lower, identity, origin).map_err(|source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Exhausted { what: "cannot create the layers of a sandbox".to_owned(), source }
        }
        _ => Error::HostPath { path: directory.to_owned(), source },
    })?;
    Ok(directory.to_owned())
}

/// Creates the directory with the layers over `lower`, or uses its upper layer again.
///
/// # Errors
/// As [`make`].
pub fn make_again(directory: &Path, lower: &Path, identity: &Identity) -> Result<PathBuf, Error> {
    let work = directory.join("work");
    match std::fs::remove_dir_all(&work) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(Error::HostPath { path: work, source });
        }
        _ => {}
    }
    let origin = if directory.join("upper").is_dir() { Origin::Snapshot } else { Origin::New };
    make(directory, lower, identity, origin)
}

fn try_make(directory: &Path, lower: &Path, identity: &Identity, origin: Origin) -> io::Result<()> {
    let start = identity.range().map(|range| range.start);
    let root = std::fs::metadata(lower)?;
    // Files whose owner does not exist inside belong to root there.
    let inside = |id: u32| identity.range().map_or(id, |range| inside_id(id, range.count));
    let (user, group) = (inside(root.uid()), inside(root.gid()));
    let own = |path: &Path, user: u32, group: u32| match start {
        // The caller can give nothing to a subordinate id: the top directories belong to 0 inside.
        Some(_) if identity.range().is_some_and(|range| range.subordinate().is_some()) => Ok(()),
        Some(start) => chown(path, Some(start + user), Some(start + group)),
        None => Ok(()),
    };
    if !directory.is_dir() {
        create_directory(directory)?;
    }
    // The jail, which does not have the rights of the host's root, must be able to access its
    // layers.
    own(directory, 0, 0)?;
    let upper = directory.join("upper");
    if origin == Origin::New {
        create_directory(&upper)?;
        let mode = std::fs::Permissions::from_mode(root.mode() & 0o1777);
        std::fs::set_permissions(&upper, mode)?;
        own(&upper, user, group)?;
    }
    if origin == Origin::FullCopy {
        return Ok(());
    }
    let work = directory.join("work");
    create_directory(&work)?;
    own(&work, 0, 0)
}

const fn inside_id(id: u32, count: u32) -> u32 {
    if id < count { id } else { 0 }
}

/// Creates the home directory of the sandbox's own user, if the image has none and nothing is in
/// the way. Parent directories that the image has keep their owner and mode.
///
/// # Errors
/// [`Error::HostPath`] for a directory that cannot be created.
pub fn make_home(upper: &Path, lower: &Path, own: User, identity: &Identity) -> Result<(), Error> {
    try_make_home(upper, lower, own, identity)
        .map_err(|source| Error::HostPath { path: upper.to_owned(), source })
}

fn try_make_home(upper: &Path, lower: &Path, own: User, identity: &Identity) -> io::Result<()> {
    let home = Path::new(HOME);
    let mut path = PathBuf::new();
    for component in home.components().filter(|component| *component != Component::RootDir) {
        path.push(component);
        let in_the_way = |metadata: std::fs::Metadata| !metadata.is_dir();
        if std::fs::symlink_metadata(lower.join(&path)).is_ok_and(in_the_way) {
            return Ok(());
        }
    }
    if std::fs::symlink_metadata(lower.join(&path)).is_ok() {
        return Ok(());
    }
    let start = identity.range().map(|range| range.start);
    let mut made = upper.to_owned();
    let last = path.components().count() - 1;
    let mut below = lower.to_owned();
    for (index, component) in path.components().enumerate() {
        made.push(component);
        below.push(component);
        match create_directory(&made) {
            // A full copy already has the directories of the lower layer.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        let below = std::fs::symlink_metadata(&below).ok();
        if let Some((range, start)) = identity.range().zip(start) {
            let inside = |id: u32| inside_id(id, range.count);
            let (user, group) = match &below {
                Some(below) => (inside(below.uid()), inside(below.gid())),
                None if index == last => (own.user, own.group),
                None => (0, 0),
            };
            chown(&made, Some(start + user), Some(start + group))?;
        }
        // Every user inside must be able to enter the new directories, whatever the umask of this
        // process is.
        let mode = below.map_or(0o755, |below| below.mode() & 0o1777);
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn create_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}
