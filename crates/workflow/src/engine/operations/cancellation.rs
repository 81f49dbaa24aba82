//! The cancellation of runs.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{Result, RunStatus};
use stockade_core::OwnerId;
use stockade_durable::Status;

use crate::engine::clock::now_ms;
use crate::engine::problem::from_store;
use crate::engine::provider_cleanups::CancelGuard;
use crate::engine::workflows::Workflows;
use crate::engine::{run, sandbox};
use crate::store::runs::{self, UnfinishedRun};
use crate::store::sandboxes::OpenSandbox;
use crate::store::{cancel, events, sandboxes, tasks};

/// How long a cancellation waits at most for the cleanup of providers.
const LONGEST_CLEANUP: Duration = Duration::from_secs(30);

impl Workflows {
    /// Waits until this process has claimed the cleanup of all attempts that providers have started, as
    /// the run does when it continues after a crash. The run restarts no attempt until the guard is
    /// dropped.
    pub(super) async fn claim_cleanups(&self, id: &str) -> Result<CancelGuard<'_>> {
        let (store, cleanups) = (self.state.store(), &self.state.provider_cleanups);
        let cancelling = cleanups.start_cancel(id);
        let deadline = tokio::time::Instant::now() + LONGEST_CLEANUP;
        let mut changes = cleanups.changes();
        loop {
            let tries =
                sandboxes::open_provider_attempt_names(store, id).await.map_err(from_store)?;
            let are_all = tries.iter().all(|name| cleanups.has_claimed(name));
            if are_all || tokio::time::timeout_at(deadline, changes.next()).await.is_err() {
                return Ok(cancelling);
            }
        }
    }

    /// Ends the sandboxes and the rows of a cancelled run.
    pub(super) async fn end_cancelled(&self, owner: &OwnerId, id: &str) -> Result<()> {
        self.state.secrets.remove(id);
        // The order matters: a run that is displayed as cancelled has left nothing.
        if let Some(executor) = &self.state.executor {
            executor.end(owner, id).await;
        }
        let store = self.state.store();
        let sandboxes = sandboxes::list_open(store, id).await.map_err(from_store)?;
        let open = tasks::list(store, id).await.map_err(from_store)?;
        sandbox::end_all(&self.state, owner.as_str(), id).await.map_err(from_store)?;
        let now = now_ms();
        let mut seq = events::next_seq(store, id).await.map_err(from_store)?;
        let mut insert = |mut event: Value| {
            event["runId"] = id.into();
            event["timestampMs"] = now.into();
            seq += 1;
            events::insert(id, seq - 1, now, &event)
        };
        let mut told = Vec::new();
        for OpenSandbox { run, key, .. } in sandboxes.iter().filter(|open| open.run == id) {
            told.push(insert(json!({
                "type": "SandboxCancelled", "sandboxId": key.node, "nodeId": key.node,
                "iteration": key.iteration, "runId": run,
            })));
        }
        for task in open.iter().filter(|task| task.finished_at.is_none()) {
            told.push(insert(json!({
                "type": "NodeCancelled", "nodeId": task.id, "iteration": task.iteration,
                "attempt": task.attempts,
            })));
        }
        told.push(insert(json!({ "type": "RunCancelled" })));
        let error = json!({ "code": "CANCELLED", "message": "the run was cancelled" });
        let [tasks, runs] = cancel::cancel_descendants(id, now);
        let mut statements = vec![
            tasks,
            runs,
            tasks::cancel(id, now),
            runs::end(id, RunStatus::Cancelled, now, None, Some(&error)),
        ];
        statements.extend(told);
        self.state.store().execute(statements).await.map_err(from_store)
    }

    /// Ends the cancelled runs whose process was killed before it could end them.
    pub(in super::super) async fn repair(&self) -> Result<()> {
        let unfinished = runs::list_unfinished(self.state.store()).await.map_err(from_store)?;
        for UnfinishedRun { id, owner, generation } in unfinished {
            let workflow = run::workflow_id(&id, generation).map_err(from_store)?;
            let known = self.engine.info(&workflow).await.map_err(from_store)?;
            let owner = OwnerId::new(owner);
            if let (Some(info), Ok(owner)) = (known, owner)
                && info.status == Status::Cancelled
            {
                self.end_cancelled(&owner, &id).await?;
            }
        }
        Ok(())
    }
}
