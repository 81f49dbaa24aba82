//! Which images sandboxes use: those with files by their records, and those that were not started yet
//! by the rows of the server.

use stockade_api::{Empty, ListSandboxes, Sandbox};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem, State};
use stockade_image::{InUse, Reference, Store};

use crate::args::sandbox::ServerMode;
use crate::commands::sandbox::{STATES, list_all};
use crate::problem::Failure;
use crate::registry::store_problem;
use crate::remote;

/// The database of the server: without it, there is no persistent sandbox.
const DATABASE: &str = "stockade.db";

/// The manifests that sandboxes use, each with the name of one of them.
///
/// # Errors
/// The server cannot be asked: then nothing may be removed.
pub(super) fn in_use(data: &DataDir, store: &Store) -> Result<InUse, Failure> {
    let mut used = stockade_runtime_native::images_in_use(data.path()).map_err(|error| {
        Problem::new(Code::Io, "cannot tell which images are used").because(error.to_string())
    })?;
    if !data.path().join(DATABASE).exists() {
        return Ok(used);
    }
    let records = store.list().map_err(|error| store_problem(&error))?;
    let (list, snapshots) = remote::with(ServerMode { in_process: false }, async |remote| {
        let snapshots = remote.sandboxes.snapshots(remote.caller(), Empty {}).await?;
        let states = STATES.to_vec();
        let list = list_all(&remote, ListSandboxes { states, ..ListSandboxes::default() }).await?;
        Ok((list, snapshots))
    })?;
    let has_snapshot =
        |sandbox: &Sandbox| snapshots.iter().any(|snapshot| snapshot.sandbox_id == sandbox.id);
    // Of one that was terminated, only snapshots need the image.
    let list = list.into_iter().filter(|it| it.state != State::Terminated || has_snapshot(it));
    for sandbox in list {
        let Ok(reference) = sandbox.image.parse::<Reference>() else { continue };
        if let Some(digest) = reference.digest() {
            used.entry(digest.clone()).or_insert_with(|| sandbox.id.to_string());
        }
        for record in records.iter().filter(|record| record.answers(&reference)) {
            used.entry(record.digest.clone()).or_insert_with(|| sandbox.id.to_string());
        }
    }
    Ok(used)
}
