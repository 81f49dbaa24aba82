//! What a sandbox has written in its workspace, and the errors of copying it.

use std::io;

use rustix::io::Errno;
use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::layer::{self, Original, Owners, renamed};

use crate::directory::name;
use crate::wire::InitialState;
use stockade_runtime::{Capability, ChangesInPlace, Error, Result, WorkspaceChanges};

/// The layer of a workspace.
pub(crate) struct WorkspaceLayer {
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
    pub(crate) fn open(
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
        let layer = name(layer).and_then(|layer| dir.open_dir(&layer)).map_err(host)?;
        Ok(Self { layer, initial_state, is_full_copy, owners })
    }

    /// A layer that is open.
    pub(crate) const fn of(
        layer: Dir,
        initial_state: InitialState,
        is_full_copy: bool,
        owners: Owners,
    ) -> Self {
        Self { layer, initial_state, is_full_copy, owners }
    }

    /// Its directory.
    pub(crate) const fn directory(&self) -> &Dir {
        &self.layer
    }

    /// The state of the workspace before the changes.
    pub(crate) const fn initial_state(&self) -> &InitialState {
        &self.initial_state
    }

    /// The changes where they are; `None` for a full copy, in which they are mixed with other files,
    /// and for a layer with renamed directories, whose content is elsewhere.
    pub(crate) fn in_place(self) -> Result<Option<ChangesInPlace>> {
        if self.is_full_copy || renamed::has_renamed(&self.layer).map_err(not_filled)? {
            return Ok(None);
        }
        // The marks of the overlay record what was removed.
        let changes = WorkspaceChanges { since: self.initial_state.since, removed: Vec::new() };
        Ok(Some(ChangesInPlace { layer: self.layer, changes }))
    }

    /// Copies the changes to an empty directory.
    pub(crate) fn gather(&self, to: &Dir) -> Result<WorkspaceChanges> {
        let Self {
            layer,
            initial_state: InitialState { host, since, copied },
            is_full_copy: whole,
            owners,
        } = self;
        let open_host = || {
            let failed = |source| Error::Host { path: host.display().to_string(), source };
            let real = std::fs::canonicalize(host).map_err(failed)?;
            Dir::open(&real).map_err(|error| failed(error.into()))
        };
        let removed = if *whole {
            let directory = open_host()?;
            let original = Original { directory: &directory, since: *since, copied: *copied };
            layer::copy_changed(layer, to, *owners, original).map_err(not_copied)?
        } else {
            // The size was limited when it was written, and is limited by the disk.
            let removed = layer::copy_listed(layer, to, *owners).map_err(not_copied)?;
            if renamed::has_renamed(to).map_err(not_filled)? {
                renamed::fill(to, &open_host()?, u64::MAX).map_err(not_filled)?;
            }
            removed
        };
        Ok(WorkspaceChanges { since: *since, removed })
    }
}

/// The error for renamed directories whose content could not be copied.
fn not_filled(error: renamed::Error) -> Error {
    match &error {
        renamed::Error::Entry { source, .. } if source.errno() == Some(Errno::NOSPC) => {
            Error::Exhausted(format!("cannot copy the changes: {error}"))
        }
        _ => data("a layer", io::Error::other(error)),
    }
}

/// The error for a layer that could not be copied.
pub(crate) fn not_copied(error: layer::Error) -> Error {
    match error.kind() {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            Error::Exhausted(format!("cannot create a directory for the copy: {error}"))
        }
        Some(_) => data("a layer", io::Error::other(error)),
        None => Error::Invalid(format!("the files cannot be copied: {error}")),
    }
}

pub(crate) fn host(error: beneath::Error) -> Error {
    data("the directory of sandboxes", io::Error::other(error))
}

pub(crate) fn data(path: &str, source: io::Error) -> Error {
    Error::Host { path: path.to_owned(), source }
}
