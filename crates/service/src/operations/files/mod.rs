//! Files: looking at them is not recorded; changing them is, without their content.
//!
//! Each path is checked against the sandbox's rules here, by its name and by what that leads to.

mod change;
mod look;

pub(crate) use change::{Change, NAME, change, perform, replace, write};
pub(crate) use look::{list, read, search, stat};

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt as _;

use stockade_api::{Bytes, Caller, FileEntry, FileKind, Result};
use stockade_core::access::Level;
use stockade_core::{Code, Problem, SandboxId};
use stockade_runtime::{Error, FileInfo, FileKind as Kind, Runtime, SandboxPath};

use crate::clock::timestamp;
use crate::failure::{of_path, of_runtime};
use crate::guard::{Owned, Used};
use crate::service::Service;

/// The sandbox, running and the caller's.
async fn used(service: &Service, caller: &Caller, id: &SandboxId) -> Result<Used> {
    service.used(caller, id).await
}

/// A path that may be used like that, by its name and by what the name leads to. A link at its end
/// is followed where `follow` says so.
async fn allowed(
    runtime: &dyn Runtime,
    owned: &Owned,
    level: Level,
    path: &Bytes,
    follow: bool,
) -> Result<SandboxPath> {
    let checked = as_path(path)?;
    owned.allows(level, &path.0)?;
    if owned.rules.is_empty() {
        return Ok(checked);
    }
    let reached = reached(runtime, owned, &checked, follow).await?;
    owned.allows(level, as_bytes(&reached))?;
    Ok(reached)
}

/// The path that a name leads to, with the links on the way followed. What is not there stands for
/// itself. A process inside can set another link a moment later: what holds against that are the
/// runtime's own walls.
pub(crate) async fn reached(
    runtime: &dyn Runtime,
    owned: &Owned,
    path: &SandboxPath,
    follow: bool,
) -> Result<SandboxPath> {
    let mut waiting: VecDeque<Vec<u8>> = components(as_bytes(path)).collect();
    let (mut at, mut links) = (Vec::new(), 0);
    while let Some(name) = waiting.pop_front() {
        if name == b".." {
            let parent = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            at.truncate(parent);
            continue;
        }
        let next = [&at[..], b"/", &name].concat();
        if follow || !waiting.is_empty() {
            let link = match runtime.stat(&owned.id, &as_path(&Bytes(next.clone()))?).await {
                Ok(info) => info.link,
                // Whatever is wrong with it is told by who uses it.
                Err(Error::File { .. }) => None,
                Err(error) => return Err(of_runtime(&error)),
            };
            if let Some(link) = link {
                links += 1;
                if links > LINKS {
                    let message = format!("too many links on the way to {path}");
                    return Err(Problem::new(Code::PathInvalid, message));
                }
                if link.starts_with(b"/") {
                    at.clear();
                }
                for name in components(&link).collect::<Vec<_>>().into_iter().rev() {
                    waiting.push_front(name);
                }
                continue;
            }
        }
        at = next;
    }
    as_path(&Bytes(if at.is_empty() { b"/".to_vec() } else { at }))
}

/// How many links are followed on one way, as Linux has it.
const LINKS: usize = 40;

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

pub(crate) fn as_bytes(path: &SandboxPath) -> &[u8] {
    path.as_path().as_os_str().as_bytes()
}

pub(crate) fn as_path(path: &Bytes) -> Result<SandboxPath> {
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
