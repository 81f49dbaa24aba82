//! The journal of one application, and the lock that keeps applications to one project apart.
//!
//! ```text
//! ID.staging ──arm──▶ ID.armed ──commit──▶ ID.committed ──end──▶ (gone)
//!      │                  └─────undone────▶ ID.undone ─────end──▶ (gone)
//!      └───────────────────────end───────────────────────────────▶ (gone)
//! ```
//!
//! The state of an application is the name of its record, so that it changes with one rename.
//! The records lie in the data directory and never in the project: recovery trusts them, and a
//! project is what sandboxed commands write to. Devices are not recorded, since their numbers
//! change when the machine starts again.

use std::io::Read as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::beneath::{self, Dir, Rename};
use crate::manifest::Node;
use crate::path::{RelativePath, bytes_as_json};

/// How the private directory's name begins.
pub(super) const STAGE_PREFIX: &str = ".stockade-apply-";

/// The right to change a project; given up when dropped or when the process ends.
#[derive(Debug)]
pub struct Lock {
    project: Dir,
}

/// How far an application came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing but the private directory was touched.
    Staging,
    /// The project may be in the middle.
    Armed,
    /// All is done; displaced content is left to remove.
    Committed,
    /// All is undone; staged content is left to remove.
    Undone,
}

/// A file, link or directory that an application made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) inode: u64,
    /// With the permission bits it was made with, set-id and sticky included.
    pub(super) node: Node,
}

/// One reversible change of the project. A slot is a name in the private directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "lowercase")]
pub(super) enum Action {
    /// The slot's content moves to the path, where nothing is.
    Add { path: RelativePath, slot: RelativePath, made: Made },
    /// The slot's content and the path's change places.
    Exchange { path: RelativePath, slot: RelativePath, made: Made },
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
    /// The id of the bundle, and the paths that are applied of it once this is committed.
    pub(super) bundle: String,
    pub(super) paths: Vec<RelativePath>,
    pub(super) steps: Vec<Action>,
}

/// One application's journal, open.
#[derive(Debug)]
pub(super) struct Journal {
    directory: Dir,
    id: String,
    state: State,
    record: Record,
}

impl Lock {
    /// Takes the lock of a project without waiting; [`Error::Busy`] where it is held.
    pub fn take(project: &Dir) -> Result<Self, Error> {
        let project = project.reopen()?;
        match rustix::fs::flock(&project, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { project }),
            Err(Errno::WOULDBLOCK) => Err(Error::Busy),
            Err(errno) => Err(not_locked("the project", errno)),
        }
    }

    /// The project's root.
    pub(super) fn project(&self) -> &Dir {
        &self.project
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that another thread is just forking holds a copy of the descriptor until it
        // executes; closing ours would then not unlock. Failing means that nothing is locked.
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
    /// Writes the first record of a new application, before anything is made in the project.
    pub(super) fn begin(
        journals: &Dir,
        (path, project): (&Path, &Dir),
        (bundle, paths): (&str, &[RelativePath]),
    ) -> Result<Self, Error> {
        let id = unique_id();
        let stage = name(&format!("{STAGE_PREFIX}{id}"))?;
        let record = Record {
            project: path.as_os_str().as_bytes().to_vec(),
            project_inode: project.stat_self()?.inode,
            stage,
            bundle: bundle.to_owned(),
            paths: paths.to_vec(),
            steps: Vec::new(),
        };
        let journal = Self { directory: journals.try_clone()?, id, state: State::Staging, record };
        let _births = lock_births(journals)?;
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

    /// Removes what is left of journals whose first record was never finished.
    pub(super) fn remove_unborn(journals: &Dir) -> Result<(), Error> {
        let _births = lock_births(journals)?;
        let ids = Self::ids(journals)?;
        for (file, _) in journals.entries()? {
            let Some(id) = file.strip_suffix(b".new") else { continue };
            if !ids.iter().any(|known| known.as_bytes() == id) {
                journals.remove_file(&name(&String::from_utf8_lossy(&file))?)?;
            }
        }
        Ok(())
    }

    /// Reads a journal in its latest state; `None` where it ended.
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
            file.read_to_end(&mut bytes).map_err(failed("read journal", &name))?;
            let record: Record = serde_json::from_slice(&bytes).map_err(|error| {
                Error::JournalDamaged { name: name.quoted(), reason: error.to_string() }
            })?;
            let directory = journals.try_clone()?;
            return Ok(Some(Self { directory, id: id.to_owned(), state, record }));
        }
        Ok(None)
    }

    /// Writes down what is to be swapped. Afterwards, and until [`commit`](Self::commit) or
    /// [`undone`](Self::undone), recovery undoes these steps.
    pub(super) fn arm(&mut self, steps: Vec<Action>) -> Result<(), Error> {
        self.record.steps = steps;
        self.write(State::Armed)?;
        self.directory.remove_file(&self.file(State::Staging)?)?;
        self.state = State::Armed;
        Ok(())
    }

    /// Makes the swapped state the one that stays.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.advance(State::Committed)
    }

    /// Says that all steps are undone.
    pub(super) fn undone(&mut self) -> Result<(), Error> {
        self.advance(State::Undone)
    }

    /// Removes the journal.
    pub(super) fn end(self) -> Result<(), Error> {
        self.remove_if_there("new")?;
        // An armed record shadows its staging one, so the latest state goes last.
        for state in State::ALL {
            self.remove_if_there(state.suffix())?;
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
            .map_err(failed("write journal", &new))?;
        self.directory.rename(&new, &self.directory, &self.file(state)?, Rename::Replace)?;
        Ok(self.directory.sync()?)
    }

    fn file(&self, state: State) -> Result<RelativePath, Error> {
        name(&format!("{}.{}", self.id, state.suffix()))
    }

    fn remove_if_there(&self, suffix: &str) -> Result<(), Error> {
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

/// Held while a first record is written, so that an unfinished one without it is a dead one.
fn lock_births(journals: &Dir) -> Result<Dir, Error> {
    let directory = journals.reopen()?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)
        .map_err(|errno| not_locked("the journals", errno))?;
    Ok(directory)
}

fn not_locked(what: &str, errno: Errno) -> Error {
    Error::Io { operation: "lock", path: what.to_owned(), source: errno.into() }
}

/// A single name as a path; fails only on a journal whose name was made by something else.
pub(super) fn name(text: &str) -> Result<RelativePath, Error> {
    RelativePath::new(text)
        .map_err(|error| Error::JournalDamaged { name: text.to_owned(), reason: error.to_string() })
}

pub(super) fn failed(
    operation: &'static str,
    path: &RelativePath,
) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.quoted();
    move |source| Error::Io { operation, path, source }
}

/// Unique among the processes of this machine: two with one number do not live at one instant.
fn unique_id() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let process = rustix::process::getpid().as_raw_nonzero();
    format!("{:x}-{:08x}-{process:x}", now.tv_sec, now.tv_nsec)
}

/// Whether an error says that nothing is at the path, or that its parent is gone.
pub(super) fn is_missing(error: &beneath::Error) -> bool {
    matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR))
}
