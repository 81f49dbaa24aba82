//! The changes of a sandbox in its workspace: a copy of that layer for the caller, made while the
//! processes are stopped. If the workspace is a copy, only the differences are copied.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::layer::{self, Original, Owners};
use stockade_bundle::view::LayerChanges;
use stockade_core::{SandboxId, SnapshotId};

use super::call::Client;
use super::files::blocking;
use super::snapshot::{self, not_copied};
use crate::directory::name;
use crate::wire::InitialState;
use stockade_runtime::{Capability, Error, Result};

/// Copies the changes of a sandbox to a new directory of the host.
pub(super) async fn of_sandbox(
    client: &Arc<Client>,
    sandbox: &SandboxId,
    to: &Path,
) -> Result<LayerChanges> {
    for _ in 0..snapshot::ATTEMPTS {
        let paused = snapshot::pause(client, sandbox).await?;
        let (client, sandbox, to) = (client.clone(), sandbox.clone(), to.to_owned());
        let gathered = blocking(move || {
            let layer = paused.workspace_layer(&client.directory, &sandbox)?;
            let target = Target::make(&to)?;
            let gathered = layer.gather(&target.dir)?;
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
) -> Result<LayerChanges> {
    let (client, id, to) = (client.clone(), id.clone(), to.to_owned());
    blocking(move || {
        let stored = snapshot::StoredSnapshot::open(&client.directory, &id)?;
        let layer = stored.workspace_layer()?;
        let target = Target::make(&to)?;
        let gathered = layer.gather(&target.dir)?;
        stored.is_still_there()?;
        target.commit();
        Ok(gathered)
    })
    .await
}

/// The layer of a workspace.
pub(super) struct WorkspaceLayer {
    layer: Dir,
    initial_state: InitialState,
    is_full_copy: bool,
    owners: Owners,
}

impl WorkspaceLayer {
    /// The layer below `dir`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no workspace.
    pub(super) fn open(
        has_workspace: bool,
        initial_state: Option<&InitialState>,
        is_full_copy: bool,
        owners: Owners,
        dir: &Dir,
        layer: &str,
    ) -> Result<Self> {
        if !has_workspace {
            return Err(Error::Invalid("the sandbox has no workspace".to_owned()));
        }
        let initial_state = initial_state.cloned().ok_or_else(|| Error::Unsupported {
            capability: Capability::Workspace,
            reason: "the sandbox was created by a version that did not record its start".to_owned(),
            remedy: Some("copy the files out with `stockade cp`".to_owned()),
        })?;
        let layer = name(layer).and_then(|layer| dir.open_dir(&layer)).map_err(snapshot::host)?;
        Ok(Self { layer, initial_state, is_full_copy, owners })
    }

    /// Copies the changes to an empty directory.
    fn gather(&self, to: &Dir) -> Result<LayerChanges> {
        let Self {
            layer,
            initial_state: InitialState { host, since, copied },
            is_full_copy: whole,
            owners,
        } = self;
        let removed = if *whole {
            let failed = |source| Error::Host { path: host.display().to_string(), source };
            let real = std::fs::canonicalize(host).map_err(failed)?;
            let directory = Dir::open(&real).map_err(|error| failed(error.into()))?;
            let original = Original { directory: &directory, since: *since, copied: *copied };
            layer::copy_changed(layer, to, *owners, original).map_err(not_copied)?
        } else {
            // The size was limited when it was written, and is limited by the disk.
            layer::copy(layer, to, u64::MAX, *owners).map_err(not_copied)?;
            Vec::new()
        };
        Ok(LayerChanges { since: *since, removed })
    }
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
