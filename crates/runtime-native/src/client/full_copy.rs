//! Complete trees as the initial layers of a sandbox on a host without overlays: plain copies of
//! its lower layers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_bundle::beneath::Dir;
use stockade_bundle::view::{self, Ownership};
use stockade_core::SandboxSpec;
use stockade_core::sandbox::Root;
use stockade_jail::{Identity, Range};

use super::call::Client;
use super::files::blocking;
use super::snapshot::{Prepared, UPPER, WORKSPACE, make_dir};
use crate::wire::{InitialState, Layers, LowerLayer};
use crate::workspace_layer::host;
use stockade_runtime::{Error, Result};

/// Copies the trees. `why` is the reason why overlays are unavailable.
pub(super) async fn prepare(
    client: &Arc<Client>,
    spec: &SandboxSpec,
    below: LowerLayer,
    why: String,
) -> Result<Prepared> {
    let (client, root, workspace) = (client.clone(), spec.root.clone(), spec.workspace.clone());
    blocking(move || {
        let exhausted = |error: &dyn std::error::Error| Error::Exhausted(error.to_string());
        let identity = Identity::for_caller().map_err(|error| exhausted(&error))?;
        let range = identity.range();
        let ownership =
            range.map(|range| Ownership { host_start: range.start, count: range.count });
        let staged = client.directory.stage().map_err(host)?;
        let lower = match (&root, below.skeleton) {
            (Root::Host, Some(name)) => client.directory.skeletons().map_err(host)?.join(name),
            (Root::Directory(path), _) => path.clone(),
            _ => return Err(Error::Invalid("there is no root to copy".to_owned())),
        };
        copy(&lower, &make_dir(&staged.dir, UPPER)?, ownership)?;
        let begun = match workspace {
            None => None,
            Some(workspace) => {
                let mode = staged.dir.stat_self().map_err(host)?.mode;
                let since = view::boundary_time(&staged.dir, mode)
                    .map_err(|e| not_copied(&workspace.host, e))?;
                copy(&workspace.host, &make_dir(&staged.dir, WORKSPACE)?, ownership)?;
                let copied = view::later_stamp(&staged.dir);
                let copied = Some(copied.map_err(|e| not_copied(&workspace.host, e))?);
                Some(InitialState { host: workspace.host, since, copied })
            }
        };
        let lock = range.map_or(Ok(None), Range::lock).map_err(|error| exhausted(&error))?;
        let layers = Layers {
            staged: staged.name.clone(),
            root,
            range_start: range.map(|range| range.start),
            begun,
            whole: Some(why),
        };
        Ok(Prepared::new(layers, lock, staged))
    })
    .await
}

fn copy(from: &Path, to: &Dir, ownership: Option<Ownership>) -> Result<()> {
    let failed = |source| Error::Host { path: from.display().to_string(), source };
    let real: PathBuf = std::fs::canonicalize(from).map_err(failed)?;
    let source = Dir::open(&real).map_err(|error| failed(error.into()))?;
    view::copy_whole(&source, to, ownership).map_err(|error| not_copied(from, error))
}

fn not_copied(path: &Path, error: view::Error) -> Error {
    Error::Host { path: path.display().to_string(), source: io::Error::other(error) }
}
