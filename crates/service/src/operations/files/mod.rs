//! Files: reading them is not recorded; changing them is, without their content.
//!
//! Each path is checked against the sandbox's rules here, by its name and by its resolved path.

mod change;
mod patch;
mod query;
mod tree;

pub(crate) use change::{Change, NAME, change, perform, replace, write};
pub(crate) use patch::apply as apply_patch;
pub(crate) use query::{list, read, search, stat};
pub(crate) use tree::{SEND, perform as perform_send, receive, send};

use stockade_api::{Bytes, Caller, FileEntry, FileKind, Result};
use stockade_core::access::Level;
use stockade_core::event::{Direction, FilesCopied, Payload};
use stockade_core::sandbox::SECRETS_DIRECTORY;
use stockade_core::{Code, Problem, SandboxId};
use stockade_runtime::{FileInfo, FileKind as Kind, Runtime, SandboxPath};

use crate::clock::timestamp;
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};
use crate::paths::{as_bytes, as_path, resolve};
use crate::service::Service;

/// The sandbox, if it is running and belongs to the caller.
async fn use_sandbox(service: &Service, caller: &Caller, id: &SandboxId) -> Result<ActiveSandbox> {
    service.use_sandbox(caller, id).await
}

/// A path that may be used in this way, by its name and by its resolved path. `follow` determines
/// whether a symbolic link at its end is followed.
pub(crate) async fn resolve_allowed(
    runtime: &dyn Runtime,
    owned: &OwnedSandbox,
    level: Level,
    path: &Bytes,
    follow: bool,
) -> Result<SandboxPath> {
    let checked = as_path(path)?;
    owned.allows(level, &path.0)?;
    if owned.rules.is_empty() {
        return Ok(checked);
    }
    let reached = resolve(runtime, &owned.id, &checked, follow).await?;
    owned.allows(level, as_bytes(&reached))?;
    Ok(reached)
}

/// Refuses to copy the files with secrets out, also where links lead to them: a program inside that
/// cannot read one could place a link. In another tree they are skipped.
pub(crate) async fn refuse_secret_files(
    runtime: &dyn Runtime,
    id: &SandboxId,
    path: &SandboxPath,
) -> Result<()> {
    let is_secret = |path: &SandboxPath| path.as_path().starts_with(SECRETS_DIRECTORY);
    if is_secret(path) || is_secret(&resolve(runtime, id, path, true).await?) {
        let message = format!("{path} is not copied");
        return Err(Problem::new(Code::AccessDenied, message)
            .because(format!("secret_file: files below {SECRETS_DIRECTORY} have secrets")));
    }
    Ok(())
}

/// The public form of a file's metadata.
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

/// The content of the event of copied files.
pub(crate) fn copied(direction: Direction, path: &Bytes, paths: u64, bytes: u64) -> Payload {
    let path = String::from_utf8_lossy(&path.0).into_owned();
    Payload::FilesCopied(FilesCopied { direction, path, paths, bytes })
}

/// The path of a name in a directory.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.strip_suffix(b"/").unwrap_or(directory).to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}
