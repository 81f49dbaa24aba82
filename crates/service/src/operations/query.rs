//! `get_status`, `list`: what is looked at and not recorded.

use std::time::Duration;

use stockade_api::{Caller, GetSandbox, ListSandboxes, Metrics, Result, Sandbox, SandboxList};
use stockade_core::State;
use stockade_durable::Value;
use stockade_runtime::{Error, Usage};

use crate::failure::no_sandbox;
use crate::guard::Owned;
use crate::row::SandboxRow;
use crate::service::Service;

/// How many sandboxes a list has that does not say.
const LIMIT: u32 = 1000;

/// How long it may take to look at what a sandbox uses.
const LOOK: Duration = Duration::from_secs(10);

/// What is known of a sandbox, also of a terminated one.
pub(crate) async fn get(
    service: &Service,
    caller: &Caller,
    request: GetSandbox,
) -> Result<Sandbox> {
    let owned = Owned::check(&*service.inner.store, &caller.owner, &request.id).await?;
    let mut sandbox = owned.to_sandbox(None);
    let is_there = matches!(owned.state, State::Running | State::Paused);
    if let Some(network) = &owned.request.network {
        let inner = &service.inner;
        let mut reached = inner.egress.reached(&*inner.store, &owned.id, network).await?;
        reached.closed.take_if(|_| !is_there);
        sandbox.network = Some(reached);
    }
    if is_there
        && let Ok(runtime) = service.inner.runtime(&owned.runtime)
        && let Ok(status) = runtime.inspect(&owned.id).await
    {
        if request.metrics {
            let running = status.execs.iter().filter(|exec| exec.ending.is_none()).count();
            let used = tokio::time::timeout(LOOK, runtime.usage(&owned.id)).await;
            let used = used.unwrap_or(Err(Error::Deadline("look at what a sandbox uses")));
            sandbox.metrics = Some(metrics(running as u64, used));
        }
        sandbox.isolation = Some(status.isolation);
    }
    Ok(sandbox)
}

/// What a sandbox uses, as it is told.
fn metrics(commands: u64, used: std::result::Result<Usage, Error>) -> Metrics {
    let used = used.unwrap_or_else(|error| Usage {
        reasons: vec![format!("what it uses is not known: {error}")],
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
    let mut parameters: Vec<Value> = vec![caller.owner.as_str().into()];
    let mut condition = "WHERE owner_id = ?1".to_owned();
    if let Some(after) = &request.after {
        let row = SandboxRow::find(store, after).await?;
        let row = row.filter(|row| row.owner == caller.owner).ok_or_else(|| no_sandbox(after))?;
        parameters.extend([row.created_at.into(), after.as_str().into()]);
        condition.push_str(" AND (created_at < ?2 OR (created_at = ?2 AND id < ?3))");
    }
    if request.states.is_empty() {
        condition.push_str(" AND status <> 'terminated'");
    } else {
        let states: Vec<_> =
            request.states.iter().map(|state| format!("'{}'", state.as_str())).collect();
        condition.push_str(&format!(" AND status IN ({})", states.join(", ")));
    }
    for (name, value) in &request.metadata {
        parameters.extend([name.as_str().into(), value.as_str().into()]);
        let (name, value) = (parameters.len() - 1, parameters.len());
        // What cannot be read has no metadata.
        condition.push_str(&format!(
            " AND EXISTS (SELECT 1 FROM json_each(iif(json_valid(metadata), metadata, '{{}}')) \
             WHERE key = ?{name} AND value = ?{value})"
        ));
    }
    // One more tells whether there are more.
    parameters.push(i64::from(limit + 1).into());
    let last = parameters.len();
    condition.push_str(&format!(" ORDER BY created_at DESC, id DESC LIMIT ?{last}"));
    let rows = SandboxRow::select(store, &condition, parameters).await?;
    let sandboxes: Vec<_> =
        rows.iter().take(limit as usize).map(|row| row.to_sandbox(None)).collect();
    let more = rows.len() > sandboxes.len();
    Ok(SandboxList { sandboxes, more })
}
