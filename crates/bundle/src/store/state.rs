//! Which parts of a bundle were applied. This is the only part of a bundle that changes.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Error, with_operation};
use crate::beneath::{Dir, Rename};
use crate::manifest::{Entry, Manifest};
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
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    applied: BTreeSet<RelativePath>,
}

impl State {
    fn of(applied: BTreeSet<RelativePath>, manifest: &Manifest) -> Self {
        let is_open = |entry: &&Entry| {
            entry.refused.is_none() && !entry.ignored && !applied.contains(&entry.path)
        };
        let status = match (applied.is_empty(), manifest.entries.iter().find(is_open)) {
            (true, _) => Status::Open,
            (false, Some(_)) => Status::Partial,
            (false, None) => Status::Applied,
        };
        Self { status, applied }
    }

    pub(super) fn read(dir: &Dir, manifest: &Manifest) -> Result<Self, Error> {
        Ok(Self::of(applied(dir)?, manifest))
    }

    /// Adds these paths to the recorded applied paths.
    pub(super) fn add(dir: &Dir, paths: &[RelativePath]) -> Result<(), Error> {
        let mut applied = applied(dir)?;
        applied.extend(paths.iter().cloned());
        let on_disk = OnDisk { applied };
        let content = serde_json::to_vec(&on_disk).map_err(|e| Error::State(e.to_string()))?;
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
}

fn applied(dir: &Dir) -> Result<BTreeSet<RelativePath>, Error> {
    let file = match dir.open_file(&name()) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(BTreeSet::new()),
        other => with_operation("read the state of", other)?,
    };
    let mut content = Vec::new();
    with_operation("read the state of", file.take(MAX_BYTES).read_to_end(&mut content))?;
    let on_disk: OnDisk =
        serde_json::from_slice(&content).map_err(|error| Error::State(error.to_string()))?;
    Ok(on_disk.applied)
}

fn name() -> RelativePath {
    RelativePath::literal("state.json")
}
