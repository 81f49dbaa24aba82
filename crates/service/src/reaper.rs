//! The reaper: it removes from a runtime what has no record, ends commands that no operation waits
//! for, and ensures that every live sandbox has its watcher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stockade_core::{ExecId, SandboxId, State};
use stockade_durable::{Engine, Filter, Status as WorkflowStatus, WorkflowId};
use stockade_runtime::{Runtime, SnapshotInfo, Status};

use crate::failure::{is_unrecorded, store_problem};
use crate::hosts;
use crate::inner::Inner;
use crate::operations::{self, execute, lifecycle, watch};
use crate::possessions;
use crate::remains;
use crate::row::SERVICE_LABEL;
use crate::store::sandboxes::{self, SandboxRow};

/// The interval of sweeps.
const INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps now and every minute, as long as the service's engine runs.
pub(crate) fn spawn(engine: &Engine, inner: &Arc<Inner>) {
    let (engine, inner) = (engine.clone(), Arc::clone(inner));
    tokio::spawn(async move {
        let mut stopped = inner.stopped();
        loop {
            sweep(&engine, &inner).await;
            let ended = stopped.wait_for(|stopped| *stopped);
            if tokio::time::timeout(INTERVAL, ended).await.is_ok() {
                break;
            }
        }
    });
}

/// Sweeps once. Failed work is repeated in the next sweep.
pub(crate) async fn sweep(engine: &Engine, inner: &Inner) {
    if let Some(reserve) = &inner.reserve {
        reserve.fill();
    }
    remains::remove_all(inner).await;
    possessions::remove_given_up(inner).await;
    let ours = BTreeMap::from([(SERVICE_LABEL.to_owned(), inner.id.clone())]);
    for runtime in inner.runtimes.values() {
        // The runtime's sandboxes are listed before the records are read. Records are written
        // first, so no sandbox that is being created is taken for lost.
        if let Ok(statuses) = inner.with_deadline(runtime.list(&ours)).await {
            for status in &statuses {
                reap(inner, runtime, &status.id).await;
                if status.state != stockade_runtime::State::Ended {
                    hosts::end_if_given_up(inner, runtime, &status.id).await;
                }
            }
            end_commands(engine, inner, runtime, &statuses).await;
        }
        if let Ok(snapshots) = inner.with_deadline(runtime.snapshots()).await {
            for snapshot in snapshots {
                reap_snapshot(engine, inner, runtime, &snapshot).await;
            }
        }
    }
    let Ok(live) = sandboxes::live(&*inner.store, inner.host()).await else { return };
    let ids: Vec<_> = live.iter().map(|(id, _)| id.clone()).collect();
    inner.egress.retain(&ids);
    inner.ssh_agents.retain(&ids);
    for (id, incarnation) in &live {
        let _ = watch::ensure(engine, id, incarnation).await;
    }
}

/// Removes a sandbox from its runtime unless its record says that it should be there.
async fn reap(inner: &Inner, runtime: &Arc<dyn Runtime>, id: &SandboxId) {
    let should_be = |row: &SandboxRow| {
        // An unreadable record may belong to any sandbox. A stopped one without a snapshot has its
        // files in the runtime.
        row.host == inner.host()
            && (row.damaged
                || matches!(row.state, State::Creating | State::Running | State::Paused)
                || row.state == State::Stopped && row.files.is_none())
    };
    match sandboxes::find(&*inner.store, id).await {
        Ok(Some(row)) if should_be(&row) => return,
        Err(_) => return,
        _ => {}
    }
    // A sandbox that is being started is checked in the next sweep.
    let Some(_driver) = inner.locks.try_lock(id) else { return };
    if let Ok(found) = sandboxes::find(&*inner.store, id).await
        && !found.as_ref().is_some_and(should_be)
    {
        inner.leave(id).await;
        let _ = inner.with_deadline(runtime.cleanup(id)).await;
    }
}

/// Ends the commands whose operations have ended without them, and acknowledges those that are
/// recorded.
async fn end_commands(
    engine: &Engine,
    inner: &Inner,
    runtime: &Arc<dyn Runtime>,
    statuses: &[Status],
) {
    if statuses.iter().all(|status| status.execs.is_empty()) {
        return;
    }
    let Ok(awaited) = awaited_commands(engine).await else { return };
    for status in statuses {
        for exec in status.execs.iter().filter(|exec| !awaited.contains(&exec.id)) {
            if exec.ending.is_none() {
                let _ = inner.with_deadline(runtime.kill(&status.id, &exec.id)).await;
            }
            if is_unrecorded(&exec.id) {
                // Only the sandbox has its output. The command may have ended, and its operation too, since
                // the status was read.
                continue;
            }
            let _ = inner.with_deadline(runtime.acknowledge(&status.id, &exec.id)).await;
        }
    }
}

/// The commands of operations that have not ended.
async fn awaited_commands(engine: &Engine) -> stockade_api::Result<BTreeSet<ExecId>> {
    let mut awaited = BTreeSet::new();
    for name in operations::COMMANDS {
        for status in [WorkflowStatus::Pending, WorkflowStatus::Enqueued] {
            let filter =
                Filter { name: Some(name.to_owned()), status: Some(status), ..Filter::default() };
            for info in engine.list(filter).await.map_err(store_problem)? {
                awaited.insert(execute::exec_id_for(&info.id)?);
                awaited.insert(execute::unrecorded_exec_id_for(&info.id)?);
            }
        }
    }
    Ok(awaited)
}

/// Removes a snapshot of one of our sandboxes that neither a record nor a running operation refers
/// to.
async fn reap_snapshot(
    engine: &Engine,
    inner: &Inner,
    runtime: &Arc<dyn Runtime>,
    found: &SnapshotInfo,
) {
    // In this order: the end of a stop and its stored files are recorded together.
    if let Some(Ok(stop)) = found.id.as_str().strip_prefix(lifecycle::STOPPED).map(WorkflowId::new)
    {
        match engine.info(&stop).await {
            Ok(info) if info.as_ref().is_none_or(|info| info.status.is_terminal()) => {}
            _ => return,
        }
    }
    // A snapshot of a sandbox that is not ours is not ours either.
    let is_unknown =
        sandboxes::is_unknown_snapshot(&*inner.store, inner.host(), (&found.sandbox, &found.id))
            .await;
    if is_unknown == Ok(true) {
        let _ = inner.with_deadline(runtime.remove_snapshot(&found.id)).await;
    }
}
