//! What is known here of sandboxes elsewhere: a file for each, written before a service is asked, so
//! that nothing is left there that nobody knows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_core::SandboxId;
use stockade_runtime::{Error, Result};

/// How long another operation on the same sandbox may take.
const LOCK: Duration = Duration::from_secs(90);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// The file with the name of this data directory at the service.
const OWNER: &str = "owner";

/// What is known of one sandbox.
pub trait Record: Serialize + DeserializeOwned {
    /// The sandbox.
    fn id(&self) -> &SandboxId;
}

/// The records of a data directory.
#[derive(Debug)]
pub struct Records<R> {
    directory: PathBuf,
    /// The name of this data directory at the service.
    pub owner: String,
    kind: PhantomData<fn() -> R>,
}

/// The lock of one sandbox.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl<R: Record> Records<R> {
    /// Opens the records of a data directory, and makes what is missing.
    ///
    /// # Errors
    /// It cannot be created or read.
    pub fn open(directory: PathBuf) -> Result<Self> {
        let failed = |error| host_error(&directory, error);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory.join("sandboxes")).map_err(failed)?;
        builder.create(directory.join("locks")).map_err(failed)?;
        let file = directory.join(OWNER);
        let owner = match std::fs::read_to_string(&file) {
            Ok(owner) => owner.trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let owner = uuid::Uuid::now_v7().simple().to_string();
                write(&file, owner.as_bytes()).map_err(failed)?;
                // Another process may have been faster.
                std::fs::read_to_string(&file).map_err(failed)?.trim().to_owned()
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { directory, owner, kind: PhantomData })
    }

    /// Waits until no other operation works on a sandbox.
    ///
    /// # Errors
    /// Another operation takes too long, or the file cannot be used.
    pub async fn lock(&self, id: &SandboxId) -> Result<Lock> {
        let path = self.directory.join("locks").join(id.as_str());
        let end = tokio::time::Instant::now() + LOCK;
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path).map_err(|error| host_error(&path, error))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its last holder may have removed it meanwhile.
                Ok(()) if is_at(&file, &path) => return Ok(Lock { file }),
                Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(host_error(&path, errno.into())),
            }
            if tokio::time::Instant::now() >= end {
                return Err(Error::Deadline("wait for another operation on the sandbox"));
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    /// A sandbox.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find(&self, id: &SandboxId) -> Result<Option<R>> {
        let path = self.path(id);
        match std::fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(record) => Ok(Some(record)),
                Err(error) => Err(host_error(&path, io::Error::other(error))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host_error(&path, error)),
        }
    }

    /// A sandbox, which must exist.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub fn get(&self, id: &SandboxId) -> Result<R> {
        self.find(id)?.ok_or_else(|| Error::NoSandbox(id.clone()))
    }

    /// Changes the record of a sandbox under its lock.
    ///
    /// # Errors
    /// [`Error::NoSandbox`], or the record cannot be stored.
    pub async fn change(&self, id: &SandboxId, change: impl FnOnce(&mut R)) -> Result<R> {
        let _lock = self.lock(id).await?;
        let mut record = self.get(id)?;
        change(&mut record);
        self.store(&record)?;
        Ok(record)
    }

    /// Stores a record, under the lock of its sandbox.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, record: &R) -> Result<()> {
        let path = self.path(record.id());
        let text = serde_json::to_vec(record).map_err(|error| host_error(&path, error.into()))?;
        write(&path, &text).map_err(|error| host_error(&path, error))
    }

    /// Removes the record of a sandbox, if there is one.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, id: &SandboxId) -> Result<()> {
        for path in [self.path(id), self.directory.join("locks").join(id.as_str())] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(host_error(&path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All records, in the order of their ids.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn all(&self) -> Result<Vec<R>> {
        let directory = self.directory.join("sandboxes");
        let entries =
            std::fs::read_dir(&directory).map_err(|error| host_error(&directory, error))?;
        let mut records = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| host_error(&directory, error))?.file_name();
            let name = name.to_string_lossy();
            let Some(id) = name.strip_suffix(".json") else { continue };
            // It may have been removed meanwhile.
            records.extend(self.find(&SandboxId::new(id)?)?);
        }
        records.sort_by(|one, other| one.id().cmp(other.id()));
        Ok(records)
    }

    fn path(&self, id: &SandboxId) -> PathBuf {
        self.directory.join("sandboxes").join(format!("{id}.json"))
    }
}

/// Whether a path leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (Ok(own), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (own.dev(), own.ino()) == (named.dev(), named.ino())
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The error of a file of the host.
pub fn host_error(path: &Path, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::StorageFull {
        return Error::Exhausted("the disk of the data directory is full".to_owned());
    }
    Error::Host { path: path.display().to_string(), source }
}

/// Writes a file completely or not at all.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", uuid::Uuid::now_v7().simple()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text).and_then(|()| file.sync_all());
    let written = written.and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
