//! What is known here of a sandbox elsewhere: a file for each, written before the server is asked, so
//! that nothing is left there that nobody knows. It has no environment and no key.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use stockade_core::ending::Ending;
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{EndCause, Error, Offsets, Result, State};

/// How long another operation on the same sandbox may take.
const LOCK: Duration = Duration::from_secs(90);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// The file with the name of this data directory at the server.
const OWNER: &str = "owner";

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: SandboxId,
    /// Its id at the server; absent until that is known.
    pub(crate) remote: Option<String>,
    /// A hash of what was requested.
    pub(crate) requested: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) working_directory: Option<String>,
    pub(crate) created_at_ms: u64,
    /// Whether it was created without a lease: the server cannot give it one.
    #[serde(default)]
    pub(crate) is_endless: bool,
    /// When its lease ends.
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) ended: Option<(EndCause, String)>,
    /// The limits that were requested and are not enforced, by name.
    #[serde(default)]
    pub(crate) limits: Vec<(String, bool)>,
    #[serde(default)]
    pub(crate) execs: BTreeMap<ExecId, ExecRecord>,
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecRecord {
    /// Its id at the server; absent until that is known.
    pub(crate) remote: Option<String>,
    /// Whether an earlier start may have run the command, whose id is not known.
    #[serde(default)]
    pub(crate) is_repeated: bool,
    pub(crate) timeout_at_ms: Option<u64>,
    pub(crate) output_limit: Option<u64>,
    /// Whether its input is streamed, and how many pieces of it were passed on.
    #[serde(default)]
    pub(crate) is_fed: bool,
    #[serde(default)]
    pub(crate) pieces: u64,
    /// The signals that were sent to it.
    #[serde(default)]
    pub(crate) signals: Vec<i32>,
    /// How it was ended from here, before the server says that it has ended.
    pub(crate) cause: Option<Ending>,
    pub(crate) ending: Option<Ending>,
    #[serde(default)]
    pub(crate) written: Offsets,
}

impl Record {
    /// Refuses an operation on a sandbox that does not run.
    pub(crate) fn require_running(&self, operation: &'static str) -> Result<()> {
        match self.ended {
            None => Ok(()),
            Some(_) => {
                Err(Error::WrongState { id: self.id.clone(), state: State::Ended, operation })
            }
        }
    }

    /// A command, which must exist.
    pub(crate) fn exec(&self, exec: &ExecId) -> Result<&ExecRecord> {
        let missing = || Error::NoExec { sandbox: self.id.clone(), exec: exec.clone() };
        self.execs.get(exec).ok_or_else(missing)
    }
}

/// The records of a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    directory: PathBuf,
    /// The name of this data directory at the server.
    pub(crate) owner: String,
}

/// The lock of one sandbox.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Records {
    /// Opens the records of a data directory, and makes what is missing.
    pub(crate) fn open(directory: PathBuf) -> Result<Self> {
        let failed = |error| host(&directory, error);
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
        Ok(Self { directory, owner })
    }

    /// Waits until no other operation works on a sandbox.
    pub(crate) async fn lock(&self, id: &SandboxId) -> Result<Lock> {
        let path = self.directory.join("locks").join(id.as_str());
        let end = tokio::time::Instant::now() + LOCK;
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path).map_err(|error| host(&path, error))?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its last holder may have removed it meanwhile.
                Ok(()) if is_at(&file, &path) => return Ok(Lock { file }),
                Ok(()) | Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(host(&path, errno.into())),
            }
            if tokio::time::Instant::now() >= end {
                return Err(Error::Deadline("wait for another operation on the sandbox"));
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    /// A sandbox.
    pub(crate) fn find(&self, id: &SandboxId) -> Result<Option<Record>> {
        let path = self.path(id);
        match std::fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(record) => Ok(Some(record)),
                Err(error) => Err(host(&path, io::Error::other(error))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host(&path, error)),
        }
    }

    /// A sandbox, which must exist.
    pub(crate) fn get(&self, id: &SandboxId) -> Result<Record> {
        self.find(id)?.ok_or_else(|| Error::NoSandbox(id.clone()))
    }

    /// Changes the record of a sandbox under its lock.
    pub(crate) async fn change(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut Record),
    ) -> Result<Record> {
        let _lock = self.lock(id).await?;
        let mut record = self.get(id)?;
        change(&mut record);
        self.store(&record)?;
        Ok(record)
    }

    /// Stores a record, under the lock of its sandbox.
    pub(crate) fn store(&self, record: &Record) -> Result<()> {
        let path = self.path(&record.id);
        let text = serde_json::to_vec(record).map_err(|error| host(&path, error.into()))?;
        write(&path, &text).map_err(|error| host(&path, error))
    }

    pub(crate) fn remove(&self, id: &SandboxId) -> Result<()> {
        for path in [self.path(id), self.directory.join("locks").join(id.as_str())] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(host(&path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn all(&self) -> Result<Vec<Record>> {
        let directory = self.directory.join("sandboxes");
        let entries = std::fs::read_dir(&directory).map_err(|error| host(&directory, error))?;
        let mut records = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| host(&directory, error))?.file_name();
            let name = name.to_string_lossy();
            let Some(id) = name.strip_suffix(".json") else { continue };
            // It may have been removed meanwhile.
            records.extend(self.find(&SandboxId::new(id)?)?);
        }
        records.sort_by(|one, other| one.id.cmp(&other.id));
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
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The error of a file of the host.
pub(crate) fn host(path: &Path, source: io::Error) -> Error {
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
