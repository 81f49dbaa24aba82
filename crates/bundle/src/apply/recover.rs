//! Completing what killed apply operations started, so that every project is all old or all new.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::{Error, NotRestored};
use super::journal::{Journal, Lock, Record, State};
use super::{AppliedChanges, Ledger, Step};
use super::{swap, undo};
use crate::beneath::{self, Dir, FileKind};
use crate::path::RelativePath;

/// An interrupted apply operation.
#[derive(Debug)]
pub struct Recovery {
    /// Its project; empty if its journal does not name it.
    pub project: PathBuf,
    /// How it was resolved.
    pub outcome: Outcome,
}

/// How an interrupted apply operation was resolved.
#[derive(Debug)]
pub enum Outcome {
    /// It had not started to change the project.
    NotStarted,
    /// The project is as it was before, except for files that changed since.
    Undone(Vec<NotRestored>),
    /// The project has all of the changes.
    Finished,
    /// The project is no longer at its path; the journal is kept.
    ProjectMissing,
    /// It could not be completed; the next command tries again.
    Failed(Error),
}

/// Completes all apply operations of killed processes; those that are still running are left
/// alone. Called at the start of every command.
///
/// # Errors
/// Only when the journals cannot be listed; a failure for one project is in its [`Outcome`].
pub fn recover(journals: &Dir, ledger: &dyn Ledger) -> Result<Vec<Recovery>, Error> {
    recover_observed(journals, ledger, &mut |_| {})
}

/// [`recover`], but calls `observe` after each step.
pub(super) fn recover_observed(
    journals: &Dir,
    ledger: &dyn Ledger,
    observe: &mut dyn FnMut(Step),
) -> Result<Vec<Recovery>, Error> {
    if journals.entries_up_to(0)?.is_some() {
        return Ok(Vec::new());
    }
    Journal::remove_incomplete(journals)?;
    let mut recovered = Vec::new();
    for id in Journal::ids(journals)? {
        let (project, outcome) = match Journal::read(journals, &id) {
            Ok(None) => continue,
            Ok(Some(journal)) => {
                let path = project_path(&journal);
                let outcome = match recover_at((journals, &id), &path, ledger, observe) {
                    Ok(None) => continue,
                    Ok(Some(outcome)) => outcome,
                    Err(error) => Outcome::Failed(error),
                };
                (path, outcome)
            }
            Err(error) => (PathBuf::new(), Outcome::Failed(error)),
        };
        recovered.push(Recovery { project, outcome });
    }
    Ok(recovered)
}

/// Completes killed apply operations on one project, which the caller has locked.
pub(super) fn recover_locked(
    journals: &Dir,
    lock: &Lock,
    ledger: &dyn Ledger,
    observe: &mut dyn FnMut(Step),
) -> Result<(), Error> {
    let root = lock.project().stat_self()?;
    for id in Journal::ids(journals)? {
        let Some(journal) = Journal::read(journals, &id)? else { continue };
        let is_its_path = Dir::open_recorded(&project_path(&journal))
            .and_then(|dir| dir.stat_self())
            .is_ok_and(|stat| (stat.device, stat.inode) == (root.device, root.inode));
        if is_its_path || lock.project().stat(journal.stage())?.is_some() {
            finish(lock.project(), journal, ledger, observe)?;
        }
    }
    Ok(())
}

/// `None` if the operation is still running or has just ended.
fn recover_at(
    (journals, id): (&Dir, &str),
    path: &Path,
    ledger: &dyn Ledger,
    observe: &mut dyn FnMut(Step),
) -> Result<Option<Outcome>, Error> {
    let project = match Dir::open_recorded(path) {
        Ok(project) => project,
        Err(beneath::Error::ThroughLink { .. }) => return Ok(Some(Outcome::ProjectMissing)),
        Err(error) if super::journal::is_missing(&error) => {
            return Ok(Some(Outcome::ProjectMissing));
        }
        Err(error) => return Err(error.into()),
    };
    let lock = match Lock::acquire(&project) {
        Err(Error::Busy) => return Ok(None),
        other => other?,
    };
    // It may have progressed while this process waited for the lock.
    let Some(journal) = Journal::read(journals, id)? else { return Ok(None) };
    let is_here = lock.project().stat_self()?.inode == journal.record().project_inode
        || lock.project().stat(journal.stage())?.is_some();
    if !is_here {
        return Ok(Some(Outcome::ProjectMissing));
    }
    finish(lock.project(), journal, ledger, observe).map(Some)
}

fn finish(
    project: &Dir,
    mut journal: Journal,
    ledger: &dyn Ledger,
    observe: &mut dyn FnMut(Step),
) -> Result<Outcome, Error> {
    let outcome = match journal.state() {
        State::Staging => Outcome::NotStarted,
        State::Committed => {
            record(&journal, ledger, observe)?;
            let stage = match project.open_dir(journal.stage()) {
                Ok(stage) => Some(stage),
                Err(error) if error.errno() == Some(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            keep_displaced(stage.as_ref(), &journal, ledger)?;
            Outcome::Finished
        }
        State::Undone => Outcome::Undone(Vec::new()),
        State::Armed => {
            let left = match project.open_dir(journal.stage()) {
                Ok(stage) => swap::undo(project, &stage, &journal, observe)?,
                Err(error) if error.errno() == Some(Errno::NOENT) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            journal.mark_undone()?;
            Outcome::Undone(left)
        }
    };
    if !matches!(outcome, Outcome::Finished) {
        cancel_undo(&journal, ledger)?;
    }
    discard(project, &journal, observe)?;
    journal.remove()?;
    Ok(outcome)
}

/// Keeps what a committed operation has displaced, so that it can be undone.
pub(super) fn keep_displaced(
    stage: Option<&Dir>,
    journal: &Journal,
    ledger: &dyn Ledger,
) -> Result<(), Error> {
    let Record { bundle, .. } = journal.record();
    let Some(store) = ledger.undo_store().map_err(Error::Record)? else { return Ok(()) };
    match (bundle.strip_prefix(undo::PREFIX), stage) {
        (Some(id), Some(stage)) => undo::give_back(&store, id, stage, journal),
        (Some(_), None) => Ok(()),
        (None, stage) => undo::complete(&store, stage, journal),
    }
}

/// Removes the undo record of an operation that has not changed the project.
pub(super) fn cancel_undo(journal: &Journal, ledger: &dyn Ledger) -> Result<(), Error> {
    match ledger.undo_store().map_err(Error::Record)? {
        Some(store) => undo::cancel(&store, journal.id()),
        None => Ok(()),
    }
}

/// Records what a committed application has applied.
pub(super) fn record(
    journal: &Journal,
    ledger: &dyn Ledger,
    observe: &mut dyn FnMut(Step),
) -> Result<(), Error> {
    let Record { bundle, paths, partial, .. } = journal.record();
    ledger.mark(&AppliedChanges { bundle, paths, partial }).map_err(Error::Record)?;
    observe(Step::Recorded);
    Ok(())
}

/// Removes the private directory and its content. A displaced directory that another process
/// still wrote to is kept.
pub(super) fn discard(
    project: &Dir,
    journal: &Journal,
    observe: &mut dyn FnMut(Step),
) -> Result<(), Error> {
    let stage = match project.open_dir(journal.stage()) {
        Ok(stage) => stage,
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for (number, (name, kind)) in stage.entries()?.into_iter().enumerate() {
        let slot = RelativePath::new(name).map_err(|error| Error::JournalDamaged {
            name: journal.stage().quoted(),
            reason: error.to_string(),
        })?;
        let removed = match kind {
            FileKind::Directory => stage.remove_dir(&slot),
            _ => stage.remove_file(&slot),
        };
        match removed {
            Err(error) if error.errno() == Some(Errno::NOTEMPTY) => {
                swap::preserve(project, &stage, journal.id(), &slot, &slot)?;
            }
            other => other?,
        }
        observe(Step::Discarded(number + 1));
    }
    project.remove_dir(journal.stage())?;
    observe(Step::DirectoryRemoved);
    Ok(())
}

fn project_path(journal: &Journal) -> PathBuf {
    PathBuf::from(OsString::from_vec(journal.record().project.clone()))
}
