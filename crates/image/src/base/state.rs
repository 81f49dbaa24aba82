//! The directory of the copies.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Rename};
use stockade_bundle::claim::{claim, try_lock};
use stockade_bundle::data::{BASES, DataDir};

use super::copy::{self, Content};
use super::{Error, Progress, io_error};

/// The file that is locked by the one who makes or removes a copy.
const LOCK: &str = "lock";
/// The start of the names of copies that are being made.
const UNFINISHED: &str = "new-";
/// The start of the names of replaced copies.
const REPLACED: &str = "old-";
/// The directory of the content in a copy.
const ROOT: &str = "root";
/// The file of the record in a copy.
const RECORD: &str = "base.json";
/// A file for a short time.
const SCRATCH: &str = "scratch";
/// The largest record.
const MAX_RECORD_BYTES: u64 = 1 << 16;
/// How long another maker is waited for: gigabytes may have to be copied.
const MAX_WAIT_MINUTES: u64 = 30;
/// How often the lock is tried.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often a copy is opened that others remove at the same time.
const MAX_ATTEMPTS: u32 = 8;
/// What remains free beside a copy.
const RESERVE_BYTES: u64 = 64 << 20;
/// See [`RESERVE_BYTES`].
const RESERVE_INODES: u64 = 1000;
/// What a file takes whose content is shared.
const SHARED_ENTRY_BYTES: u64 = 1024;

/// A complete copy, which is not removed as long as this exists.
#[derive(Debug)]
pub struct Base {
    path: PathBuf,
    lock: OwnedFd,
    record: Record,
}

/// What is known about a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    content: Content,
    /// Whether its content is shared with the host's files on disk. It is not in memory.
    shared: bool,
    made: String,
}

impl Base {
    /// The path of its copy of a directory of the host.
    pub fn directory(&self, host: &Path) -> PathBuf {
        copy::below(&self.path.join(ROOT), host)
    }

    /// Its own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it consists of.
    pub const fn content(&self) -> Content {
        self.record.content
    }

    /// Whether its content is shared with the host's files on disk. In memory it is not.
    pub const fn is_shared(&self) -> bool {
        self.record.shared
    }

    /// When it was made, in RFC 3339.
    pub fn made(&self) -> &str {
        &self.record.made
    }

    /// A descriptor that keeps it from being removed, also in processes that inherit it.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn hold(&self) -> std::io::Result<OwnedFd> {
        self.lock.try_clone()
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many copies.
    pub removed: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Copies that could be removed if no sandbox used them.
    pub in_use: u64,
}

/// The open directory of the copies.
#[derive(Debug)]
pub(super) struct Bases {
    dir: Dir,
    path: PathBuf,
}

/// A copy without a name.
pub(super) struct Unfinished<'a> {
    bases: &'a Bases,
    name: RelativePath,
    dir: Dir,
    record: Record,
    finished: bool,
}

impl Bases {
    pub(super) fn open(data: &DataDir) -> Result<Self, Error> {
        Ok(Self { dir: data.bases()?, path: data.path().join(BASES) })
    }

    /// The copy of this name.
    pub(super) fn find(&self, name: &str) -> Result<Option<Base>, Error> {
        let relative = relative(name.as_bytes())?;
        for _ in 0..MAX_ATTEMPTS {
            let dir = match self.dir.open_dir(&relative) {
                Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
                opened => opened?,
            };
            match rustix::fs::flock(dir.as_fd(), FlockOperation::NonBlockingLockShared) {
                // It is being removed.
                Err(Errno::WOULDBLOCK) => {
                    thread::sleep(INTERVAL);
                    continue;
                }
                locked => locked.map_err(|errno| io_error("lock a copy")(errno.into()))?,
            }
            let opened = dir.stat_self()?;
            if self.dir.stat(&relative)?.is_some_and(|there| there.inode == opened.inode) {
                let record = read_record(&dir)?;
                return Ok(Some(Base { path: self.path.join(name), lock: dir.into(), record }));
            }
        }
        Ok(None)
    }

    /// Waits for the lock.
    pub(super) fn lock(&self, progress: &mut dyn FnMut(Progress)) -> Result<File, Error> {
        let name = RelativePath::literal(LOCK);
        let file = match self.dir.create_file(&name, 0o600) {
            Err(error) if error.errno() == Some(Errno::EXIST) => self.dir.open_file(&name)?,
            created => created?,
        };
        let deadline = Instant::now() + Duration::from_secs(MAX_WAIT_MINUTES * 60);
        let mut is_waiting = false;
        loop {
            match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    if !std::mem::replace(&mut is_waiting, true) {
                        progress(Progress::Waiting);
                    }
                    thread::sleep(INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => return Err(Error::Busy(MAX_WAIT_MINUTES)),
                Err(errno) => return Err(io_error("wait")(errno.into())),
            }
        }
    }

    /// Copies the directories. The caller has the lock.
    pub(super) fn copy(
        &self,
        tops: &[&Path],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Unfinished<'_>, Error> {
        progress(Progress::Counting);
        let (all, sample) = copy::count(tops)?;
        let (name, dir) = claim(&self.dir, UNFINISHED)?;
        let record =
            Record { content: all, shared: false, made: jiff::Timestamp::now().to_string() };
        let mut unfinished = Unfinished { bases: self, name, dir, record, finished: false };
        let scratch = RelativePath::literal(SCRATCH);
        let file = unfinished.dir.create_file(&scratch, 0o600)?;
        let shared = copy::can_share(sample.as_ref(), &file);
        drop((file, sample));
        unfinished.dir.remove_file(&scratch)?;
        self.check_space(all, shared)?;
        let root = RelativePath::literal(ROOT);
        unfinished.dir.mkdir(&root, 0o755)?;
        unfinished.dir.chmod(&root, 0o755)?;
        let to = unfinished.dir.open_dir(&root)?;
        unfinished.record.content = copy::copy(tops, &to, all, progress)?;
        unfinished.record.shared = shared;
        Ok(unfinished)
    }

    fn check_space(&self, all: Content, shared: bool) -> Result<(), Error> {
        let disk = rustix::fs::fstatvfs(self.dir.as_fd())
            .map_err(|errno| io_error("find the free space")(errno.into()))?;
        let bytes = if shared { all.entries * SHARED_ENTRY_BYTES } else { all.bytes };
        let needed = bytes.saturating_add(bytes / 50).saturating_add(RESERVE_BYTES);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let path = || self.path.clone();
        if free < needed {
            return Err(Error::NoSpace { path: path(), needed, free });
        }
        let needed = all.entries.saturating_add(RESERVE_INODES);
        // File systems that make inodes as needed report none.
        if disk.f_files > 0 && disk.f_favail < needed {
            return Err(Error::NoInodes { path: path(), needed, free: disk.f_favail });
        }
        Ok(())
    }

    /// Removes what no sandbox uses, and what killed makers left. The caller has the lock.
    pub(super) fn remove_unused(&self, kept: Option<&str>) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        for (name, kind) in self.dir.entries()? {
            if name == LOCK.as_bytes() || kept.is_some_and(|kept| name == kept.as_bytes()) {
                continue;
            }
            let entry = relative(&name)?;
            if kind != FileKind::Directory {
                self.dir.remove_file(&entry)?;
                continue;
            }
            let dir = self.dir.open_dir(&entry)?;
            if !try_lock(&dir)? {
                pruned.in_use += 1;
                continue;
            }
            if !name.starts_with(UNFINISHED.as_bytes()) {
                pruned.removed += 1;
                pruned.bytes += read_record(&dir).map_or(0, |record| match record.shared {
                    true => record.content.entries * SHARED_ENTRY_BYTES,
                    false => record.content.bytes,
                });
            }
            // Under its own name a copy is always complete.
            let gone = self.unused_name(UNFINISHED)?;
            self.dir.rename(&entry, &self.dir, &gone, Rename::NoReplace)?;
            self.dir.remove_tree(&gone)?;
        }
        Ok(pruned)
    }

    /// A name that nothing has. The caller has the lock.
    fn unused_name(&self, prefix: &str) -> Result<RelativePath, Error> {
        let process = std::process::id();
        for number in 0..u32::MAX {
            let name = relative(format!("{prefix}x{process}-{number}").as_bytes())?;
            if !self.dir.exists(&name)? {
                return Ok(name);
            }
        }
        Err(io_error("find a name")(Errno::EXIST.into()))
    }
}

impl Unfinished<'_> {
    /// Gives the copy its name once it is on disk.
    pub(super) fn publish(mut self, name: &str) -> Result<Base, Error> {
        let failed = io_error("write a record");
        let text = serde_json::to_vec(&self.record).map_err(|error| failed(error.into()))?;
        let mut file = self.dir.create_file(&RelativePath::literal(RECORD), 0o600)?;
        file.write_all(&text).map_err(failed)?;
        self.dir.sync_file_system()?;
        let to = relative(name.as_bytes())?;
        let bases = self.bases;
        if bases.dir.exists(&to)? {
            bases.dir.rename(&self.name, &bases.dir, &to, Rename::Exchange)?;
            let old = bases.unused_name(REPLACED)?;
            bases.dir.rename(&self.name, &bases.dir, &old, Rename::NoReplace)?;
        } else {
            bases.dir.rename(&self.name, &bases.dir, &to, Rename::NoReplace)?;
        }
        self.finished = true;
        bases.dir.sync()?;
        // From now on others may use it.
        rustix::fs::flock(self.dir.as_fd(), FlockOperation::Unlock)
            .map_err(|errno| io_error("unlock a copy")(errno.into()))?;
        let found = bases.find(name)?.ok_or(Error::Missing)?;
        bases.remove_unused(Some(name))?;
        Ok(found)
    }

    /// Removes it.
    pub(super) fn discard(mut self) -> Result<(), Error> {
        self.finished = true;
        Ok(self.bases.dir.remove_tree(&self.name)?)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // What remains is removed by the next maker.
            let _ = self.bases.dir.remove_tree(&self.name);
        }
    }
}

fn read_record(dir: &Dir) -> Result<Record, Error> {
    let failed = io_error("read a record");
    let mut text = Vec::new();
    let file = dir.open_file(&RelativePath::literal(RECORD))?;
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text).map_err(&failed)?;
    serde_json::from_slice(&text).map_err(|error| failed(error.into()))
}

fn relative(name: &[u8]) -> Result<RelativePath, Error> {
    RelativePath::new(name).map_err(|error| io_error("name a copy")(std::io::Error::other(error)))
}
