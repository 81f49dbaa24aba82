//! A directory beside what is being made, which only its owner may enter. It is removed at the end; one
//! that a killed command has left is removed by the next command.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

/// A directory with a lock that says that its command runs.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    _lock: File,
    is_moved: bool,
}

impl Staging {
    /// Creates one, and removes those with the same prefix whose commands have ended.
    pub(super) fn new(parent: &Path, prefix: &str) -> io::Result<Self> {
        for name in abandoned(parent, prefix)? {
            remove(&parent.join(name))?;
        }
        let path = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?.keep();
        let lock = open(&path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path, _lock: lock, is_moved: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It has another name now, and is not removed.
    pub(super) fn was_moved(mut self) {
        self.is_moved = true;
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_moved {
            // The next command removes what cannot be removed now.
            let _ = remove(&self.path);
        }
    }
}

/// The directories of this user whose lock nobody holds.
fn abandoned(parent: &Path, prefix: &str) -> io::Result<Vec<OsString>> {
    let own = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let name = entry?.file_name();
        if !name.as_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        // What cannot be opened belongs to somebody else.
        let Ok(directory) = open(&parent.join(&name)) else { continue };
        let is_free =
            rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_free && directory.metadata()?.uid() == own {
            found.push(name);
        }
    }
    Ok(found)
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Removes a directory, whatever the permissions of those in it are.
fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let name = RelativePath::new(name.as_bytes()).map_err(io::Error::other)?;
    let parent = Dir::open(parent).map_err(io::Error::other)?;
    parent.remove_tree(&name).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_killed_command_has_left_is_removed_and_what_is_used_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(".stockade-test-left");
        create_dir(&left).unwrap();
        create_dir(left.join("closed")).unwrap();
        set_permissions(left.join("closed"), Permissions::from_mode(0o000)).unwrap();
        let other = parent.path().join(".stockade-other");
        create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join(".stockade-test-link")).unwrap();
        let one = Staging::new(parent.path(), ".stockade-test-").unwrap();
        assert!(!left.exists() && other.exists() && one.path().exists());
        let two = Staging::new(parent.path(), ".stockade-test-").unwrap();
        assert!(one.path().exists());
        let (one_path, moved) = (one.path().to_owned(), parent.path().join("moved"));
        drop(one);
        assert!(!one_path.exists());
        std::fs::rename(two.path(), &moved).unwrap();
        two.was_moved();
        assert!(moved.exists());
    }
}
