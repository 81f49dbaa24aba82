//! Files: looking at them is not recorded; changing them is, without their content.
//!
//! Each path is checked against the sandbox's rules here, by its name.

mod change;
mod look;

pub(crate) use change::{Change, NAME, change, perform, replace, write};
pub(crate) use look::{list, read, search, stat};

use stockade_api::{Bytes, Caller, FileEntry, FileKind, Result};
use stockade_core::access::Level;
use stockade_core::{Operation, SandboxId};
use stockade_runtime::{FileInfo, FileKind as Kind, SandboxPath};

use super::life;
use crate::clock::timestamp;
use crate::failure::of_path;
use crate::guard::Owned;
use crate::service::Service;

/// The sandbox, running and the caller's.
async fn used(service: &Service, caller: &Caller, id: &SandboxId) -> Result<Owned> {
    life::wake_up(service, caller, id).await?;
    service.owned(caller, id, Operation::Use).await
}

/// A path that may be used like that.
fn allowed(owned: &Owned, level: Level, path: &Bytes) -> Result<SandboxPath> {
    let checked = as_path(path)?;
    owned.allows(level, &path.0)?;
    Ok(checked)
}

fn as_path(path: &Bytes) -> Result<SandboxPath> {
    use std::os::unix::ffi::OsStrExt as _;
    SandboxPath::new(std::ffi::OsStr::from_bytes(&path.0)).map_err(|error| of_path(&error))
}

/// What is told of a file.
fn entry(path: &[u8], info: &FileInfo) -> FileEntry {
    FileEntry {
        path: Bytes(path.to_vec()),
        kind: match info.kind {
            Kind::File => FileKind::File,
            Kind::Directory => FileKind::Directory,
            Kind::Link => FileKind::Link,
            Kind::Other => FileKind::Other,
        },
        size_bytes: info.size_bytes,
        mode: info.mode,
        uid: info.owner.user,
        gid: info.owner.group,
        modified_at: timestamp(info.modified_ms),
        link: info.link.clone().map(Bytes),
    }
}

/// The path of a name in a directory.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.strip_suffix(b"/").unwrap_or(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}
