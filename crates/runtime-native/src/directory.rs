//! The layout of `DATA/runtime/PROTOCOL/`, the directory of the native backend, which clients and
//! keeper share; `DATA/runtime-bwrap/PROTOCOL/` is the same for bubblewrap. Only names, and how directories are created, claimed and discarded.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename};
use stockade_bundle::claim::claim;
use stockade_bundle::data::{self, DataDir};
use stockade_core::SandboxId;
use stockade_plan::skeleton;

use super::bubblewrap::Launcher;
use super::socket::{Listener, Socket};
use super::wire::PROTOCOL;

const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const LOG: &str = "log";
const OLD_LOG: &str = "log.old";
const SANDBOXES: &str = "sandboxes";
const SNAPSHOTS: &str = "snapshots";
const STAGING: &str = "staging";
const TRASH: &str = "trash";
/// The lower layer of sandboxes that use the host's own programs; the keeper creates it.
pub(crate) const SKELETON: &str = "skeleton";

/// Only the owner may enter or list: the directories hold files of sandboxes.
const PRIVATE: u32 = 0o700;
/// The maximal length of the keeper's log when a keeper starts; a longer log becomes the old log.
const LOG_BYTES: u64 = 1024 * 1024;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// An entry of the data directory cannot be used.
    #[error("cannot use {}", path.display())]
    Use {
        /// The path of the entry.
        path: PathBuf,
        /// The cause.
        #[source]
        source: beneath::Error,
    },
}

/// The open directory `DATA/runtime/PROTOCOL`.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// `DATA/runtime`.
    versions: Dir,
    dir: Dir,
}

/// A new directory in [`Directory::staging`] that belongs to the owner of this value. It is locked,
/// so that no process treats it as a leftover. Dropping this value removes the directory if it is
/// still there.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Its name.
    pub(crate) name: String,
    /// The directory.
    pub(crate) dir: Dir,
    staging: Dir,
    trash: Dir,
}

impl Directory {
    /// Opens the directory and creates its missing parts. Refuses a data directory that belongs to
    /// another user or that others may write to.
    pub(crate) fn open(data: &Path, launcher: Launcher) -> Result<Self, Error> {
        let version = PROTOCOL.to_string();
        let path = data.join(launcher.directory()).join(&version);
        let failed = |source| Error::Use { path: path.clone(), source };
        let data = DataDir::open(data)?;
        let versions = match launcher {
            Launcher::Own => data.runtime()?,
            Launcher::Bubblewrap => data.runtime_bwrap()?,
        };
        let dir = part(&versions, &version).map_err(failed)?;
        for name in [SNAPSHOTS, STAGING, TRASH] {
            part(&dir, name).map_err(failed)?;
        }
        part(&dir, SANDBOXES).map_err(failed)?.spread_subdirectories();
        Ok(Self { path, versions, dir })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the keeper's lock; `None` when another process has it.
    pub(crate) fn lock(&self) -> Result<Option<OwnedFd>, beneath::Error> {
        let file = self.open_or_create(LOCK)?;
        Ok(flock(file.as_fd())?.then(|| file.into()))
    }

    /// Listens for clients and replaces the socket of a keeper that has ended.
    pub(crate) fn listen(&self) -> std::io::Result<Listener> {
        Listener::bind(self.dir.as_fd(), SOCKET)
    }

    /// Removes the socket, so that clients see that no keeper listens any more.
    pub(crate) fn unlink_socket(&self) {
        // If the socket stays, connections to it are refused.
        let _ = rustix::fs::unlinkat(self.dir.as_fd(), SOCKET, rustix::fs::AtFlags::empty());
    }

    /// Connects to the keeper.
    pub(crate) fn connect(&self) -> std::io::Result<Socket> {
        Socket::connect(self.dir.as_fd(), SOCKET)
    }

    /// Connects to the running keepers of earlier versions.
    pub(crate) fn connect_older(&self) -> Result<Vec<Socket>, beneath::Error> {
        let mut sockets = Vec::new();
        for (entry, kind) in self.versions.entries()? {
            let version = std::str::from_utf8(&entry).ok().and_then(|text| text.parse().ok());
            let older = version.is_some_and(|version: u32| version < PROTOCOL);
            if older && kind == FileKind::Directory {
                let dir = self.versions.locate_dir(&name(entry)?)?;
                // If no keeper answers, none has to drain.
                sockets.extend(Socket::connect(dir.as_fd(), SOCKET));
            }
        }
        Ok(sockets)
    }

    /// The keeper's log, opened for appending.
    pub(crate) fn log(&self) -> Result<File, beneath::Error> {
        let log = name(LOG)?;
        if self.dir.stat(&log)?.is_some_and(|stat| stat.size > LOG_BYTES) {
            self.dir.rename(&log, &self.dir, &name(OLD_LOG)?, Rename::Replace)?;
        }
        let file = self.open_or_create(LOG)?;
        rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)
            .map_err(|errno| failed("append to", LOG, errno))?;
        Ok(file)
    }

    /// The keeper's log, opened for reading.
    pub(crate) fn read_log(&self) -> Result<File, beneath::Error> {
        self.dir.open_file(&name(LOG)?)
    }

    /// The directory of all sandboxes, with one subdirectory for each id.
    pub(crate) fn sandboxes(&self) -> Result<Dir, beneath::Error> {
        part(&self.dir, SANDBOXES)
    }

    /// The directory of one sandbox.
    pub(crate) fn sandbox(&self, id: &SandboxId) -> Result<Dir, beneath::Error> {
        self.sandboxes()?.open_dir(&name(id.to_string())?)
    }

    /// The directory of all snapshots, with one subdirectory for each id.
    pub(crate) fn snapshots(&self) -> Result<Dir, beneath::Error> {
        part(&self.dir, SNAPSHOTS)
    }

    /// The directory in which other directories are prepared before they are renamed to their final
    /// paths. An entry that is not locked is a leftover.
    pub(crate) fn staging(&self) -> Result<Dir, beneath::Error> {
        part(&self.dir, STAGING)
    }

    /// The path of the lower layers of sandboxes that use the host's own programs.
    pub(crate) fn skeletons(&self) -> Result<PathBuf, beneath::Error> {
        part(&self.dir, SKELETON)?;
        Ok(self.path.join(SKELETON))
    }

    /// Creates a private directory in [`Directory::staging`].
    pub(crate) fn stage(&self) -> Result<Staged, beneath::Error> {
        let (staging, trash) = (self.staging()?, self.trash()?);
        loop {
            // A fresh name, also when the previous directory has just been taken over.
            let (path, dir) = claim(&staging, &format!("{}-", next()))?;
            // Before it was locked, another process may have removed it as a leftover.
            if is_at(&staging, &path, &dir)? {
                let name = String::from_utf8_lossy(path.as_bytes()).into_owned();
                return Ok(Staged { name, dir, staging, trash });
            }
        }
    }

    /// Moves `entry` from `parent`, one of the directories here, to the trash, so that its name is
    /// free immediately. Returns its name in [`Directory::trash`], or `None` if there was no such
    /// entry.
    pub(crate) fn discard(
        &self,
        parent: &Dir,
        entry: &str,
    ) -> Result<Option<String>, beneath::Error> {
        discard(parent, entry, &self.trash()?)
    }

    /// Discards every complete skeleton whose name is not in `used`. Returns whether there was one.
    pub(crate) fn discard_unused_skeletons(
        &self,
        used: &BTreeSet<&str>,
    ) -> Result<bool, beneath::Error> {
        let skeletons = Dir::open(&self.skeletons()?)?;
        let mut discarded = false;
        for (name, _) in skeletons.entries()? {
            let Ok(name) = std::str::from_utf8(&name) else { continue };
            // An incomplete skeleton belongs to its creator or is swept later.
            if !name.starts_with(skeleton::UNFINISHED) && !used.contains(name) {
                discarded |= self.discard(&skeletons, name)?.is_some();
            }
        }
        Ok(discarded)
    }

    /// The directory of discarded entries.
    pub(crate) fn trash(&self) -> Result<Dir, beneath::Error> {
        part(&self.dir, TRASH)
    }

    fn open_or_create(&self, file: &'static str) -> Result<File, beneath::Error> {
        let path = name(file)?;
        loop {
            match self.dir.create_file(&path, 0o600) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {}
                other => return other,
            }
            match self.dir.open_file_to_write(&path) {
                Err(error) if error.errno() == Some(Errno::NOENT) => {}
                other => return other,
            }
        }
    }
}

/// The directory below `parent`. It is created if it is missing.
fn part(parent: &Dir, entry: &str) -> Result<Dir, beneath::Error> {
    let path = name(entry)?;
    match parent.open_dir(&path) {
        Err(error) if error.errno() == Some(Errno::NOENT) => {}
        other => return other,
    }
    match parent.mkdir(&path, PRIVATE) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error),
        _ => parent.open_dir(&path),
    }
}

/// A name or path below a directory here.
pub(crate) fn name(entry: impl AsRef<[u8]>) -> Result<RelativePath, beneath::Error> {
    let entry = entry.as_ref();
    RelativePath::new(entry).map_err(|error| beneath::Error::Io {
        operation: "name",
        path: entry.escape_ascii().to_string(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidInput, error),
    })
}

impl Staged {
    /// Moves it to `to` under the name `entry`. Returns `false` if that name exists; then the
    /// directory stays where it is.
    pub(crate) fn publish(&self, to: &Dir, entry: &str) -> Result<bool, beneath::Error> {
        match self.staging.rename(&name(&self.name)?, to, &name(entry)?, Rename::NoReplace) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // If this fails, the directory is a leftover, which is swept later.
        let _ = name(&self.name).and_then(|path| {
            if !is_at(&self.staging, &path, &self.dir)? {
                return Ok(());
            }
            // A process that takes it over at this moment gets all of it or nothing.
            match discard(&self.staging, &self.name, &self.trash)? {
                Some(thrown) => self.trash.remove_tree(&name(thrown)?),
                None => Ok(()),
            }
        });
    }
}

fn discard(parent: &Dir, entry: &str, trash: &Dir) -> Result<Option<String>, beneath::Error> {
    let from = name(entry)?;
    loop {
        let candidate = unique(entry);
        match parent.rename(&from, trash, &name(&candidate)?, Rename::NoReplace) {
            Ok(()) => return Ok(Some(candidate)),
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A name that this process has not used before. Another process with the same process id may have
/// used it.
fn unique(prefix: &str) -> String {
    format!("{prefix}.{}-{}", std::process::id(), next())
}

/// A number that this process has not used before.
fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Whether `path` below `parent` still names the directory `dir`.
pub(crate) fn is_at(parent: &Dir, path: &RelativePath, dir: &Dir) -> Result<bool, beneath::Error> {
    let (named, opened) = (parent.stat(path)?, dir.stat_self()?);
    Ok(named.is_some_and(|named| (named.device, named.inode) == (opened.device, opened.inode)))
}

/// Locks a file or directory; `false` if another process has the lock.
fn flock(file: BorrowedFd<'_>) -> Result<bool, beneath::Error> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(failed("lock", ".", errno)),
    }
}

fn failed(operation: &'static str, path: &str, errno: Errno) -> beneath::Error {
    beneath::Error::Io { operation, path: path.to_owned(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open() -> (tempfile::TempDir, Directory) {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let directory = Directory::open(scratch.path(), Launcher::Own).unwrap();
        (scratch, directory)
    }

    #[test]
    fn it_is_private_and_in_a_data_directory_of_ones_own() {
        let (scratch, directory) = open();
        Directory::open(scratch.path(), Launcher::Own).unwrap();
        for path in ["runtime", "runtime/1", "runtime/1/sandboxes", "runtime/1/staging"] {
            let mode = scratch.path().join(path).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700, "{path}");
        }
        assert_eq!(directory.path(), scratch.path().join("runtime/1"));
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o770)).unwrap();
        let refused = Directory::open(scratch.path(), Launcher::Own).unwrap_err();
        assert!(matches!(refused, Error::Data(data::Error::Writable { .. })), "{refused}");
    }

    #[test]
    fn one_keeper_has_the_lock() {
        let (_scratch, directory) = open();
        let lock = directory.lock().unwrap().unwrap();
        assert!(directory.lock().unwrap().is_none());
        drop(lock);
        assert!(directory.lock().unwrap().is_some());
    }

    #[test]
    fn only_keepers_of_versions_before_this_one_are_connected_to() {
        let (scratch, directory) = open();
        let bind = |version: &str| {
            let path = scratch.path().join("runtime").join(version);
            std::fs::create_dir_all(&path).unwrap();
            Listener::bind(Dir::open(&path).unwrap().as_fd(), SOCKET).unwrap()
        };
        let _newer = [bind("1"), bind("2"), bind("x"), bind("01x")];
        drop(bind("00"));
        assert!(directory.connect_older().unwrap().is_empty());
        let _older = bind("0");
        assert_eq!(directory.connect_older().unwrap().len(), 1);
    }

    #[test]
    fn a_long_log_makes_way_and_writers_append() {
        use std::io::{Read as _, Write as _};
        let (scratch, directory) = open();
        directory.log().unwrap().write_all(b"one\n").unwrap();
        directory.log().unwrap().write_all(b"two\n").unwrap();
        let mut text = String::new();
        directory.read_log().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
        directory.log().unwrap().set_len(LOG_BYTES + 1).unwrap();
        assert_eq!(directory.log().unwrap().metadata().unwrap().len(), 0);
        let old = scratch.path().join("runtime/1/log.old");
        assert_eq!(old.metadata().unwrap().len(), LOG_BYTES + 1);
    }

    #[test]
    fn what_is_staged_is_locked_until_it_has_a_place_or_is_removed() {
        let (_scratch, directory) = open();
        let (first, second) = (directory.stage().unwrap(), directory.stage().unwrap());
        let staging = directory.staging().unwrap();
        for staged in [&first, &second] {
            let again = staging.open_dir(&name(&staged.name).unwrap()).unwrap();
            assert!(!flock(again.as_fd()).unwrap());
            staged.dir.mkdir(&name("inner").unwrap(), 0o700).unwrap();
        }
        let snapshots = directory.snapshots().unwrap();
        assert!(first.publish(&snapshots, "snap").unwrap());
        assert!(!second.publish(&snapshots, "snap").unwrap());
        // Another directory has got the same name meanwhile.
        staging.mkdir(&name(&first.name).unwrap(), 0o700).unwrap();
        let second_name = second.name.clone();
        drop((first, second));
        assert_eq!(staging.entries().unwrap().len(), 1);
        assert!(staging.stat(&name(second_name).unwrap()).unwrap().is_none());
        assert!(snapshots.stat(&name("snap/inner").unwrap()).unwrap().is_some());
        assert_eq!(directory.trash().unwrap().entries().unwrap(), []);
    }

    #[test]
    fn what_is_discarded_frees_its_name() {
        let (_scratch, directory) = open();
        let snapshots = directory.snapshots().unwrap();
        let mut thrown = Vec::new();
        for _ in 0..2 {
            snapshots.mkdir(&name("snap").unwrap(), 0o700).unwrap();
            thrown.push(directory.discard(&snapshots, "snap").unwrap().unwrap());
        }
        assert_ne!(thrown[0], thrown[1]);
        assert_eq!(directory.trash().unwrap().entries().unwrap().len(), 2);
        assert_eq!(directory.discard(&snapshots, "snap").unwrap(), None);
    }
}
