//! The directory of one download. It stays after a failure, so that the next attempt continues, and
//! is locked while a process uses it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_image::Digest;

use crate::problem::caused;

/// How long another download of the same image is waited for.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);
/// How often the lock is tried.
const INTERVAL: Duration = Duration::from_millis(50);

/// The locked directory of one download.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) path: PathBuf,
    directory: Dir,
    all: Dir,
    name: RelativePath,
}

impl Staging {
    /// Opens the directory for what `key` describes, and locks it.
    ///
    /// # Errors
    /// The data directory cannot be used, or another download takes too long.
    pub(super) fn open(
        data: &DataDir,
        key: &str,
        mut on_wait: impl FnMut(),
    ) -> Result<Self, Problem> {
        let all = data.downloads().map_err(|error| caused(Code::Io, &error))?;
        let failed = |error: beneath::Error| caused(Code::Io, &error);
        let digest = Digest::of(key.as_bytes());
        let name = RelativePath::new(digest.hex()).map_err(|error| caused(Code::Io, &error))?;
        let path = data.path().join("downloads").join(digest.hex());
        let deadline = Instant::now() + MAX_WAIT;
        let mut has_waited = false;
        loop {
            match all.mkdir(&name, 0o700) {
                Err(error) if error.errno() != Some(Errno::EXIST) => return Err(failed(error)),
                _ => {}
            }
            let directory = match all.open_dir(&name) {
                Err(error) if error.errno() == Some(Errno::NOENT) => continue,
                opened => opened.map_err(failed)?,
            };
            match lock(&directory) {
                // The download that was waited for may have removed the directory.
                Ok(()) if is_same(&all, &name, &directory) => {
                    return Ok(Self { path, directory, all, name });
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    if !std::mem::replace(&mut has_waited, true) {
                        on_wait();
                    }
                    std::thread::sleep(INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(Problem::new(Code::Busy, "another process downloads this image"));
                }
                Err(errno) => return Err(caused(Code::Io, &std::io::Error::from(errno))),
            }
        }
    }

    /// Whether processes that are started from now on hold the lock, too.
    pub(super) fn share_lock(&self, shared: bool) -> Result<(), Problem> {
        let flags = if shared { FdFlags::empty() } else { FdFlags::CLOEXEC };
        fcntl_setfd(self.directory.as_fd(), flags)
            .map_err(|errno| caused(Code::Io, &std::io::Error::from(errno)))
    }

    /// The path of a blob.
    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.path.join("blobs/sha256").join(digest.hex())
    }

    /// Removes it after its image is in the store.
    pub(super) fn remove(self) {
        // What remains is removed by the next `prune`.
        let _ = self.all.remove_tree(&self.name);
    }
}

fn lock(directory: &Dir) -> Result<(), Errno> {
    rustix::fs::flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive)
}

/// Whether the name still leads to this directory.
fn is_same(all: &Dir, name: &RelativePath, directory: &Dir) -> bool {
    let now = all.open_dir(name).ok().and_then(|now| rustix::fs::fstat(now.as_fd()).ok());
    let opened = rustix::fs::fstat(directory.as_fd()).ok();
    matches!((now, opened), (Some(now), Some(opened)) if now.st_ino == opened.st_ino)
}

/// Removes the directories of downloads that no process uses; returns how many bytes they had.
///
/// # Errors
/// The data directory cannot be used.
pub(crate) fn remove_unused(data: &DataDir) -> Result<u64, Problem> {
    let failed = |error: beneath::Error| caused(Code::Io, &error);
    let all = data.downloads().map_err(|error| caused(Code::Io, &error))?;
    let mut bytes = 0;
    for (name, _) in all.entries().map_err(failed)? {
        let path = RelativePath::new(&name[..]).map_err(|error| caused(Code::Io, &error))?;
        let Ok(directory) = all.open_dir(&path) else { continue };
        if lock(&directory).is_err() {
            continue;
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        bytes += size(&data.path().join("downloads").join(name).join("blobs/sha256"));
        all.remove_tree(&path).map_err(failed)?;
    }
    Ok(bytes)
}

fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_locked_and_what_no_process_uses_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let data = DataDir::open(&scratch.path().join("data")).unwrap();
        let staging = Staging::open(&data, "a", || panic!("nobody waits")).unwrap();
        std::fs::create_dir_all(staging.path.join("blobs/sha256")).unwrap();
        std::fs::write(staging.path.join("blobs/sha256/x"), b"12345").unwrap();
        assert_eq!(remove_unused(&data).unwrap(), 0);
        let path = staging.path.clone();
        drop(staging);
        let again = Staging::open(&data, "a", || panic!("nobody waits")).unwrap();
        assert!(again.path.join("blobs/sha256/x").exists());
        drop(again);
        assert_eq!(remove_unused(&data).unwrap(), 5);
        assert!(!path.exists());
        Staging::open(&data, "a", || panic!("nobody waits")).unwrap().remove();
        assert!(!path.exists());
    }
}
