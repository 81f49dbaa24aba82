//! What a sandbox has changed in its workspace: a copy of that layer for somebody else, made while
//! the processes stand still.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::view::Gathered;
use stockade_core::{SandboxId, SnapshotId};

use super::call::Client;
use super::files::blocking;
use super::snapshot;
use crate::capability::Capability;
use crate::error::{Error, Result};
use crate::native::directory::name;
use crate::native::wire::Begun;

/// Copies what a sandbox has changed to a new directory of the host.
pub(super) async fn of_sandbox(
    client: &Arc<Client>,
    sandbox: &SandboxId,
    to: &Path,
) -> Result<Gathered> {
    for _ in 0..snapshot::ATTEMPTS {
        let held = snapshot::hold(client, sandbox).await?;
        let begun = begun(held.workspace, held.begun)?;
        let (client, sandbox, to) = (client.clone(), sandbox.clone(), to.to_owned());
        let copied = blocking(move || {
            let from = client.directory.sandbox(&sandbox).map_err(snapshot::host)?;
            let target = Target::make(&to)?;
            held.copy(&from, snapshot::WORKSPACE_LAYER, &target.dir)?;
            // Where its keeper died meanwhile, it may have gone on.
            let stood_still = held.release();
            Ok(stood_still.then(|| target.keep()).is_some())
        });
        if copied.await? {
            return Ok(gathered(begun));
        }
    }
    let source = io::Error::other(format!("it went away {} times", snapshot::ATTEMPTS));
    Err(Error::Unreachable { what: "the keeper".to_owned(), source })
}

/// The same of a snapshot.
pub(super) async fn of_snapshot(
    client: &Arc<Client>,
    id: &SnapshotId,
    to: &Path,
) -> Result<Gathered> {
    let (client, id, to) = (client.clone(), id.clone(), to.to_owned());
    blocking(move || {
        let kept = snapshot::Kept::open(&client.directory, &id)?;
        let begun = begun(kept.workspace(), kept.begun())?;
        let target = Target::make(&to)?;
        kept.copy_workspace(&target.dir)?;
        target.keep();
        Ok(gathered(begun))
    })
    .await
}

fn begun(has_workspace: bool, begun: Option<Begun>) -> Result<Begun> {
    if !has_workspace {
        return Err(Error::Invalid("the sandbox has no workspace".to_owned()));
    }
    begun.ok_or_else(|| Error::Unsupported {
        capability: Capability::Workspace,
        reason: "the version that made the sandbox did not note when".to_owned(),
        remedy: Some("copy the files out with `stockade cp`".to_owned()),
    })
}

fn gathered(begun: Begun) -> Gathered {
    Gathered { since: begun.since, removed: Vec::new() }
}

/// A new directory of the host. Dropping it removes it, with what is in it.
struct Target {
    parent: Dir,
    name: RelativePath,
    dir: Dir,
    is_kept: bool,
}

impl Target {
    fn make(path: &Path) -> Result<Self> {
        let make = || -> io::Result<Self> {
            let name = name(path.file_name().ok_or(Errno::INVAL)?.as_bytes())?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = Dir::open(parent.unwrap_or_else(|| Path::new(".")))?;
            parent.mkdir(&name, 0o700)?;
            let dir = parent.open_dir(&name)?;
            Ok(Self { parent, name, dir, is_kept: false })
        };
        make().map_err(|source| Error::Host { path: path.display().to_string(), source })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_kept {
            // The error that it is given up for is the one to tell.
            let _ = self.parent.remove_tree(&self.name);
        }
    }
}
