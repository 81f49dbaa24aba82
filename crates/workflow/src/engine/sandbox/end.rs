//! How the sandboxes of a finished run are ended.

use std::path::Path;
use std::sync::Arc;

use super::handle::SandboxHandle;
use super::nested::NestedCleanup;
use crate::engine::clock::now_ms;
use crate::engine::state::EngineState;
use crate::store::runs;
use crate::store::sandboxes::{self, OpenSandbox, Stage};

/// Ends the sandboxes of a run and of its descendants.
pub(crate) async fn end_all(
    state: &EngineState,
    owner: &str,
    run: &str,
) -> Result<(), stockade_durable::Error> {
    let Some(sandboxes) = &state.options.sandboxes else { return Ok(()) };
    let file = runs::find(state.store(), run).await?.map(|row| row.run.file).unwrap_or_default();
    let root = state.options.project_of(Path::new(&file));
    for OpenSandbox { run, key, name } in sandboxes::list_open(state.store(), run).await? {
        // The sandboxes nested in it end first.
        NestedCleanup { state, owner, root: &root }.end(&run, &name).await;
        if let Ok(handle) = SandboxHandle::of(Arc::clone(sandboxes), owner, &name) {
            handle.end_for_good().await;
        }
        let end = sandboxes::end(&run, &key, Stage::Cancelled, now_ms());
        state.store().execute(vec![end]).await?;
    }
    Ok(())
}
