//! The journal of one apply operation, and the lock that excludes concurrent ones on the same
//! project.
//!
//! ```text
//! ID.staging ──arm──▶ ID.armed ──commit──▶ ID.committed ──end──▶ (gone)
//!      │                  └─────undone────▶ ID.undone ─────end──▶ (gone)
//!      └───────────────────────end───────────────────────────────▶ (gone)
//! ```
//!
//! The state of an operation is the name of its record, so that one rename changes it. The
//! records are in the data directory and never in the project: recovery trusts them, and
//! sandboxed commands can write to a project. Device numbers are not recorded, because they may
//! change when the machine restarts.

use std::io::Read as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::AppliedChanges;
use super::error::Error;
use crate::beneath::{self, Dir, Rename};
use crate::manifest::Node;
use crate::path::{RelativePath, bytes_as_json};

/// The prefix of the private directory's name.
pub(super) const STAGE_PREFIX: &str = ".stockade-apply-";

/// The prefix of the directory that keeps content which could not be restored.
pub(super) const PRESERVED_PREFIX: &str = ".stockade-kept-";

/// The right to change a project; released when dropped or when the process ends.
#[derive(Debug)]
pub struct Lock {
    project: Dir,
}

/// How far an apply operation progressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Only the private directory was touched.
    Staging,
    /// The project may be in an intermediate state.
    Armed,
    /// All steps are done; displaced content remains to be removed.
    Committed,
    /// All steps are undone; staged content remains to be removed.
    Undone,
}

/// A file, link or directory that an apply operation created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedNode {
    pub(super) inode: u64,
    /// With the permission bits at its creation, including set-id and sticky.
    pub(super) node: Node,
}

/// One reversible change of the project. A slot is a name in the private directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "lowercase")]
pub(super) enum Action {
    /// The slot's content moves to the path, which does not exist.
    Add { path: RelativePath, slot: RelativePath, made: StagedNode },
    /// The slot's content and the path's content are exchanged.
    Exchange { path: RelativePath, slot: RelativePath, made: StagedNode },
    /// The path's content moves to the empty slot.
    Remove { path: RelativePath, slot: RelativePath },
    /// The directory's permission bits change.
    Mode { path: RelativePath, inode: u64, from: u32, to: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(with = "bytes_as_json")]
    pub(super) project: Vec<u8>,
    pub(super) project_inode: u64,
    pub(super) stage: RelativePath,
    /// The id of the bundle, and its paths that are applied once this is committed.
    pub(super) bundle: String,
    pub(super) paths: Vec<RelativePath>,
    /// The paths of which only a part is applied, with the node after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) partial: Vec<(RelativePath, Node)>,
    pub(super) steps: Vec<Action>,
}

/// The open journal of one apply operation.
#[derive(Debug)]
pub(super) struct Journal {
    directory: Dir,
    id: String,
    state: State,
    record: Record,
}

impl Lock {
    /// Takes the lock of a project without waiting; [`Error::Busy`] if another process holds it.
    pub fn acquire(project: &Dir) -> Result<Self, Error> {
        let project = project.reopen()?;
        match rustix::fs::flock(&project, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { project }),
            Err(Errno::WOULDBLOCK) => Err(Error::Busy),
            Err(errno) => Err(lock_error("the project", errno)),
        }
    }

    /// The project's root.
    pub(super) fn project(&self) -> &Dir {
        &self.project
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While another thread forks, its child holds a copy of the file descriptor until it
        // executes a program; closing ours would then not unlock. If the call fails, nothing is
        // locked.
        let _ = rustix::fs::flock(&self.project, FlockOperation::Unlock);
    }
}

impl State {
    const ALL: [Self; 4] = [Self::Staging, Self::Armed, Self::Committed, Self::Undone];

    fn suffix(self) -> &'static str {
        match self {
            Self::Staging => "staging",
            Self::Armed => "armed",
            Self::Committed => "committed",
            Self::Undone => "undone",
        }
    }
}

impl Journal {
    /// Writes the first record of a new operation, before anything is created in the project.
    pub(super) fn start(
        journals: &Dir,
        (path, project): (&Path, &Dir),
        applied: &AppliedChanges<'_>,
    ) -> Result<Self, Error> {
        let id = unique_id();
        let stage = name(&format!("{STAGE_PREFIX}{id}"))?;
        let record = Record {
            project: path.as_os_str().as_bytes().to_vec(),
            project_inode: project.stat_self()?.inode,
            stage,
            bundle: applied.bundle.to_owned(),
            paths: applied.paths.to_vec(),
            partial: applied.partial.to_vec(),
            steps: Vec::new(),
        };
        let journal = Self { directory: journals.try_clone()?, id, state: State::Staging, record };
        let _births = lock_creation(journals)?;
        journal.write(State::Staging)?;
        Ok(journal)
    }

    /// The ids of all journals in a directory, sorted.
    pub(super) fn ids(journals: &Dir) -> Result<Vec<String>, Error> {
        let mut ids: Vec<String> = journals
            .entries()?
            .into_iter()
            .filter_map(|(name, _)| {
                let name = String::from_utf8(name).ok()?;
                let (id, suffix) = name.split_once('.')?;
                State::ALL.iter().any(|state| state.suffix() == suffix).then(|| id.to_owned())
            })
            .collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Removes what is left of journals whose first record was never completed.
    pub(super) fn remove_incomplete(journals: &Dir) -> Result<(), Error> {
        let _births = lock_creation(journals)?;
        let ids = Self::ids(journals)?;
        for (file, _) in journals.entries()? {
            let Some(id) = file.strip_suffix(b".new") else { continue };
            if !ids.iter().any(|known| known.as_bytes() == id) {
                journals.remove_file(&name(&String::from_utf8_lossy(&file))?)?;
            }
        }
        Ok(())
    }

    /// Reads a journal in its latest state; `None` if it has ended.
    pub(super) fn read(journals: &Dir, id: &str) -> Result<Option<Self>, Error> {
        // A later state's name appears before an earlier one's is removed.
        for state in State::ALL.into_iter().rev() {
            let name = name(&format!("{id}.{}", state.suffix()))?;
            let mut file = match journals.open_file(&name) {
                Ok(file) => file,
                Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(io_error("read journal", &name))?;
            let record: Record = serde_json::from_slice(&bytes).map_err(|error| {
                Error::JournalDamaged { name: name.quoted(), reason: error.to_string() }
            })?;
            let directory = journals.try_clone()?;
            return Ok(Some(Self { directory, id: id.to_owned(), state, record }));
        }
        Ok(None)
    }

    /// Records what is to be swapped. Afterwards, and until [`commit`](Self::commit) or
    /// [`undone`](Self::mark_undone), recovery undoes these steps.
    pub(super) fn arm(&mut self, steps: Vec<Action>) -> Result<(), Error> {
        self.record.steps = steps;
        self.write(State::Armed)?;
        self.directory.remove_file(&self.file(State::Staging)?)?;
        self.state = State::Armed;
        Ok(())
    }

    /// Makes the swapped state final.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.advance(State::Committed)
    }

    /// Records that all steps are undone.
    pub(super) fn mark_undone(&mut self) -> Result<(), Error> {
        self.advance(State::Undone)
    }

    /// Removes the journal.
    pub(super) fn remove(self) -> Result<(), Error> {
        self.remove_if_exists("new")?;
        // A record in a later state takes precedence over earlier ones, so it is removed last.
        for state in State::ALL {
            self.remove_if_exists(state.suffix())?;
        }
        Ok(())
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    pub(super) fn steps(&self) -> &[Action] {
        &self.record.steps
    }

    /// The name of the private directory in the project's root.
    pub(super) fn stage(&self) -> &RelativePath {
        &self.record.stage
    }

    fn advance(&mut self, state: State) -> Result<(), Error> {
        let (from, to) = (self.file(self.state)?, self.file(state)?);
        self.directory.rename(&from, &self.directory, &to, Rename::Replace)?;
        self.directory.sync()?;
        self.state = state;
        Ok(())
    }

    fn write(&self, state: State) -> Result<(), Error> {
        let new = name(&format!("{}.new", self.id))?;
        let bytes = serde_json::to_vec(&self.record).map_err(|error| Error::JournalDamaged {
            name: new.quoted(),
            reason: error.to_string(),
        })?;
        let mut file = self.directory.create_file(&new, 0o600)?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(io_error("write journal", &new))?;
        self.directory.rename(&new, &self.directory, &self.file(state)?, Rename::Replace)?;
        Ok(self.directory.sync()?)
    }

    fn file(&self, state: State) -> Result<RelativePath, Error> {
        name(&format!("{}.{}", self.id, state.suffix()))
    }

    fn remove_if_exists(&self, suffix: &str) -> Result<(), Error> {
        match self.directory.remove_file(&name(&format!("{}.{suffix}", self.id))?) {
            Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Action {
    pub(super) fn path(&self) -> &RelativePath {
        match self {
            Self::Add { path, .. }
            | Self::Exchange { path, .. }
            | Self::Remove { path, .. }
            | Self::Mode { path, .. } => path,
        }
    }
}

/// Locked while a first record is written, so that an incomplete record without the lock is
/// abandoned.
fn lock_creation(journals: &Dir) -> Result<Dir, Error> {
    let directory = journals.reopen()?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)
        .map_err(|errno| lock_error("the journals", errno))?;
    Ok(directory)
}

fn lock_error(what: &str, errno: Errno) -> Error {
    Error::Io { operation: "lock", path: what.to_owned(), source: errno.into() }
}

/// A single name as a path; fails only on a journal whose name was not generated here.
pub(super) fn name(text: &str) -> Result<RelativePath, Error> {
    RelativePath::new(text)
        .map_err(|error| Error::JournalDamaged { name: text.to_owned(), reason: error.to_string() })
}

pub(super) fn io_error(
    operation: &'static str,
    path: &RelativePath,
) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.quoted();
    move |source| Error::Io { operation, path, source }
}

/// Unique among the processes of this machine: two processes never have the same number at one
/// instant.
fn unique_id() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let process = rustix::process::getpid().as_raw_nonzero();
    format!("{:x}-{:08x}-{process:x}", now.tv_sec, now.tv_nsec)
}

/// Whether an error means that the path or its parent does not exist.
pub(super) fn is_missing(error: &beneath::Error) -> bool {
    matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR))
}
