//! The steps of an apply operation, done and undone. Each is one rename or one change of mode.
//! Whether a step was done can be seen from where the inodes are, so undoing needs no record of
//! progress, and may itself be interrupted and restarted.

use std::collections::{BTreeSet, HashMap};

use rustix::io::Errno;

use super::Step;
use super::error::{Conflict, Difference, Error, NotRestored};
use super::journal::{Action, Journal, PRESERVED_PREFIX, StagedNode, is_missing, name};
use super::stage::SYNC_EACH;
use super::verify::{VerifiedChange, content_hash};
use crate::beneath::{self, Dir, FileKind, Rename, Stat};
use crate::manifest::Node;
use crate::path::RelativePath;

/// Does all steps and waits until they are on disk. After an error some steps are done; the
/// caller must undo them.
pub(super) fn swap(
    project: &Dir,
    stage: &Dir,
    steps: &[Action],
    changes: &[VerifiedChange<'_>],
    observe: &mut dyn FnMut(Step),
) -> Result<(), Error> {
    let verified: HashMap<&RelativePath, &VerifiedChange<'_>> =
        changes.iter().map(|change| (&change.entry.path, change)).collect();
    for (number, step) in steps.iter().enumerate() {
        do_step(project, stage, step, verified.get(step.path()).copied())?;
        observe(Step::Swapped(number + 1));
    }
    let mut meanwhile = Vec::new();
    for step in steps {
        if let Action::Exchange { path, slot, .. } | Action::Remove { path, slot } = step
            && let Some(change) = verified.get(path)
            && !displaced_is_verified(stage, slot, change)?
        {
            let path = path.clone();
            meanwhile.push(Conflict { path, difference: Difference::DuringApply });
        }
    }
    if !meanwhile.is_empty() {
        return Err(Error::Conflicts(meanwhile));
    }
    sync(project, stage, steps)?;
    observe(Step::SwapsSynced);
    Ok(())
}

fn do_step(
    project: &Dir,
    stage: &Dir,
    step: &Action,
    change: Option<&VerifiedChange<'_>>,
) -> Result<(), Error> {
    let conflict =
        |difference| Error::Conflicts(vec![Conflict { path: step.path().clone(), difference }]);
    let host = change.and_then(|change| change.host);
    let done = match step {
        Action::Add { path, slot, .. } => stage.rename(slot, project, path, Rename::NoReplace),
        Action::Exchange { path, slot, .. } | Action::Remove { path, slot } => {
            let now = match project.stat(path) {
                Err(beneath::Error::ThroughLink { .. }) => {
                    return Err(conflict(Difference::Parent));
                }
                other => other?,
            };
            if !host.zip(now).is_some_and(|(host, now)| is_same(host, now)) {
                return Err(conflict(Difference::DuringApply));
            }
            if matches!(step, Action::Exchange { .. }) {
                stage.rename(slot, project, path, Rename::Exchange)
            } else {
                project.rename(path, stage, slot, Rename::NoReplace)
            }
        }
        Action::Mode { path, inode, from, to } => {
            if !has_mode(project, path, *inode, *from)? {
                return Err(conflict(Difference::DuringApply));
            }
            project.chmod(path, *to)
        }
    };
    done.map_err(|error| match &error {
        beneath::Error::ThroughLink { .. } => conflict(Difference::Parent),
        _ => match error.errno() {
            Some(Errno::EXIST | Errno::NOTEMPTY) => conflict(Difference::Exists),
            Some(Errno::NOENT | Errno::NOTDIR) => conflict(Difference::DuringApply),
            Some(Errno::XDEV) => Error::OtherFileSystem(vec![step.path().clone()]),
            Some(Errno::ACCESS) => Error::NotWritable(vec![step.path().clone()]),
            _ => error.into(),
        },
    })
}

/// Whether a path still holds what was verified. The change time of an inode with several names
/// also changes when another of its names is renamed, and a directory's changes with its
/// content; both are checked again once they are displaced.
fn is_same(verified: Stat, now: Stat) -> bool {
    if verified.kind == FileKind::Directory {
        return (verified.kind, verified.inode) == (now.kind, now.inode);
    }
    is_same_content(verified, now) && (verified.links > 1 || verified.changed == now.changed)
}

fn is_same_content(verified: Stat, now: Stat) -> bool {
    (verified.kind, verified.inode, verified.size, verified.mode, verified.modified)
        == (now.kind, now.inode, now.size, now.mode, now.modified)
}

/// Whether the content that a step displaced is the verified one, so that no concurrent write is
/// lost.
fn displaced_is_verified(
    stage: &Dir,
    slot: &RelativePath,
    change: &VerifiedChange<'_>,
) -> Result<bool, Error> {
    let Some((host, now)) = change.host.zip(stage.stat(slot)?) else { return Ok(false) };
    match change.entry.change.old() {
        Some(Node::Directory { .. }) => {
            Ok(is_same(host, now) && stage.open_dir(slot)?.entries()?.is_empty())
        }
        Some(Node::File { hash, .. }) if change.is_recently_changed || host.links > 1 => {
            Ok(is_same_content(host, now) && content_hash(&stage.open_file(slot)?, slot)? == *hash)
        }
        _ => Ok(is_same_content(host, now)),
    }
}

/// Undoes all steps that were done, last first, and waits until that is on disk. Paths that
/// were changed since are left as they are; their old content is then kept in a directory in
/// the project's root.
pub(super) fn undo(
    project: &Dir,
    stage: &Dir,
    journal: &Journal,
    observe: &mut dyn FnMut(Step),
) -> Result<Vec<NotRestored>, Error> {
    let steps = journal.steps();
    let mut undo = Undo { project, stage, id: journal.id(), not_restored: Vec::new() };
    for (number, step) in steps.iter().rev().enumerate() {
        undo.step(step)?;
        observe(Step::Undone(number + 1));
    }
    let mut left = undo.not_restored;
    left.sort_by(|a, b| a.path.cmp(&b.path));
    sync(project, stage, steps)?;
    observe(Step::UndoSynced);
    Ok(left)
}

struct Undo<'u> {
    project: &'u Dir,
    stage: &'u Dir,
    id: &'u str,
    not_restored: Vec<NotRestored>,
}

impl Undo<'_> {
    fn step(&mut self, step: &Action) -> Result<(), Error> {
        match step {
            Action::Add { path, slot, made } => self.add(path, slot, made),
            Action::Exchange { path, slot, made } => self.exchange(path, slot, made),
            Action::Remove { path, slot } => self.remove(path, slot),
            Action::Mode { path, inode, from, to } => {
                if has_mode(self.project, path, *inode, *to)? {
                    self.project.chmod(path, *from)?;
                }
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        path: &RelativePath,
        slot: &RelativePath,
        made: &StagedNode,
    ) -> Result<(), Error> {
        if self.stage.stat(slot)?.is_some() {
            return Ok(());
        }
        match self.compare(path, made)? {
            Existing::Unchanged(stat) => {
                self.project.rename(path, self.stage, slot, Rename::NoReplace)?;
                if !self.is_unchanged_in_slot(slot, stat)? {
                    // It changed just now: move it back to where it was.
                    self.stage.rename(slot, self.project, path, Rename::NoReplace)?;
                    self.not_restored.push(NotRestored { path: path.clone(), preserved_at: None });
                }
            }
            Existing::Changed => {
                self.not_restored.push(NotRestored { path: path.clone(), preserved_at: None });
            }
            Existing::Missing => {}
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        path: &RelativePath,
        slot: &RelativePath,
        made: &StagedNode,
    ) -> Result<(), Error> {
        match self.stage.stat(slot)? {
            // It is still staged, so the step was not done.
            Some(stat) if stat.inode == made.inode => return Ok(()),
            // Nothing displaced is left: it was restored or kept before an interruption.
            None => return Ok(()),
            Some(_) => {}
        }
        let Existing::Unchanged(stat) = self.compare(path, made)? else {
            return self.preserve(path, slot);
        };
        self.stage.rename(slot, self.project, path, Rename::Exchange)?;
        if !self.is_unchanged_in_slot(slot, stat)? {
            self.stage.rename(slot, self.project, path, Rename::Exchange)?;
            return self.preserve(path, slot);
        }
        Ok(())
    }

    fn remove(&mut self, path: &RelativePath, slot: &RelativePath) -> Result<(), Error> {
        let Some(displaced) = self.stage.stat(slot)? else { return Ok(()) };
        match self.stage.rename(slot, self.project, path, Rename::NoReplace) {
            Ok(()) => Ok(()),
            Err(error) => {
                let taken = matches!(error.errno(), Some(Errno::EXIST | Errno::NOTEMPTY));
                let through_link = matches!(error, beneath::Error::ThroughLink { .. });
                if !taken && !through_link && !is_missing(&error) {
                    return Err(error.into());
                }
                let made_again = taken
                    && displaced.kind == FileKind::Directory
                    && self
                        .project
                        .stat(path)?
                        .is_some_and(|stat| stat.kind == FileKind::Directory);
                if made_again { Ok(()) } else { self.preserve(path, slot) }
            }
        }
    }

    /// Whether a path still holds what the apply operation put there.
    fn compare(&self, path: &RelativePath, made: &StagedNode) -> Result<Existing, Error> {
        let stat = match self.project.stat(path) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(Existing::Missing),
            Err(beneath::Error::ThroughLink { .. }) => return Ok(Existing::Missing),
            Err(error) => return Err(error.into()),
        };
        let same = stat.inode == made.inode
            && match (&made.node, stat.kind) {
                (Node::File { hash, size, mode }, FileKind::File) => {
                    stat.size == *size
                        && stat.mode == *mode
                        && content_hash(&self.project.open_file(path)?, path)? == *hash
                }
                (Node::Symlink { target }, FileKind::Symlink) => {
                    self.project.read_link(path)? == *target
                }
                (Node::Directory { mode }, FileKind::Directory) => {
                    stat.mode == *mode && self.project.open_dir(path)?.entries()?.is_empty()
                }
                _ => false,
            };
        Ok(if same { Existing::Unchanged(stat) } else { Existing::Changed })
    }

    fn is_unchanged_in_slot(&self, slot: &RelativePath, stat: Stat) -> Result<bool, Error> {
        let Some(now) = self.stage.stat(slot)? else { return Ok(false) };
        Ok(match stat.kind {
            FileKind::Directory => {
                is_same(stat, now) && self.stage.open_dir(slot)?.entries()?.is_empty()
            }
            _ => is_same_content(stat, now),
        })
    }

    fn preserve(&mut self, path: &RelativePath, slot: &RelativePath) -> Result<(), Error> {
        let kept = preserve(self.project, self.stage, self.id, path, slot)?;
        self.not_restored.push(NotRestored { path: path.clone(), preserved_at: Some(kept) });
        Ok(())
    }
}

enum Existing {
    Unchanged(Stat),
    Changed,
    Missing,
}

/// Moves a slot's content to a directory in the project's root where it is safe, below its old
/// path if possible, and returns its new path.
pub(super) fn preserve(
    project: &Dir,
    stage: &Dir,
    id: &str,
    path: &RelativePath,
    slot: &RelativePath,
) -> Result<RelativePath, Error> {
    let top = name(&format!("{PRESERVED_PREFIX}{id}"))?;
    let mut directory = top.clone();
    make_directory(project, &directory)?;
    let names: Vec<&[u8]> = path.components().collect();
    for parent in &names[..names.len() - 1] {
        directory = join(&directory, parent)?;
        make_directory(project, &directory)?;
    }
    let kept = join(&directory, path.file_name())?;
    match stage.rename(slot, project, &kept, Rename::NoReplace) {
        Ok(()) => Ok(kept),
        Err(error) if error.errno() == Some(Errno::EXIST) => {
            let kept = join(&top, &[b"again-", slot.as_bytes()].concat())?;
            stage.rename(slot, project, &kept, Rename::NoReplace)?;
            Ok(kept)
        }
        Err(error) => Err(error.into()),
    }
}

fn make_directory(project: &Dir, path: &RelativePath) -> Result<(), Error> {
    match project.mkdir(path, 0o700) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error.into()),
        _ => Ok(()),
    }
}

fn join(directory: &RelativePath, file: &[u8]) -> Result<RelativePath, Error> {
    directory.join(file).map_err(|error| Error::JournalDamaged {
        name: directory.quoted(),
        reason: error.to_string(),
    })
}

fn has_mode(project: &Dir, path: &RelativePath, inode: u64, mode: u32) -> Result<bool, Error> {
    match project.stat(path) {
        Ok(stat) => Ok(stat.is_some_and(|stat| {
            stat.kind == FileKind::Directory && stat.inode == inode && stat.mode == mode
        })),
        Err(beneath::Error::ThroughLink { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until all renames of the steps are on disk.
fn sync(project: &Dir, stage: &Dir, steps: &[Action]) -> Result<(), Error> {
    let parents: BTreeSet<_> = steps.iter().map(|step| step.path().parent()).collect();
    let changes_modes = steps.iter().any(|step| matches!(step, Action::Mode { .. }));
    if parents.len() > SYNC_EACH || changes_modes {
        return Ok(stage.sync_file_system()?);
    }
    for parent in parents {
        let synced = match parent {
            None => project.sync(),
            Some(path) => project.open_dir(&path).and_then(|dir| dir.sync()),
        };
        // It was removed with all its content, or this user may not list it.
        if synced.is_err() {
            return Ok(stage.sync_file_system()?);
        }
    }
    Ok(stage.sync()?)
}
