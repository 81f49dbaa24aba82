//! What this server still has of sandboxes that were killed while it was given up: it is removed when the server is back.

use stockade_api::Result;
use stockade_core::event::Reason;
use stockade_core::{Code, Problem};

use crate::failure::{runtime_problem, store_problem};
use crate::inner::Inner;
use crate::operations::given_up::remains_prefix;
use crate::operations::lifecycle;
use crate::store::sandboxes::{self, SandboxRow};

/// Removes what this server still has of sandboxes that have ended while it was given up. What cannot be
/// removed now is removed by the next sweep.
pub(crate) async fn remove_all(inner: &Inner) {
    if inner.options.cluster.is_none() {
        return;
    }
    let (store, host) = (&*inner.store, inner.host());
    let ended = match sandboxes::ended_elsewhere(store, host, &remains_prefix()).await {
        Ok(ended) => ended,
        Err(problem) => {
            tracing::warn!(problem = problem.message, "what was given up is not known");
            return;
        }
    };
    for row in ended {
        if let Err(problem) = remove(inner, &row).await {
            tracing::warn!(sandbox = %row.id, problem = problem.message, "not removed after its end");
        }
    }
}

async fn remove(inner: &Inner, ended: &SandboxRow) -> Result<()> {
    let mut row = ended.clone();
    if let Some(id) = &ended.request.id {
        // Since its end, another one may have got its id.
        row.id = id.clone();
    }
    // While another one with its id is being started, the next sweep removes it.
    let Some(_driver) = inner.locks.try_lock(&row.id) else { return Ok(()) };
    let current = sandboxes::find(&*inner.store, &row.id).await?;
    let has_follower =
        current.is_some_and(|current| current.host == inner.host() && !current.state.is_terminal());
    if has_follower {
        // It was created without what was left in its place.
        if let Some(files) = &row.files {
            let removed = inner.with_deadline(inner.runtime(&row.runtime)?.remove_snapshot(files));
            removed.await.map_err(|error| runtime_problem(&error))?;
        }
    } else if let Some(leak) = lifecycle::release(inner, &row).await {
        return Err(Problem::new(Code::Unreachable, leak));
    }
    let reason = Reason::HostLost.as_str();
    let done = sandboxes::set_left_files(&ended.id, None, reason);
    inner.store.execute(vec![done]).await.map_err(store_problem)
}
