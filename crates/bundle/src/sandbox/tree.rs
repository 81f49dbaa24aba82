//! The list of files in a result bundle; their content is not read.

use stockade_core::BundleLimits;

use super::{Error, Limit, too_large};
use crate::beneath::{Dir, FileKind};
use crate::path::RelativePath;

/// The most files and directories per allowed patch: a bundle also contains artifacts, logs and
/// directories.
const ENTRIES_PER_PATCH: u64 = 10;

/// The files of a bundle.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) patches: Vec<RelativePath>,
    pub(super) artifacts: Vec<RelativePath>,
    pub(super) stream_log: Option<RelativePath>,
    pub(super) total_bytes: u64,
}

/// Checks every entry of a bundle; any link or special file makes it invalid.
pub(super) fn walk(dir: &Dir, limits: &BundleLimits) -> Result<Tree, Error> {
    let at_most = limits.entries.saturating_mul(ENTRIES_PER_PATCH);
    let mut tree = Tree::default();
    let mut remaining = at_most;
    let mut directories: Vec<Option<RelativePath>> = vec![None];
    while let Some(directory) = directories.pop() {
        let opened = match &directory {
            None => dir.reopen(),
            Some(path) => dir.open_dir(path),
        };
        let names = opened
            .and_then(|dir| dir.entries_up_to(remaining))
            .map_err(Error::read_error)?
            .ok_or_else(|| too_large(Limit::Entries, at_most, limits))?;
        remaining -= names.len() as u64;
        for (name, kind) in names {
            let path = join(directory.as_ref(), name)?;
            if path.as_bytes().len() as u64 > limits.path_bytes {
                return Err(too_large(Limit::PathBytes, limits.path_bytes, limits));
            }
            match kind {
                FileKind::Symlink => return Err(Error::Symlink { path: path.quoted() }),
                FileKind::Directory => directories.push(Some(path)),
                FileKind::File => tree.add(dir, path, limits)?,
                FileKind::CharacterDevice | FileKind::Other => {
                    return Err(Error::Special { path: path.quoted() });
                }
            }
        }
    }
    tree.patches.sort();
    tree.artifacts.sort();
    Ok(tree)
}

impl Tree {
    fn add(&mut self, dir: &Dir, path: RelativePath, limits: &BundleLimits) -> Result<(), Error> {
        let size = match dir.stat(&path).map_err(Error::read_error)? {
            Some(stat) if stat.kind == FileKind::File => stat.size,
            // It was replaced since it was listed.
            Some(_) => return Err(Error::Special { path: path.quoted() }),
            None => return Ok(()),
        };
        if path.as_bytes() == b"README.md" && size > limits.manifest_bytes {
            return Err(too_large(Limit::ManifestBytes, limits.manifest_bytes, limits));
        }
        self.total_bytes = self.total_bytes.saturating_add(size);
        if self.total_bytes > limits.total_bytes {
            return Err(too_large(Limit::TotalBytes, limits.total_bytes, limits));
        }
        let (kept, limit) = if path.as_bytes().starts_with(b"patches/") {
            (&mut self.patches, Limit::Patches)
        } else if path.as_bytes().starts_with(b"artifacts/") {
            (&mut self.artifacts, Limit::Artifacts)
        } else {
            if path.as_bytes() == b"logs/stream.ndjson" {
                self.stream_log = Some(path);
            }
            return Ok(());
        };
        kept.push(path);
        if kept.len() as u64 > limits.entries {
            return Err(too_large(limit, limits.entries, limits));
        }
        Ok(())
    }
}

fn join(directory: Option<&RelativePath>, name: Vec<u8>) -> Result<RelativePath, Error> {
    let printable = name.escape_ascii().to_string();
    match directory {
        None => RelativePath::new(name),
        Some(directory) => directory.join(&name),
    }
    .map_err(|_| Error::Escape { path: printable, inside: "the bundle" })
}
