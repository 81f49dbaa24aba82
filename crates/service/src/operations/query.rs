//! `get_status`, `list`: read-only operations, which are not recorded.

use std::time::Duration;

use stockade_api::{
    Caller, GetSandbox, ListSandboxes, Metrics, Network, NetworkStatus, Result, Sandbox,
    SandboxList,
};
use stockade_core::State;
use stockade_runtime::{Error, Usage};

use crate::failure::no_sandbox;
use crate::inner::Inner;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::store::sandboxes::{self, Selection};

/// The maximal number of listed sandboxes if the request has no limit.
const LIMIT: u32 = 1000;

/// How long it may take to measure what a sandbox uses.
const USAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The status of a sandbox, also of a terminated one.
pub(crate) async fn get(
    service: &Service,
    caller: &Caller,
    request: GetSandbox,
) -> Result<Sandbox> {
    let owned = OwnedSandbox::check(&*service.inner.store, &caller.owner, &request.id).await?;
    let mut sandbox = owned.to_sandbox(None);
    sandbox.published = service.inner.published.status(&owned.id, &owned.request.publish);
    let is_here = owned.host == service.inner.host();
    let is_there = is_here && matches!(owned.state, State::Running | State::Paused);
    if let Some(network) = owned.request.network.as_ref().filter(|_| is_here) {
        let inner = &service.inner;
        let mut status = network_status(inner, &owned, network).await?;
        status.closed.take_if(|_| !is_there);
        status.upstream_proxy.clone_from(&network.upstream_proxy);
        sandbox.network = Some(status);
    }
    if let Some(agent) = &mut sandbox.ssh_agent
        && owned.state == State::Running
    {
        agent.problem = service.inner.ssh_agents.problem(&owned.id);
    }
    if is_there
        && let Ok(runtime) = service.inner.runtime(&owned.runtime)
        && let Ok(status) = runtime.inspect(&owned.id).await
    {
        if request.metrics {
            let running = status.execs.iter().filter(|exec| exec.ending.is_none()).count();
            let used = tokio::time::timeout(USAGE_TIMEOUT, runtime.usage(&owned.id)).await;
            let used = used.unwrap_or(Err(Error::Deadline("read the resource usage of a sandbox")));
            sandbox.metrics = Some(metrics(running as u64, used));
        }
        sandbox.isolation = Some(status.isolation);
    }
    Ok(sandbox)
}

async fn network_status(
    inner: &Inner,
    owned: &OwnedSandbox,
    network: &Network,
) -> Result<NetworkStatus> {
    let bindings = owned.bindings()?;
    inner.egress.status(&*inner.store, &owned.id, network, &bindings).await
}

/// The public form of a sandbox's resource use.
fn metrics(commands: u64, used: std::result::Result<Usage, Error>) -> Metrics {
    let used = used.unwrap_or_else(|error| Usage {
        reasons: vec![format!("its resource usage is not known: {error}")],
        ..Usage::default()
    });
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Metrics {
        commands,
        memory_bytes: used.memory_bytes,
        cpu_ms: used.cpu_time.map(millis),
        processes: used.processes,
        disk_bytes: used.disk_bytes,
        reasons: used.reasons,
    }
}

/// The caller's sandboxes, the newest first.
pub(crate) async fn list(
    service: &Service,
    caller: &Caller,
    request: ListSandboxes,
) -> Result<SandboxList> {
    let store = &*service.inner.store;
    let limit = request.limit.unwrap_or(LIMIT).min(LIMIT);
    let after = match &request.after {
        None => None,
        Some(after) => {
            let row = sandboxes::find(store, after).await?;
            let row = row.filter(|row| row.owner == caller.owner);
            Some(row.ok_or_else(|| no_sandbox(after))?)
        }
    };
    let selection = Selection {
        owner: &caller.owner,
        after: after.as_ref(),
        states: &request.states,
        metadata: &request.metadata,
        // One more shows whether there are more.
        limit: limit + 1,
    };
    let rows = sandboxes::list(store, &selection).await?;
    let sandboxes: Vec<_> =
        rows.iter().take(limit as usize).map(|row| row.to_sandbox(None)).collect();
    let more = rows.len() > sandboxes.len();
    Ok(SandboxList { sandboxes, more })
}
