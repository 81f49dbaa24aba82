//! The changes of a sandbox in its workspace: a copy of that layer for the caller, made while the
//! processes are stopped. If the workspace is a copy, only the differences are copied. The layer of
//! an overlay can also be read where it is, once the processes have ended.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_core::{SandboxId, SnapshotId};

use super::call::Client;
use super::files::blocking;
use super::{snapshot, subordinate};
use crate::directory::name;
use crate::workspace_layer::WorkspaceLayer;
use stockade_runtime::{ChangesInPlace, Error, Result, WorkspaceChanges};

/// Copies the changes of a sandbox to a new directory of the host.
pub(super) async fn of_sandbox(
    client: &Arc<Client>,
    sandbox: &SandboxId,
    to: &Path,
) -> Result<WorkspaceChanges> {
    for _ in 0..snapshot::ATTEMPTS {
        let paused = snapshot::pause(client, sandbox).await?;
        let (client, sandbox, to) = (client.clone(), sandbox.clone(), to.to_owned());
        let gathered = blocking(move || {
            let layer = paused.workspace_layer(&client.directory, &sandbox)?;
            let target = Target::make(&to)?;
            let gathered = gather(&layer, paused.program_for_ids(), &target.dir)?;
            // If its keeper died meanwhile, the sandbox may have been resumed.
            Ok(paused.resume().then(|| {
                target.commit();
                gathered
            }))
        });
        if let Some(gathered) = gathered.await? {
            return Ok(gathered);
        }
    }
    let source = io::Error::other(format!("the keeper disconnected {} times", snapshot::ATTEMPTS));
    Err(Error::Unreachable { what: "the keeper".to_owned(), source })
}

/// The same for a snapshot.
pub(super) async fn of_snapshot(
    client: &Arc<Client>,
    id: &SnapshotId,
    to: &Path,
) -> Result<WorkspaceChanges> {
    let (client, id, to) = (client.clone(), id.clone(), to.to_owned());
    blocking(move || {
        let stored = snapshot::StoredSnapshot::open(&client.directory, &id)?;
        let layer = stored.workspace_layer()?;
        let target = Target::make(&to)?;
        let program = stored.is_subordinate().then(|| client.program());
        let gathered = gather(&layer, program, &target.dir)?;
        stored.is_still_there()?;
        target.commit();
        Ok(gathered)
    })
    .await
}

/// Copies the changes in a layer; `program` does it, if files have subordinate ids.
fn gather(layer: &WorkspaceLayer, program: Option<&OsStr>, to: &Dir) -> Result<WorkspaceChanges> {
    match program {
        Some(program) => subordinate::gather(program, layer.directory(), layer.initial_state(), to),
        None => layer.gather(to),
    }
}

/// The changes of an ended sandbox, where they are.
pub(super) async fn in_ended(
    client: &Arc<Client>,
    sandbox: &SandboxId,
) -> Result<Option<ChangesInPlace>> {
    let ended = snapshot::pause(client, sandbox).await?;
    let (client, sandbox) = (client.clone(), sandbox.clone());
    // Files of subordinate ids cannot be read where they are.
    if ended.program_for_ids().is_some() {
        return Ok(None);
    }
    blocking(move || ended.workspace_layer(&client.directory, &sandbox)?.in_place()).await
}

/// The same for a snapshot.
pub(super) async fn in_snapshot(
    client: &Arc<Client>,
    id: &SnapshotId,
) -> Result<Option<ChangesInPlace>> {
    let (client, id) = (client.clone(), id.clone());
    blocking(move || {
        let stored = snapshot::StoredSnapshot::open(&client.directory, &id)?;
        if stored.is_subordinate() { Ok(None) } else { stored.workspace_layer()?.in_place() }
    })
    .await
}

/// A new directory of the host. Dropping this value removes it with its contents.
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

    fn commit(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_kept {
            // Only the error that caused this is reported.
            let _ = self.parent.remove_tree(&self.name);
        }
    }
}
