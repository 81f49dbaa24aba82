//! When the sandbox last modified the new files of a bundle. The times are not part of the manifest, so
//! that the same changes have the same hashes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use rustix::io::Errno;

use super::{Error, with_operation};
use crate::beneath::{Dir, Timestamp};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;

/// Larger than the paths of any bundle.
const MAX_BYTES: u64 = 1 << 30;

/// Writes the times of the files in a layer.
pub(super) fn write<'e>(
    dir: &Dir,
    layer: &Dir,
    entries: impl Iterator<Item = &'e Entry>,
) -> Result<(), Error> {
    let mut times = Vec::new();
    for entry in entries.filter(|entry| entry.refused.is_none()) {
        if let Some(Node::File { .. }) = entry.change.new_node()
            && let Some(stat) = with_operation("inspect the contents of", layer.stat(&entry.path))?
        {
            times.push((&entry.path, stat.modified));
        }
    }
    let content = serde_json::to_vec(&times).map_err(|error| Error::State(error.to_string()))?;
    let mut file = with_operation("create", dir.create_file(&name(), 0o600))?;
    with_operation("write", file.write_all(&content))?;
    with_operation("sync", file.sync_all())
}

/// Reads the times; there are none in a bundle of an earlier version.
pub(super) fn read(dir: &Dir) -> Result<BTreeMap<RelativePath, Timestamp>, Error> {
    let file = match dir.open_file(&name()) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(BTreeMap::new()),
        other => with_operation("read the times of", other)?,
    };
    let mut content = Vec::new();
    with_operation("read the times of", file.take(MAX_BYTES).read_to_end(&mut content))?;
    let times: Vec<(RelativePath, Timestamp)> =
        serde_json::from_slice(&content).map_err(|error| Error::State(error.to_string()))?;
    Ok(times.into_iter().collect())
}

fn name() -> RelativePath {
    RelativePath::literal("times.json")
}
