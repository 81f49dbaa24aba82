//! The ledger of apply operations: the data directory. What was applied is recorded in the bundle, what
//! an operation has displaced is kept for an undo, and each decision is a line of [`decisions`].

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use stockade_core::Time;

use super::{Bundle, Error, State, UNFINISHED, blobs_name, hash_name, with_operation};
use crate::apply::undo;
use crate::apply::{AppliedChanges, Ledger, LedgerError};
use crate::beneath::{self, Dir, Rename};
use crate::claim;
use crate::data::DataDir;
use crate::decisions::{self, Action, Decision};
use crate::manifest::{ContentHash, Manifest};
use crate::path::RelativePath;

impl Ledger for DataDir {
    fn mark(&self, applied: &AppliedChanges<'_>) -> Result<(), LedgerError> {
        if let Some(id) = applied.bundle.strip_prefix(undo::PREFIX) {
            return mark_undone(self, id);
        }
        match self.bundles()?.open_dir(&RelativePath::new(applied.bundle)?) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            other => {
                let dir = other?;
                State::add(&dir, applied)?;
                let paths = applied.paths.len() + applied.partial.len();
                Ok(decide(self, &dir, Action::Applied, applied.bundle, paths)?)
            }
        }
    }

    fn undo_store(&self) -> Result<Option<Dir>, LedgerError> {
        Ok(Some(self.undo()?))
    }
}

/// Records that an operation was undone: its paths can be applied again. The record itself is removed
/// by [`remove_undone`].
fn mark_undone(data: &DataDir, id: &str) -> Result<(), LedgerError> {
    let store = data.undo()?;
    let Some(stored) = undo::open(&store, id)? else { return Ok(()) };
    let record = &stored.record;
    let name = RelativePath::new(record.bundle.as_str())?;
    let bundle = match stored.dir.open_dir(&RelativePath::literal("bundle")) {
        Err(error) if error.errno() == Some(Errno::NOENT) => data.bundles()?.open_dir(&name),
        other => other,
    };
    match bundle {
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
        other => {
            let dir = other?;
            State::remove(&dir, record)?;
            Ok(decide(data, &dir, Action::Undone, &record.bundle, record.entries.len())?)
        }
    }
}

/// Removes the record of an operation that was undone; its bundle waits for a decision again.
///
/// # Errors
/// When the bundle cannot be moved; the next call does it.
pub fn remove_undone(data: &DataDir, id: &str) -> Result<bool, Error> {
    let store = data.undo()?;
    let stored = undo::open(&store, id).map_err(|error| Error::State(error.to_string()))?;
    let Some(stored) = stored else { return Ok(false) };
    let bundles = data.bundles()?;
    let name = RelativePath::new(stored.record.bundle.as_str())
        .map_err(|_| Error::NotFound(stored.record.bundle.clone()))?;
    let waiting = RelativePath::literal("bundle");
    match stored.dir.rename(&waiting, &bundles, &name, Rename::NoReplace) {
        Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::EXIST)) => {}
        other => with_operation("restore", other)?,
    }
    with_operation("restore", bundles.sync())?;
    undo::discard(&store, id).map_err(|error| Error::State(error.to_string()))?;
    Ok(with_operation("inspect", bundles.stat(&name))?.is_some())
}

/// Adds a line about a bundle to the decisions.
fn decide(
    data: &DataDir,
    bundle: &Dir,
    action: Action,
    id: &str,
    paths: usize,
) -> Result<(), Error> {
    // A decision is never refused because it cannot be described.
    let manifest = super::read_manifest(bundle).ok();
    let decision = decision(action, id, manifest.as_ref(), paths);
    with_operation("record the decision about", decisions::append(data, &decision))
}

fn decision(action: Action, id: &str, manifest: Option<&Manifest>, paths: usize) -> Decision {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Decision {
        decided_at: Time::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)),
        action,
        bundle: id.to_owned(),
        project: manifest.map(|manifest| manifest.project.clone()).unwrap_or_default(),
        command: manifest.map(|manifest| manifest.command.clone()).unwrap_or_default(),
        paths,
    }
}

impl Bundle {
    /// Records a decision about the bundle other than an application, which concerns so many paths.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record(&self, data: &DataDir, action: Action, paths: usize) -> Result<(), Error> {
        let decision = decision(action, &self.id, Some(&self.manifest), paths);
        with_operation("record the decision about", decisions::append(data, &decision))
    }

    /// Removes a bundle of which everything was applied. Where the last operation can be undone, the
    /// bundle is kept beside its record, without the contents that the project has now.
    pub fn retire(self, data: &DataDir) -> Result<(), Error> {
        let store = data.undo()?;
        let records = undo::list(&store).map_err(|error| Error::State(error.to_string()))?;
        let last = records.into_iter().rev().find(|stored| stored.record.bundle == self.id);
        let Some(last) = last else { return self.remove() };
        let blobs = self.blobs()?;
        for (file, _) in with_operation("list", blobs.entries())? {
            let Some(hash) =
                String::from_utf8(file).ok().and_then(|hex| ContentHash::from_hex(&hex))
            else {
                continue;
            };
            let name = hash_name(hash)?;
            let stat = with_operation("inspect", blobs.stat(&name))?;
            if stat.is_some_and(|stat| stat.links > 1) {
                with_operation("remove", blobs.remove_file(&name))?;
            }
        }
        let id =
            RelativePath::new(self.id.as_str()).map_err(|_| Error::NotFound(self.id.clone()))?;
        let waiting = RelativePath::literal("bundle");
        match self.bundles.rename(&id, &last.dir, &waiting, Rename::NoReplace) {
            Ok(()) => with_operation("remove", self.bundles.sync()),
            Err(_) => self.remove(),
        }
    }

    /// Removes the bundle.
    pub fn remove(self) -> Result<(), Error> {
        let id =
            RelativePath::new(self.id.as_str()).map_err(|_| Error::NotFound(self.id.clone()))?;
        // The rename makes it impossible to find in one step, whatever happens during the removal.
        let (gone, held) = with_operation("remove", claim::claim(&self.bundles, UNFINISHED))?;
        with_operation("remove", self.bundles.rename(&id, &held, &id, beneath::Rename::NoReplace))?;
        with_operation("remove", self.bundles.remove_tree(&gone))?;
        with_operation("remove", self.bundles.sync())
    }

    /// Stores a content that a decision has produced, under its hash.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_blob(&self, content: &[u8]) -> Result<ContentHash, Error> {
        use std::io::Write as _;
        let hash = ContentHash::of(content);
        let blobs = with_operation("open", self.dir.open_dir(&blobs_name()))?;
        let new = RelativePath::literal("added.new");
        match blobs.remove_file(&new) {
            Err(error) if error.errno() != Some(Errno::NOENT) => {
                with_operation("write", Err(error))?;
            }
            _ => {}
        }
        let mut file = with_operation("write", blobs.create_file(&new, 0o600))?;
        with_operation("write", file.write_all(content))?;
        with_operation("write", file.sync_all())?;
        with_operation("write", blobs.rename(&new, &blobs, &hash_name(hash)?, Rename::Replace))?;
        Ok(hash)
    }
}
