//! What an apply operation has replaced, kept so that the operation can be undone: a manifest of the
//! reverse changes, and the contents for it.
//!
//! ```text
//! ID.new: the manifest, written before the project is changed; contents are moved in after the commit
//! ID:     complete
//! ```
//!
//! An undo is an apply operation of this manifest, with the same checks, journal and recovery.

use std::io::{Read as _, Write as _};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::journal::{Action, Journal, io_error, name};
use super::verify::VerifiedChange;
use crate::beneath::{Dir, FileKind, Rename};
use crate::manifest::{Change, Entry, Node};
use crate::path::{RelativePath, bytes_as_json};

/// The name that a ledger receives for an undo operation starts with this.
pub const PREFIX: &str = "undo:";

/// How many operations can be undone for each project.
const MAX_RECORDS: usize = 5;

/// A larger record was not written by this module.
const MAX_BYTES: u64 = 1 << 30;

/// What is needed to undo one apply operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The project's root.
    #[serde(with = "bytes_as_json")]
    pub project: Vec<u8>,
    /// The bundle that was applied.
    pub bundle: String,
    /// The paths that count as applied because of it.
    pub paths: Vec<RelativePath>,
    /// The reverse changes, sorted by path.
    pub entries: Vec<Entry>,
}

/// A complete record.
#[derive(Debug)]
pub struct StoredRecord {
    /// Its id: later operations have later ids.
    pub id: String,
    /// The record.
    pub record: Record,
    /// The directory of the contents.
    pub blobs: Dir,
    /// The directory of the record.
    pub dir: Dir,
}

/// Writes the record of an operation that has not changed the project yet.
pub(super) fn start(
    store: &Dir,
    journal: &Journal,
    changes: &[VerifiedChange<'_>],
) -> Result<(), Error> {
    let record = Record {
        project: journal.record().project.clone(),
        bundle: journal.record().bundle.clone(),
        paths: journal.record().paths.clone(),
        entries: changes.iter().map(reverse).collect(),
    };
    let unfinished = unfinished(journal.id())?;
    store.mkdir(&unfinished, 0o700)?;
    let dir = store.open_dir(&unfinished)?;
    dir.mkdir(&blobs_name(), 0o700)?;
    let bytes = serde_json::to_vec(&record).map_err(|error| Error::JournalDamaged {
        name: unfinished.quoted(),
        reason: error.to_string(),
    })?;
    let mut file = dir.create_file(&record_name(), 0o600)?;
    file.write_all(&bytes)
        .and_then(|()| file.sync_all())
        .map_err(io_error("write the undo record", &unfinished))?;
    dir.sync()?;
    Ok(store.sync()?)
}

fn reverse(change: &VerifiedChange<'_>) -> Entry {
    let change_back = match change.entry.change.clone() {
        Change::Add { new } => Change::Delete { old: new },
        Change::Modify { old, new } => Change::Modify { old: new, new: old },
        Change::Delete { old } => Change::Add { new: old },
    };
    Entry::new(change.entry.path.clone(), change_back)
}

/// Removes the record of an operation that has not changed the project.
pub(super) fn cancel(store: &Dir, id: &str) -> Result<(), Error> {
    remove(store, &unfinished(id)?)
}

/// Moves the displaced contents of a committed operation to its record, and completes it.
pub(super) fn complete(store: &Dir, stage: Option<&Dir>, journal: &Journal) -> Result<(), Error> {
    let unfinished = unfinished(journal.id())?;
    let dir = match store.open_dir(&unfinished) {
        // It is complete already, or the operation keeps none.
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let record = read(&dir)?;
    let blobs = dir.open_dir(&blobs_name())?;
    for step in stage.map(|_| journal.steps()).unwrap_or_default() {
        let (Some(stage), Action::Exchange { path, slot, .. } | Action::Remove { path, slot }) =
            (stage, step)
        else {
            continue;
        };
        let entry = record.entries.binary_search_by(|entry| entry.path.cmp(path));
        let node = entry.ok().and_then(|at| record.entries[at].change.new_node());
        if let Some(Node::File { hash, .. }) = node {
            keep(stage, slot, &blobs, &name(&hash.to_hex())?)?;
        }
    }
    dir.sync()?;
    let complete = name(journal.id())?;
    store.rename(&unfinished, store, &complete, Rename::NoReplace)?;
    store.sync()?;
    prune(store, &record.project)
}

/// Returns what an undo has displaced, the new contents of a bundle, to the bundle: it may wait
/// beside the record.
pub(super) fn give_back(
    store: &Dir,
    id: &str,
    stage: &Dir,
    journal: &Journal,
) -> Result<(), Error> {
    let Some(stored) = open(store, id)? else { return Ok(()) };
    let blobs =
        match stored.dir.open_dir(&name("bundle")?).and_then(|it| it.open_dir(&blobs_name())) {
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
            other => other?,
        };
    for step in journal.steps() {
        let (Action::Exchange { path, slot, .. } | Action::Remove { path, slot }) = step else {
            continue;
        };
        let entry = stored.record.entries.binary_search_by(|entry| entry.path.cmp(path));
        let node = entry.ok().and_then(|at| stored.record.entries[at].change.old());
        if let Some(Node::File { hash, .. }) = node {
            keep(stage, slot, &blobs, &name(&hash.to_hex())?)?;
        }
    }
    Ok(blobs.sync()?)
}

/// Moves a displaced file, or copies it if it is on another file system or has other names.
fn keep(stage: &Dir, slot: &RelativePath, to: &Dir, hash: &RelativePath) -> Result<(), Error> {
    let Some(stat) = stage.stat(slot)? else { return Ok(()) };
    if stat.kind != FileKind::File || to.stat(hash)?.is_some() {
        return Ok(());
    }
    if stat.links == 1 && stage.rename(slot, to, hash, Rename::NoReplace).is_ok() {
        to.chown(hash, rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())?;
        return Ok(to.chmod(hash, 0o600)?);
    }
    let new = name("new")?;
    remove(to, &new)?;
    let from = stage.open_file(slot)?;
    let mut file = to.create_file(&new, 0o600)?;
    std::io::copy(&mut { from }, &mut file)
        .and_then(|_| file.sync_all())
        .map_err(io_error("keep the old content of", slot))?;
    Ok(to.rename(&new, to, hash, Rename::Replace)?)
}

/// Removes the records of a project beyond the newest ones.
fn prune(store: &Dir, project: &[u8]) -> Result<(), Error> {
    let mut records = list(store)?;
    records.retain(|stored| stored.record.project == project);
    let surplus = records.len().saturating_sub(MAX_RECORDS);
    for stored in records.iter().take(surplus) {
        remove(store, &name(&stored.id)?)?;
    }
    Ok(())
}

/// All complete records, oldest first. Those that cannot be read are left out.
///
/// # Errors
/// When the records cannot be listed.
pub fn list(store: &Dir) -> Result<Vec<StoredRecord>, Error> {
    let mut found = Vec::new();
    for (file, kind) in store.entries()? {
        let Ok(id) = String::from_utf8(file) else { continue };
        if kind != FileKind::Directory || id.contains('.') {
            continue;
        }
        let opened = name(&id).and_then(|name| Ok(store.open_dir(&name)?));
        let Ok(dir) = opened else { continue };
        let Ok(record) = read(&dir) else { continue };
        let Ok(blobs) = dir.open_dir(&blobs_name()) else { continue };
        found.push(StoredRecord { id, record, blobs, dir });
    }
    found.sort_by_key(|stored| order(&stored.id));
    Ok(found)
}

/// The time and process in an id.
fn order(id: &str) -> (u64, String) {
    let (seconds, rest) = id.split_once('-').unwrap_or((id, ""));
    (u64::from_str_radix(seconds, 16).unwrap_or(0), rest.to_owned())
}

/// Removes a record, if it exists.
///
/// # Errors
/// When it cannot be removed.
pub fn discard(store: &Dir, id: &str) -> Result<(), Error> {
    remove(store, &name(id)?)
}

/// Opens the record with this id, if it exists.
///
/// # Errors
/// When it cannot be read.
pub fn open(store: &Dir, id: &str) -> Result<Option<StoredRecord>, Error> {
    let dir = match store.open_dir(&name(id)?) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let (record, blobs) = (read(&dir)?, dir.open_dir(&blobs_name())?);
    Ok(Some(StoredRecord { id: id.to_owned(), record, blobs, dir }))
}

fn read(dir: &Dir) -> Result<Record, Error> {
    let mut bytes = Vec::new();
    let file = dir.open_file(&record_name())?;
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(io_error("read the undo record", &record_name()))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::JournalDamaged {
        name: record_name().quoted(),
        reason: error.to_string(),
    })
}

fn remove(dir: &Dir, name: &RelativePath) -> Result<(), Error> {
    match dir.remove_tree(name) {
        Err(error) if error.errno() != Some(Errno::NOENT) => Err(error.into()),
        _ => Ok(()),
    }
}

fn unfinished(id: &str) -> Result<RelativePath, Error> {
    name(&format!("{id}.new"))
}

fn record_name() -> RelativePath {
    RelativePath::literal("record.json")
}

fn blobs_name() -> RelativePath {
    RelativePath::literal("blobs")
}
