//! Attaching a tree in a place that earlier programs of the sandbox could change, or that an image may
//! use for something else: then nothing is mounted. Missing directories get an owner inside.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, mkdirat, mknodat,
    openat2, statat,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};

use crate::nodes::make_directory;

/// An owner inside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Attaches a mount at `target`, the end of which is `below`; not if something other than directories
/// is in the way there.
pub(crate) fn attach(mount: &OwnedFd, target: &Path, below: &Path, owner: Owner) -> io::Result<()> {
    let depth = below.components().count();
    let Some(top) = target.ancestors().nth(depth).filter(|_| target.ends_with(below)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(mount)?.st_mode);
    match find(top, below, kind, owner)? {
        Some((parent, name)) => {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            Ok(move_mount(mount, "", &parent, name, flags)?)
        }
        None => Ok(()),
    }
}

/// The directory of the mount point and its name there. Both are made if they are missing.
fn find<'a>(
    top: &Path,
    below: &'a Path,
    kind: FileType,
    owner: Owner,
) -> io::Result<Option<(OwnedFd, &'a OsStr)>> {
    let open_top = || openat2(CWD, top, DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    let mut directory = match open_top() {
        Err(Errno::NOENT) => {
            make_directory(top)?;
            open_top()
        }
        opened => opened,
    };
    let mut names = below.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        let Some(parent) = unless_in_the_way(directory)? else { return Ok(None) };
        let wanted = if names.peek().is_some() { FileType::Directory } else { kind };
        let is_there = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        match is_there {
            Some(there) if there != wanted => return Ok(None),
            Some(_) => {}
            None => make(&parent, name, wanted, owner)?,
        }
        if names.peek().is_none() {
            return Ok(Some((parent, name)));
        }
        directory = openat2(&parent, name, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    }
    Err(io::ErrorKind::InvalidInput.into())
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn unless_in_the_way(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn make(parent: &OwnedFd, name: &OsStr, kind: FileType, owner: Owner) -> io::Result<()> {
    match kind {
        FileType::Directory => mkdirat(parent, name, Mode::from_raw_mode(0o755))?,
        _ => mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?,
    }
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    Ok(chownat(parent, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn place(top: &Path, below: &str, kind: FileType) -> bool {
        let owner = Owner {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        find(top, Path::new(below), kind, owner).unwrap().is_some()
    }

    #[test]
    fn missing_directories_are_made_and_existing_ones_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("home/user");
        for _ in 0..2 {
            assert!(place(&top, ".cache/pip", FileType::Directory));
            assert!(place(&top, ".cargo/.lock", FileType::RegularFile));
        }
        assert!(top.join(".cache/pip").is_dir() && top.join(".cargo/.lock").is_file());
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(fs::metadata(top.join(".cache")).unwrap().uid(), own);
    }

    #[test]
    fn nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("user");
        fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
        fs::create_dir(&top).unwrap();
        symlink("../elsewhere", top.join(".cache")).unwrap();
        symlink("missing", top.join(".npm")).unwrap();
        fs::write(top.join(".m2"), "a file").unwrap();
        fs::create_dir(top.join("lock")).unwrap();
        let (directory, file) = (FileType::Directory, FileType::RegularFile);
        for (below, kind) in [
            (".cache/pip", directory),
            (".npm", directory),
            (".m2", directory),
            (".m2/repository", directory),
            ("lock", file),
        ] {
            assert!(!place(&top, below, kind), "{below}");
        }
        assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(top.join(".m2")).unwrap(), "a file");
        // The directory itself may be a link of the image.
        symlink("user", dir.path().join("link")).unwrap();
        fs::remove_file(top.join(".cache")).unwrap();
        assert!(place(&dir.path().join("link"), ".cache/pip", directory));
        assert!(top.join(".cache/pip").is_dir());
        // Where the place itself is a file, there is no directory below it.
        assert!(!place(&top.join(".m2"), ".npm", directory));
    }
}
