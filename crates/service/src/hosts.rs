//! Several servers on one database. Each announces its address and holds the sandboxes that it has created.
//! A server that has been silent for too long is given up by the others: its operations end without being
//! run, and its sandboxes are recorded as stopped. When it is back, it ends what was given up.

use std::sync::Arc;
use std::time::Duration;

use stockade_api::Result;
use stockade_core::event::Reason;
use stockade_core::{Code, Problem, SandboxId, State};
use stockade_durable::Engine;
use stockade_runtime::Runtime;

use crate::clock::now_ms;
use crate::failure::{store_problem, to_failure};
use crate::inner::Inner;
use crate::operations::{ending, watch};
use crate::store::hosts::{self, HostRow};
use crate::store::{audit, sandboxes};

/// How many renewals of its lease a server may miss before it counts as silent.
const MISSED_HEARTBEATS: u32 = 3;

/// Another server, as a request finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It renews its lease.
    Alive,
    /// It has not renewed its lease for this time.
    Silent(Duration),
}

/// Announces this server.
pub(crate) async fn announce(inner: &Inner) -> Result<()> {
    let Some(cluster) = &inner.options.cluster else { return Ok(()) };
    let row = HostRow {
        id: inner.host().to_owned(),
        address: cluster.address.clone(),
        holds_sandboxes: cluster.holds_sandboxes,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lost_at: None,
    };
    inner.store.execute(vec![hosts::announce(&row)]).await.map_err(store_problem)
}

/// Gives up silent servers, as long as the service's engine runs.
pub(crate) fn spawn(engine: &Engine, inner: &Arc<Inner>) {
    let Some(cluster) = inner.options.cluster.clone() else { return };
    let (engine, inner) = (engine.clone(), Arc::clone(inner));
    tokio::spawn(async move {
        let mut stopped = inner.stopped();
        loop {
            if let Err(problem) = give_up_silent(&engine, &inner, cluster.patience).await {
                // The next round tries it again.
                tracing::warn!(problem = problem.message, "a silent server was not given up");
            }
            let ended = stopped.wait_for(|stopped| *stopped);
            if tokio::time::timeout(cluster.heartbeat, ended).await.is_ok() {
                return;
            }
        }
    });
}

/// Whether a server renews its lease.
pub(crate) async fn presence(inner: &Inner, host: &str) -> Result<Presence> {
    let heartbeat = inner.options.cluster.as_ref().map_or(Duration::MAX, |it| it.heartbeat);
    let lease = inner.store.lease(host).await.map_err(store_problem)?;
    // One without a lease was never seen, or so long ago that it was forgotten.
    let silence = lease.map_or(Duration::MAX, |lease| {
        Duration::from_millis(u64::try_from(lease.silent_ms).unwrap_or(0))
    });
    let is_alive = lease.is_some_and(|lease| !lease.is_released)
        && silence < heartbeat.saturating_mul(MISSED_HEARTBEATS);
    Ok(if is_alive { Presence::Alive } else { Presence::Silent(silence) })
}

async fn give_up_silent(engine: &Engine, inner: &Inner, patience: Duration) -> Result<()> {
    // One read, however many servers there are: each of them does that.
    let silent = inner.store.silent(patience).await.map_err(store_problem)?;
    for id in silent.iter().filter(|id| *id != inner.host()) {
        let host = hosts::find(&*inner.store, id).await?;
        if host.is_some_and(|host| host.lost_at.is_none()) {
            give_up(engine, inner, id, patience).await?;
        }
    }
    Ok(())
}

/// Gives up a server, unless it is alive or was given up before. All is recorded in one transaction, with
/// the end of its lease: a server that was only paused writes nothing more.
async fn give_up(engine: &Engine, inner: &Inner, host: &str, patience: Duration) -> Result<()> {
    let mut statements = vec![hosts::give_up(host)];
    for mut row in sandboxes::active(&*inner.store, host).await? {
        if row.state == State::Creating {
            // What its server may have made of it has no record, and is removed when that is back.
            statements.push(sandboxes::remove(&row.id, row.generation));
            continue;
        }
        row.schedule_removal(now_ms());
        let operation = format!("given-up:{}", row.unique_name());
        statements.extend(ending::stopped(&operation, &mut row, Reason::HostLost, None));
        statements.push(audit::by_server(&row, "stop", Reason::HostLost, inner.host()));
    }
    let problem = Problem::new(
        Code::Unreachable,
        "the server that ran the operation does not answer any more",
    )
    .because(format!("the server {host} has been silent for {} s", patience.as_secs()))
    .remedied_by("it is not known how far the operation came: look at the sandbox, then retry");
    // The watchers wait for their server: it needs them when it is back.
    let given_up =
        engine.abandon(host, patience, &[watch::NAME], to_failure(problem), statements).await;
    if let Some(ended) = given_up.map_err(store_problem)? {
        tracing::warn!(host, operations = ended.len(), "gave up a server that is silent");
    }
    Ok(())
}

/// Ends the processes of a sandbox that other servers have given up while this one was silent.
pub(crate) async fn end_if_given_up(inner: &Inner, runtime: &Arc<dyn Runtime>, id: &SandboxId) {
    // A sandbox that is being started is checked in the next sweep.
    let Some(_driver) = inner.locks.try_lock(id) else { return };
    let Ok(Some(row)) = sandboxes::find(&*inner.store, id).await else { return };
    let was_given_up = row.state == State::Stopped
        && row.reason.as_deref() == Some(Reason::HostLost.as_str())
        && row.host == inner.host();
    if was_given_up {
        inner.leave(id).await;
        // A failed attempt is repeated in the next sweep.
        let _ = inner.with_deadline(runtime.end(id)).await;
    }
}
