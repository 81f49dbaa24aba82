//! Appends records to the file of a data directory.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::entry::Entry;
use crate::error::Error;
use crate::keys::{KeyDirectory, Keys};
use crate::line::{Gap, Head, Line, hex};
use crate::tail::{self, Tail};

/// The directory in the data directory, and the file in it.
const DIRECTORY: &str = "audit";
pub(crate) const FILE: &str = "log.jsonl";
const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
/// How long another process may hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The file of a data directory, to append to.
#[derive(Debug)]
pub struct Log {
    data_directory: OwnedFd,
    /// The path of the data directory, which names its checkpoint.
    data: PathBuf,
    keys: Option<Keys>,
    open: Mutex<Open>,
}

/// The open file, and the end of it that this process has written.
#[derive(Debug)]
struct Open {
    directory: OwnedFd,
    file: OwnedFd,
    own_end: Option<(u64, Head)>,
}

impl Log {
    /// Opens the file of a data directory, and creates it if there is none. `path` is the path of the
    /// data directory without links.
    ///
    /// # Errors
    /// If the file or the key cannot be used.
    pub fn open(
        data: BorrowedFd<'_>,
        path: &Path,
        keys: Option<&KeyDirectory>,
    ) -> Result<Self, Error> {
        let directory =
            open_directory(data, true)?.ok_or_else(|| Error::log("opened", Errno::NOENT))?;
        let keys = keys.map(KeyDirectory::open_or_create).transpose()?.flatten();
        let file = open_file(directory.as_fd())?;
        let data_directory = data
            .try_clone_to_owned()
            .map_err(|source| Error::Log { operation: "opened", source })?;
        let open = Mutex::new(Open { directory, file, own_end: None });
        Ok(Self { data_directory, data: path.to_owned(), keys, open })
    }

    /// Whether records are signed.
    pub const fn is_signed(&self) -> bool {
        self.keys.is_some()
    }

    /// Appends records. Other processes may append at the same time.
    ///
    /// # Errors
    /// If they cannot be stored; none is then.
    pub fn append(&self, entries: &[Entry]) -> Result<(), Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = &mut *open;
        let _lock = self.lock(open)?;
        let size = fs::fstat(&open.file).map_err(|errno| Error::log("read", errno))?.st_size;
        let size = u64::try_from(size).unwrap_or_default();
        let (mut head, mut gap, size) = match open.own_end.take() {
            Some((end, head)) if end == size => (head, None, size),
            _ => self.find_end(&open.file, size)?,
        };
        let mut text = String::new();
        for entry in entries {
            let key = self.keys.as_ref().map(|keys| &keys.key);
            let line = Line::after(&head, gap.take(), entry, key).map_err(Error::Json)?;
            text.push_str(&line.0);
            head = line.1;
        }
        write(&open.file, text.as_bytes()).inspect_err(|_| {
            // Nothing of an incomplete line may stay before the next one.
            let _ = fs::ftruncate(&open.file, size);
        })?;
        if let Some(keys) = &self.keys
            && !entries.is_empty()
        {
            keys.store_checkpoint(&self.data, &head)?;
        }
        open.own_end = Some((size + text.len() as u64, head));
        Ok(())
    }

    /// Waits until the records are on the disk.
    ///
    /// # Errors
    /// If they cannot be written to it.
    pub fn sync(&self) -> Result<(), Error> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        fs::fdatasync(&open.file).map_err(|errno| Error::log("written", errno))
    }

    /// Locks the file. Another one, or another directory, may have its name by now: records that are
    /// written where nobody reads them would be lost.
    fn lock(&self, open: &mut Open) -> Result<Lock, Error> {
        let failed = |errno| Error::log("opened", errno);
        loop {
            lock(open.file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
            let lock = Lock(
                open.file
                    .try_clone()
                    .map_err(|source| Error::Log { operation: "opened", source })?,
            );
            let is_named = |directory: BorrowedFd<'_>, name, of: &OwnedFd| {
                let own = fs::fstat(of).map_err(failed)?;
                let named = fs::statat(directory, name, fs::AtFlags::SYMLINK_NOFOLLOW);
                let named = named.map(|named| (named.st_dev, named.st_ino));
                Ok::<_, Error>(named == Ok((own.st_dev, own.st_ino)))
            };
            if is_named(self.data_directory.as_fd(), DIRECTORY, &open.directory)?
                && is_named(open.directory.as_fd(), FILE, &open.file)?
            {
                return Ok(lock);
            }
            drop(lock);
            let directory = open_directory(self.data_directory.as_fd(), true)?
                .ok_or_else(|| Error::log("opened", Errno::NOENT))?;
            let file = open_file(directory.as_fd())?;
            *open = Open { directory, file, own_end: None };
        }
    }

    /// The newest record, and what is missing before the next one according to the checkpoint.
    fn find_end(&self, file: &OwnedFd, size: u64) -> Result<(Head, Option<Gap>, u64), Error> {
        let (tail, size) = tail::read(file, size)?;
        let checkpoint = match &self.keys {
            Some(keys) => keys.checkpoint(&self.data)?.map(|checkpoint| checkpoint.head),
            None => None,
        };
        let is_signed = |head: &Head| {
            let key = self.keys.as_ref().map(|keys| keys.key.verifying_key());
            key.is_none_or(|key| head.is_signed_by(&key))
        };
        let (found, is_expected) = match (tail, &checkpoint) {
            (Tail::Empty, None) => return Ok((Head::empty(new_chain()?), None, size)),
            (Tail::Record(head), None) => return Ok((head, None, size)),
            (Tail::Record(head), Some(expected)) => {
                // A process may have been killed before it has written the checkpoint.
                let is_later = head.seq > expected.seq && is_signed(&head);
                let is_expected = head.chain == expected.chain && (head == *expected || is_later);
                (Some(head), is_expected)
            }
            (Tail::Empty | Tail::Damaged, _) => (None, false),
        };
        if let (Some(head), true) = (&found, is_expected) {
            return Ok((head.clone(), None, size));
        }
        // The next record shows that others are missing: its number is above theirs.
        let found_seq = found.as_ref().map_or(0, |head| head.seq);
        let expected = checkpoint.unwrap_or_else(|| Head::empty(String::new()));
        let gap =
            Gap { expected_chain: expected.chain.clone(), expected_seq: expected.seq, found_seq };
        let base = found.filter(|head| head.chain == expected.chain).unwrap_or(expected);
        let chain = if base.chain.is_empty() { new_chain()? } else { base.chain.clone() };
        let seq = base.seq.max(gap.expected_seq);
        Ok((Head { chain, seq, ..base }, Some(gap), size))
    }
}

/// Gives the records of a data directory another name, so that a new chain begins: those of a copy of the
/// directory would continue the chain of the original, and each would look cut off beside the other.
///
/// # Errors
/// If the file cannot be renamed. That there is none is no error.
pub fn set_aside(data: BorrowedFd<'_>, suffix: &str) -> Result<(), Error> {
    let Some(directory) = open_directory(data, false)? else { return Ok(()) };
    match fs::renameat(&directory, FILE, &directory, format!("{FILE}.{suffix}")) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::log("renamed", errno)),
    }
}

/// Locks a file, within a deadline.
pub(crate) fn lock(file: BorrowedFd<'_>, how: FlockOperation) -> Result<(), Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match fs::flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(Error::Locked),
            Err(errno) => return Err(Error::log("opened", errno)),
        }
    }
}

/// Holds the lock of the file.
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing does the same once no copy of the descriptor is left.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens the directory of the records.
pub(crate) fn open_directory(data: BorrowedFd<'_>, create: bool) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno| Error::log("opened", errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | FLAGS;
    let directory = match fs::openat(data, DIRECTORY, flags, Mode::empty()) {
        Err(Errno::NOENT) if create => {
            match fs::mkdirat(data, DIRECTORY, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            fs::openat(data, DIRECTORY, flags, Mode::empty())
        }
        Err(Errno::NOENT) => return Ok(None),
        opened => opened,
    };
    let directory = directory.map_err(failed)?;
    let stat = fs::fstat(&directory).map_err(failed)?;
    let others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if stat.st_uid != rustix::process::geteuid().as_raw() || others {
        return Err(failed(Errno::PERM));
    }
    Ok(Some(directory))
}

fn open_file(directory: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let failed = |errno| Error::log("opened", errno);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NONBLOCK | FLAGS;
    let file = fs::openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let stat = fs::fstat(&file).map_err(failed)?;
    let is_file = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile;
    if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(failed(Errno::PERM));
    }
    Ok(file)
}

fn write(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Error::log("written", Errno::NOSPC)),
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::log("written", errno)),
        }
    }
    Ok(())
}

fn new_chain() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(16) => Ok(hex(&bytes)),
        Ok(_) => Err(Error::log("opened", Errno::IO)),
        Err(errno) => Err(Error::log("opened", errno)),
    }
}
