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
pub mod merge;
mod plan;
mod present;
mod recover;
mod stage;
mod swap;
mod times;
pub mod undo;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;

pub use error::{BlobFault, Conflict, Difference, Error, NotRestored};
pub use journal::Lock;
pub use plan::{Selection, Skip, SkippedChange};
pub use present::{host_node, is_in_conflict};
pub use recover::{Outcome, Recovery, recover};

use crate::beneath::{Dir, Timestamp};
use crate::manifest::{Entry, Manifest, Node};
use crate::path::RelativePath;
use crate::policy;
use journal::Journal;
use merge::Resolution;
use stage::Blobs;

/// How often conflicts are decided that decisions have led to.
const MAX_ROUNDS: usize = 8;

/// Where the applied parts of each bundle are recorded.
pub trait Ledger: std::fmt::Debug {
    /// Records what was applied of a bundle. If the bundle no longer exists, this is not an error.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    fn mark(&self, applied: &AppliedChanges<'_>) -> Result<(), LedgerError>;

    /// The directory in which what is needed to undo an operation is kept; `None` if nothing is.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn undo_store(&self) -> Result<Option<Dir>, LedgerError> {
        Ok(None)
    }
}

/// Why a ledger cannot be used.
pub type LedgerError = Box<dyn std::error::Error + Send + Sync>;

/// What a committed operation has applied.
#[derive(Debug, Clone, Copy)]
pub struct AppliedChanges<'a> {
    /// The bundle's id.
    pub bundle: &'a str,
    /// The paths that are decided now.
    pub paths: &'a [RelativePath],
    /// The paths of which only a part was applied, with the node that the project has now.
    pub partial: &'a [(RelativePath, Node)],
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
    /// How conflicts are decided; they are an error if it is absent.
    pub merge: Option<&'a merge::Options<'a>>,
    /// The paths of which only a part is applied, because the manifest has only that part. They do
    /// not count as applied.
    pub partial: &'a [(RelativePath, Node)],
    /// When the sandbox last modified each file.
    pub times: &'a BTreeMap<RelativePath, Timestamp>,
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
    /// The changed paths whose content was merged from both sides.
    pub merged: Vec<RelativePath>,
    /// The paths of the texts in which conflicts are marked.
    pub marked: Vec<RelativePath>,
    /// The paths in conflict at which the project keeps what it has. They count as decided.
    pub kept: Vec<RelativePath>,
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
///
/// # Errors
/// As [`apply`].
pub fn apply_observed(
    request: &Request<'_>,
    observe: &mut dyn FnMut(Step),
) -> Result<ApplyOutcome, Error> {
    let project = Dir::open_recorded(request.project)?;
    let lock = Lock::acquire(&project)?;
    recover::recover_locked(request.journals, &lock, request.ledger, observe)?;

    let manifest = reclassified(request.manifest, &project)?;
    let chosen = plan::select(&manifest, request.selection)?;
    let resolved = resolve(request, &project, &chosen.entries)?;
    let entries: Vec<&Entry> = match &resolved {
        Some(resolved) => resolved.entries.iter().collect(),
        None => chosen.entries.clone(),
    };
    let verified = verify::verify(&project, &entries)?;
    let resolved = resolved.as_ref();
    let mut applied = ApplyOutcome {
        changed: verified.changes.iter().map(|change| change.entry.path.clone()).collect(),
        already_present: verified.already_present,
        skipped: chosen.skipped,
        merged: resolved.map(|it| it.merged.clone()).unwrap_or_default(),
        marked: resolved.map(|it| it.marked.clone()).unwrap_or_default(),
        kept: resolved.map(|it| it.kept.clone()).unwrap_or_default(),
    };
    applied.skipped.extend(verified.not_empty);
    // Refused entries will never be applied.
    let is_refused = |skipped: &SkippedChange| matches!(skipped.reason, Skip::Refused(_));
    let is_whole = applied.skipped.iter().all(is_refused)
        && chosen.entries.len() + applied.skipped.len() == manifest.entries.len();
    let blobs = Blobs { dir: request.blobs, may_link: is_whole };
    let decided = applied.changed.iter().chain(&applied.already_present).chain(&applied.kept);
    let is_partial = |path: &&RelativePath| request.partial.iter().any(|(it, _)| it == *path);
    let paths: Vec<_> = decided.filter(|path| !is_partial(path)).cloned().collect();
    let bundle = AppliedChanges { bundle: request.bundle, paths: &paths, partial: request.partial };
    if verified.changes.is_empty() {
        // What changed nothing decides nothing: no path counts as applied.
        return Ok(applied);
    }

    let mut journal = Journal::start(request.journals, (request.project, &project), &bundle)?;
    observe(Step::Started);
    let stage = match prepare((request, blobs), &project, &verified.changes, &mut journal, observe)
    {
        Ok(stage) => stage,
        Err(error) => {
            if recover::cancel_undo(&journal, request.ledger).is_ok() {
                clean_up(&project, journal, observe);
            }
            return Err(error);
        }
    };
    let swapped = swap::swap(&project, &stage, journal.steps(), &verified.changes, observe);
    if let Err(error) = swapped {
        let left = swap::undo(&project, &stage, &journal, observe)
            .and_then(|left| journal.mark_undone().map(|()| left))
            .map_err(|cause| Error::NeedsRecovery { cause: Box::new(cause) })?;
        if recover::cancel_undo(&journal, request.ledger).is_ok() {
            clean_up(&project, journal, observe);
        }
        return Err(match left.is_empty() {
            true => error,
            false => Error::PartlyUndone { cause: Box::new(error), not_restored: left },
        });
    }
    journal.commit().map_err(|cause| Error::NeedsRecovery { cause: Box::new(cause) })?;
    observe(Step::Committed);
    // If this fails, the next command records it; until then the journal is kept.
    let recorded = recover::record(&journal, request.ledger, observe)
        .and_then(|()| recover::keep_displaced(Some(&stage), &journal, request.ledger));
    if recorded.is_ok() {
        clean_up(&project, journal, observe);
    }
    Ok(applied)
}

/// The entries that a selection chooses, and those that it leaves out, judged with the present project.
///
/// # Errors
/// When the project cannot be read, or something that is chosen was not accepted.
pub fn chosen(
    project: &Path,
    manifest: &Manifest,
    selection: &Selection,
) -> Result<(Vec<Entry>, Vec<SkippedChange>), Error> {
    let manifest = reclassified(manifest, &Dir::open_recorded(project)?)?;
    let chosen = plan::select(&manifest, selection)?;
    Ok((chosen.entries.into_iter().cloned().collect(), chosen.skipped))
}

/// Decides the conflicts of the chosen entries as requested; `None` if there are none, or no decision
/// was requested.
fn resolve(
    request: &Request<'_>,
    project: &Dir,
    chosen: &[&Entry],
) -> Result<Option<Resolution>, Error> {
    let Some(options) = request.merge else { return Ok(None) };
    let mut resolved: Option<Resolution> = None;
    // One decision can lead to another conflict: a file that stays where a directory was to be.
    for _ in 0..MAX_ROUNDS {
        let entries: Vec<&Entry> = match &resolved {
            Some(resolved) => resolved.entries.iter().collect(),
            None => chosen.to_vec(),
        };
        let Err(Error::Conflicts(conflicts)) = verify::verify(project, &entries) else { break };
        let decided = (&*entries, &*conflicts);
        let next = merge::resolve(project, request.blobs, decided, options)?;
        resolved = Some(match resolved {
            Some(before) => before.followed_by(next),
            None => next,
        });
    }
    if let Some(resolved) = &resolved {
        let entries: Vec<&Entry> = resolved.entries.iter().collect();
        plan::check_accepted(&entries, request.selection)?;
    }
    Ok(resolved)
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
    (request, blobs): (&Request<'_>, Blobs<'_>),
    project: &Dir,
    changes: &[verify::VerifiedChange<'_>],
    journal: &mut Journal,
    observe: &mut dyn FnMut(Step),
) -> Result<Dir, Error> {
    let is_undo = request.bundle.starts_with(undo::PREFIX);
    if !is_undo && let Some(store) = request.ledger.undo_store().map_err(Error::Record)? {
        undo::start(&store, journal, changes)?;
    }
    project.mkdir(journal.stage(), 0o700)?;
    observe(Step::DirectoryCreated);
    let stage = project.open_dir(journal.stage())?;
    let steps = stage::stage(project, &stage, (blobs, request.times), changes, observe)?;
    observe(Step::StageSynced);
    journal.arm(steps)?;
    observe(Step::Armed);
    Ok(stage)
}

#[cfg(test)]
mod tests;
