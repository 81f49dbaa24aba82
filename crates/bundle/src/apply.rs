//! Applying a bundle, or part of one, to its project: all of it or nothing, even if the process
//! is killed or the power fails at any instant.
//!
//! The order is: choose the entries (`plan`), compare every touched path with the state that
//! the bundle was made from (`verify`), write all new content to a private directory in the
//! project's root (`stage`), record what will be swapped (`journal`), swap with single renames
//! (`swap`), and commit by renaming the journal. `recover` completes what a killed process
//! started. A reader may see an intermediate state; recovery never leaves one.
//!
//! This module never overwrites concurrent changes, and never decides what is worth applying:
//! that is in the manifest and in the caller's [`Selection`].

mod attributes;
mod error;
mod journal;
mod plan;
mod recover;
mod stage;
mod swap;
mod verify;

use std::path::Path;

pub use error::{BlobFault, Conflict, Difference, Error, NotRestored};
pub use journal::Lock;
pub use plan::{Selection, Skip, SkippedChange};
pub use recover::{Outcome, Recovery, recover};

use crate::beneath::Dir;
use crate::manifest::Manifest;
use crate::path::RelativePath;
use crate::policy;
use journal::Journal;
use stage::Blobs;

/// Where the applied parts of each bundle are recorded.
pub trait Ledger: std::fmt::Debug {
    /// Adds these paths to the applied paths of a bundle. If the bundle no longer exists, this is
    /// not an error.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    fn mark(
        &self,
        bundle: &str,
        paths: &[RelativePath],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// What to apply, and where.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The bundle's id in the ledger.
    pub bundle: &'a str,
    /// The bundle's manifest.
    pub manifest: &'a Manifest,
    /// The directory that holds the bundle's file contents, each named by its hash.
    pub blobs: &'a Dir,
    /// The project's root on the host; a link in this path is refused, because others may have
    /// created it after the bundle.
    pub project: &'a Path,
    /// The directory of the journals; it outlives this process.
    pub journals: &'a Dir,
    /// The ledger of what was applied. The record is never lost, not even if it is all that a killed
    /// process left undone.
    pub ledger: &'a dyn Ledger,
    /// The entries to apply.
    pub selection: &'a Selection,
}

/// A point of an apply operation at which a test may end the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The journal's first record is on disk; no file of the project was touched yet.
    Started,
    /// The private directory exists.
    DirectoryCreated,
    /// This many entries are staged.
    Staged(usize),
    /// All staged content is on disk.
    StageSynced,
    /// The journal is on disk; from here on recovery undoes the operation.
    Armed,
    /// This many steps are done.
    Swapped(usize),
    /// All steps are done and on disk.
    SwapsSynced,
    /// The commit is on disk; from here on recovery only records and cleans up.
    Committed,
    /// The applied paths are recorded in the ledger.
    Recorded,
    /// This many displaced files were removed.
    Discarded(usize),
    /// The private directory is removed.
    DirectoryRemoved,
    /// This many steps were undone.
    Undone(usize),
    /// All steps are undone and on disk.
    UndoSynced,
}

/// The result of an apply operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// The paths that were changed, sorted.
    pub changed: Vec<RelativePath>,
    /// The paths that already had the state that the bundle requires.
    pub already_present: Vec<RelativePath>,
    /// The entries that were left out, with the reason.
    pub skipped: Vec<SkippedChange>,
}

/// Applies the selected entries of a bundle.
///
/// If these are all that can be applied, the contents are moved rather than copied. The caller
/// must then remove the bundle, because its contents are those of the project and change with
/// them.
///
/// # Errors
/// After any error the project is unchanged, except for [`Error::PartlyUndone`] (files were changed by
/// another process while they were being restored) and [`Error::NeedsRecovery`] (the next [`recover()`]
/// completes it).
pub fn apply(request: &Request<'_>) -> Result<ApplyOutcome, Error> {
    apply_observed(request, &mut |_| {})
}

/// [`apply`], but calls `observe` after each step.
fn apply_observed(
    request: &Request<'_>,
    observe: &mut dyn FnMut(Step),
) -> Result<ApplyOutcome, Error> {
    let project = Dir::open_recorded(request.project)?;
    let lock = Lock::acquire(&project)?;
    recover::recover_locked(request.journals, &lock, request.ledger, observe)?;

    let manifest = reclassified(request.manifest, &project)?;
    let chosen = plan::select(&manifest, request.selection)?;
    let verified = verify::verify(&project, &chosen.entries)?;
    let mut applied = ApplyOutcome {
        changed: verified.changes.iter().map(|change| change.entry.path.clone()).collect(),
        already_present: verified.already_present,
        skipped: chosen.skipped,
    };
    applied.skipped.extend(verified.not_empty);
    // Refused entries will never be applied.
    let is_refused = |skipped: &SkippedChange| matches!(skipped.reason, Skip::Refused(_));
    let is_whole = applied.skipped.iter().all(is_refused)
        && chosen.entries.len() + applied.skipped.len() == manifest.entries.len();
    let blobs = Blobs { dir: request.blobs, may_link: is_whole };
    let paths: Vec<_> = applied.changed.iter().chain(&applied.already_present).cloned().collect();
    let bundle = (request.bundle, paths.as_slice());
    if verified.changes.is_empty() {
        // What changed nothing decides nothing: no path counts as applied.
        return Ok(applied);
    }

    let mut journal = Journal::start(request.journals, (request.project, &project), bundle)?;
    observe(Step::Started);
    let stage = match prepare(blobs, &project, &verified.changes, &mut journal, observe) {
        Ok(stage) => stage,
        Err(error) => {
            clean_up(&project, journal, observe);
            return Err(error);
        }
    };
    let swapped = swap::swap(&project, &stage, journal.steps(), &verified.changes, observe);
    if let Err(error) = swapped {
        let left = swap::undo(&project, &stage, &journal, observe)
            .and_then(|left| journal.mark_undone().map(|()| left))
            .map_err(|cause| Error::NeedsRecovery { cause: Box::new(cause) })?;
        clean_up(&project, journal, observe);
        return Err(match left.is_empty() {
            true => error,
            false => Error::PartlyUndone { cause: Box::new(error), not_restored: left },
        });
    }
    journal.commit().map_err(|cause| Error::NeedsRecovery { cause: Box::new(cause) })?;
    observe(Step::Committed);
    // If this fails, the next command records it; until then the journal is kept.
    if recover::record(&journal, request.ledger, observe).is_ok() {
        clean_up(&project, journal, observe);
    }
    Ok(applied)
}

/// The manifest, judged again with the present project: parts of a repository that are harmless
/// individually may have come with another bundle.
fn reclassified(manifest: &Manifest, project: &Dir) -> Result<Manifest, Error> {
    let mut manifest = manifest.clone();
    policy::refuse_bare_repositories(&mut manifest.entries, |path| project.exists(path))?;
    Ok(manifest)
}

/// Removes the private directory and the journal. If this fails, the next command does it, and
/// the result is the same.
fn clean_up(project: &Dir, journal: Journal, observe: &mut dyn FnMut(Step)) {
    if recover::discard(project, &journal, observe).is_ok() {
        drop(journal.remove());
    }
}

/// Stages everything and arms the journal. Until this returns, the project itself is untouched.
fn prepare(
    blobs: Blobs<'_>,
    project: &Dir,
    changes: &[verify::VerifiedChange<'_>],
    journal: &mut Journal,
    observe: &mut dyn FnMut(Step),
) -> Result<Dir, Error> {
    project.mkdir(journal.stage(), 0o700)?;
    observe(Step::DirectoryCreated);
    let stage = project.open_dir(journal.stage())?;
    let steps = stage::stage(project, &stage, blobs, changes, observe)?;
    observe(Step::StageSynced);
    journal.arm(steps)?;
    observe(Step::Armed);
    Ok(stage)
}

#[cfg(test)]
mod tests;
