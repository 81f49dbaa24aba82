//! The changes of a fake sandbox in its workspace: files that differ from the initial ones, copied
//! to the host.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use stockade_bundle::RelativePath;

use super::copies::{host, permit};
use super::sandbox::InitialWorkspace;
use super::tree::{Kind, Node, Tree};
use crate::changes::WorkspaceChanges;
use crate::error::{Error, Result};

/// Writes the changes to a new directory of the host.
///
/// # Errors
/// [`Error::Invalid`] without a workspace, [`Error::Host`] when it cannot be written; nothing is
/// left of it then.
pub(super) fn gather(
    files: &Tree,
    initial: Option<&InitialWorkspace>,
    to: &Path,
) -> Result<WorkspaceChanges> {
    let initial =
        initial.ok_or_else(|| Error::Invalid("the sandbox has no workspace".to_owned()))?;
    fs::create_dir(to).map_err(host(to))?;
    let gathered = write(files, initial, to).and_then(|()| {
        Ok(WorkspaceChanges { since: initial.since, removed: removed(files, initial)? })
    });
    if gathered.is_err() {
        // A failed removal must not hide the original error.
        let _ = fs::remove_dir_all(to);
    }
    gathered
}

fn write(files: &Tree, initial: &InitialWorkspace, to: &Path) -> Result<()> {
    let mut directories: Vec<(PathBuf, u32)> = Vec::new();
    for (path, node) in files.below(&initial.inside) {
        let below = path.strip_prefix(&initial.inside).unwrap_or(path);
        let there = to.join(below);
        match &node.kind {
            // A directory without changes is no change.
            Kind::Directory => {
                fs::create_dir(&there).map_err(host(&there))?;
                directories.push((there, node.mode));
            }
            _ if initial.files.get(path).is_some_and(|old| is_same(old, node)) => {}
            Kind::Link(target) => symlink(target, &there).map_err(host(&there))?,
            Kind::File(content) => {
                fs::write(&there, content.as_slice()).map_err(host(&there))?;
                permit(&there, node.mode)?;
            }
        }
    }
    directories.iter().rev().try_for_each(|(path, mode)| permit(path, *mode))
}

fn is_same(old: &Node, new: &Node) -> bool {
    old.mode == new.mode
        && match (&old.kind, &new.kind) {
            (Kind::File(old), Kind::File(new)) => old == new,
            (Kind::Link(old), Kind::Link(new)) => old == new,
            _ => false,
        }
}

/// The files that existed at the beginning and do not exist any more; of a removed directory only
/// itself.
fn removed(files: &Tree, initial: &InitialWorkspace) -> Result<Vec<RelativePath>> {
    let mut removed: Vec<RelativePath> = Vec::new();
    for (path, _) in initial.files.below(&initial.inside) {
        let below = path.strip_prefix(&initial.inside).unwrap_or(path).as_os_str().as_bytes();
        let below = RelativePath::new(below).map_err(|e| Error::Invalid(e.to_string()))?;
        let is_told = removed.iter().any(|above| below.is_within(above));
        if files.get(path).is_none() && !is_told {
            removed.push(below);
        }
    }
    Ok(removed)
}
