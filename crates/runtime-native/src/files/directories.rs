//! Creating directories with their missing parents.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;

use super::access;
use super::entry::{DirEntryRef, Scope, resolve};

/// Opens a directory. Creates it with this mode, and its missing parents with 0755.
pub(super) fn make_directories(scope: Scope<'_>, path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let root = scope.root;
    let open = |path: &Path| resolve(root, path.as_os_str(), OFlags::DIRECTORY);
    let mut missing = Vec::new();
    let mut at = path;
    let mut found = loop {
        match open(at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(at);
                at = at.parent().ok_or(error)?;
            }
            other => break other?,
        }
    };
    for (above, path) in missing.into_iter().enumerate().rev() {
        let entry = DirEntryRef::new(root, path)?;
        access::may_change(scope.rules, &entry)?;
        let mode = if above == 0 { mode } else { 0o755 };
        match entry.parent.mkdir(&entry.name, mode) {
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {}
            other => other?,
        }
        found = open(path)?;
    }
    Ok(found)
}
