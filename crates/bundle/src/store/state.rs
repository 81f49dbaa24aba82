//! Which parts of a bundle were applied. This is the only part of a bundle that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Error, with_operation};
use crate::apply::{AppliedChanges, undo};
use crate::beneath::{Dir, Rename};
use crate::manifest::{Change, Entry, Manifest, Node};
use crate::path::RelativePath;

/// Larger than the paths of any bundle.
const MAX_BYTES: u64 = 1 << 30;

/// How much of a bundle was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing was applied.
    Open,
    /// Some entries were applied, but not all that could be.
    Partial,
    /// All entries that are neither refused nor ignored were applied. A bundle of only refused
    /// and ignored entries counts as applied once any of them was.
    Applied,
}

/// Which parts of a bundle were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The summary.
    pub status: Status,
    /// The applied paths.
    pub applied: BTreeSet<RelativePath>,
    /// The paths of which a part was applied, with the node that the project had after that.
    pub partial: BTreeMap<RelativePath, Node>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    applied: BTreeSet<RelativePath>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    partial: BTreeMap<RelativePath, Node>,
}

impl State {
    fn of(on_disk: OnDisk, manifest: &Manifest) -> Self {
        let OnDisk { applied, partial } = on_disk;
        let is_open = |entry: &&Entry| {
            entry.refused.is_none() && !entry.ignored && !applied.contains(&entry.path)
        };
        let status =
            match (applied.is_empty() && partial.is_empty(), manifest.entries.iter().find(is_open))
            {
                (true, _) => Status::Open,
                (false, Some(_)) => Status::Partial,
                (false, None) => Status::Applied,
            };
        Self { status, applied, partial }
    }

    pub(super) fn read(dir: &Dir, manifest: &Manifest) -> Result<Self, Error> {
        Ok(Self::of(read(dir)?, manifest))
    }

    /// Makes the entries of which a part was applied changes from that part.
    pub(super) fn rebase(&self, manifest: &mut Manifest) {
        for (path, node) in &self.partial {
            let found = manifest.entries.binary_search_by(|entry| entry.path.cmp(path));
            let Some(entry) = found.ok().and_then(|at| manifest.entries.get_mut(at)) else {
                continue;
            };
            if let Some(new) = entry.change.new_node().filter(|new| *new != node) {
                entry.change = Change::Modify { old: node.clone(), new: new.clone() };
                (entry.conflict, entry.base_known) = (false, false);
            }
        }
    }

    /// Records what was applied.
    pub(super) fn add(dir: &Dir, changes: &AppliedChanges<'_>) -> Result<(), Error> {
        let mut on_disk = read(dir)?;
        for path in changes.paths {
            on_disk.partial.remove(path);
            on_disk.applied.insert(path.clone());
        }
        on_disk.partial.extend(changes.partial.iter().cloned());
        write(dir, &on_disk)
    }

    /// Records that an operation was undone.
    pub(super) fn remove(dir: &Dir, undone: &undo::Record) -> Result<(), Error> {
        let mut on_disk = read(dir)?;
        for path in &undone.paths {
            on_disk.applied.remove(path);
        }
        for entry in &undone.entries {
            if let (Some(node), Some(old)) =
                (on_disk.partial.get_mut(&entry.path), entry.change.new_node())
            {
                node.clone_from(old);
            }
        }
        write(dir, &on_disk)
    }
}

fn write(dir: &Dir, on_disk: &OnDisk) -> Result<(), Error> {
    let content = serde_json::to_vec(on_disk).map_err(|e| Error::State(e.to_string()))?;
    let new = RelativePath::literal("state.json.new");
    let write = "write the state of";
    // A killed process may have left this file.
    with_operation(write, dir.remove_tree(&new))?;
    let mut file = with_operation(write, dir.create_file(&new, 0o600))?;
    with_operation(write, file.write_all(&content))?;
    with_operation(write, file.sync_all())?;
    with_operation(write, dir.rename(&new, dir, &name(), Rename::Replace))?;
    with_operation(write, dir.sync())
}

fn read(dir: &Dir) -> Result<OnDisk, Error> {
    let file = match dir.open_file(&name()) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(OnDisk::default()),
        other => with_operation("read the state of", other)?,
    };
    let mut content = Vec::new();
    with_operation("read the state of", file.take(MAX_BYTES).read_to_end(&mut content))?;
    serde_json::from_slice(&content).map_err(|error| Error::State(error.to_string()))
}

fn name() -> RelativePath {
    RelativePath::literal("state.json")
}
