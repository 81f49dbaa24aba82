//! How the sandboxes of a run end that is over.

use std::path::Path;
use std::sync::Arc;

use super::handle::SandboxHandle;
use super::nested::NestedCleanup;
use crate::engine::clock::now_ms;
use crate::engine::state::EngineState;
use crate::store::runs;
use crate::store::sandboxes::{self, OpenSandbox, Stage};

/// Ends the sandboxes of a run and of the runs below it.
pub(crate) async fn end_all(
    state: &EngineState,
    owner: &str,
    run: &str,
) -> Result<(), stockade_durable::Error> {
    let Some(sandboxes) = &state.options.sandboxes else { return Ok(()) };
    let file = runs::find(state.store(), run).await?.map(|row| row.run.file).unwrap_or_default();
    let root = state.options.project_of(Path::new(&file));
    for OpenSandbox { run, key, name } in sandboxes::list_open(state.store(), run).await? {
        // The sandboxes within it end before it.
        NestedCleanup { state, owner, root: &root }.end(&run, &name).await;
        if let Ok(handle) = SandboxHandle::of(Arc::clone(sandboxes), owner, &name) {
            handle.end_for_good().await;
        }
        let end = sandboxes::end(&run, &key, Stage::Cancelled, now_ms());
        state.store().execute(vec![end]).await?;
    }
    Ok(())
}
