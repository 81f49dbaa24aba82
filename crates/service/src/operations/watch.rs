//! The watcher of each sandbox (FireFlow, "Lifecycle watcher"): a workflow with its own id that
//! checks the sandbox every ten seconds, and at the times that matter, until the sandbox has ended.
//!
//! The loop is one step: after a restart it starts again instead of replaying every check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stockade_api::IdleAction;
use stockade_core::event::{EndReason, Payload, Reason};
use stockade_core::{Problem, SandboxId, State};
use stockade_durable::{Builder, Context, Engine, Failure, StartOptions, Status, Step, WorkflowId};
use stockade_runtime::Error;

use super::lifecycle;
use crate::clock::now_ms;
use crate::events;
use crate::failure::{runtime_problem, store_problem, to_failure};
use crate::inner::Inner;
use crate::store::sandboxes::{self, SandboxRow};
use crate::wakers::Waker;

const NAME: &str = "sandbox.watch";

/// The sandbox that a watcher watches.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WatchInput {
    id: SandboxId,
}

pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    let inner = inner.clone();
    builder.workflow(NAME, move |context: Context, watched: WatchInput| {
        let inner = inner.clone();
        async move { watch(&inner, &context, &watched.id).await }
    })
}

fn options(id: &SandboxId) -> Result<StartOptions, Failure> {
    let id = WorkflowId::new(id.watcher_id())
        .map_err(|error| to_failure(store_problem(error.into())))?;
    Ok(StartOptions { id: Some(id), ..StartOptions::default() })
}

/// Starts the watcher of a sandbox as a child of a workflow, as its next step. A sandbox has only
/// one.
pub(crate) fn start(
    context: &Context,
    id: &SandboxId,
) -> impl Future<Output = Result<(), Failure>> + Send {
    let started =
        options(id).map(|options| context.child(NAME, &WatchInput { id: id.clone() }, options));
    async move { started?.await.map(drop) }
}

/// Ensures that a sandbox has its watcher.
pub(crate) async fn ensure(engine: &Engine, id: &SandboxId) -> Result<(), Failure> {
    let watched = WatchInput { id: id.clone() };
    let started = engine.start(NAME, &watched, options(id)?).await;
    let handle = started.map_err(|error| to_failure(store_problem(error)))?;
    let status = handle.get_status().await.map_err(|error| to_failure(store_problem(error)))?;
    if matches!(status, Status::Cancelled | Status::MaxRecoveryAttemptsExceeded) {
        // Each restart of the server counts as an attempt.
        let resumed = engine.resume(handle.workflow_id()).await;
        resumed.map_err(|error| to_failure(store_problem(error)))?;
    }
    Ok(())
}

async fn watch(inner: &Arc<Inner>, context: &Context, id: &SandboxId) -> Result<(), Failure> {
    let waker = inner.wakers.get(id);
    let watch = async |_: Step| {
        loop {
            let verdict = poll(inner, context, id, &waker).await?;
            let done = match verdict {
                Verdict::Ended => return Ok(()),
                Verdict::Terminate(reason) => terminate(inner, context, id, reason).await,
                Verdict::PauseIdle => pause(inner, context, id).await,
            };
            if done.is_err() {
                // The next check tries it again.
                context.wait(tokio::time::sleep(inner.options.watch_interval)).await?;
            }
        }
    };
    context.volatile("watch", watch).await?;
    inner.wakers.forget(id);
    Ok(())
}

/// The reason why a watcher has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The sandbox has ended.
    Ended,
    /// It must be terminated.
    Terminate(Reason),
    /// It is idle.
    PauseIdle,
}

/// Checks repeatedly, until there is something to do.
async fn poll(
    inner: &Inner,
    context: &Context,
    id: &SandboxId,
    waker: &Waker,
) -> Result<Verdict, Failure> {
    let interval = inner.options.watch_interval;
    let mut last_inspected: Option<Instant> = None;
    loop {
        let mut wait = interval;
        // If the store cannot be read now, the next check reads it.
        if let Ok(found) = sandboxes::find(&*inner.store, id).await {
            let Some(row) = found.filter(|row| !row.state.is_terminal()) else {
                return Ok(Verdict::Ended);
            };
            let now = now_ms();
            for (end, verdict) in due_verdicts(inner, &row) {
                if end <= now {
                    return Ok(verdict);
                }
                wait = wait.min(until(end, now));
            }
            let suspected = waker.take_suspicion();
            let is_due = last_inspected.is_none_or(|asked| asked.elapsed() >= interval);
            if suspected || is_due {
                last_inspected = Some(Instant::now());
                if is_gone(inner, context, &row).await {
                    return Ok(Verdict::Terminate(Reason::Gone));
                }
                inner.try_network(&row).await;
            } else if let Some(last_inspected) = last_inspected {
                wait = wait.min(interval.saturating_sub(last_inspected.elapsed()));
            }
        }
        let next = tokio::time::timeout(wait, waker.wait());
        // Woken or timed out: both cause the next check.
        let _ = context.wait(next).await?;
    }
}

/// The times of automatic changes of a sandbox, in milliseconds since 1970.
fn due_verdicts(inner: &Inner, row: &SandboxRow) -> Vec<(i64, Verdict)> {
    let mut ends = Vec::new();
    ends.extend(row.expires_at.map(|end| (end, Verdict::Terminate(Reason::Expired))));
    if let Some(idle) = row.idle_timeout_ms
        && row.state == State::Running
    {
        let last = inner.activity.last_ms(&row.id).unwrap_or(row.last_used_at);
        let verdict = match row.on_idle {
            IdleAction::Pause => Verdict::PauseIdle,
            IdleAction::Terminate => Verdict::Terminate(Reason::Idle),
        };
        ends.push((last.max(row.last_used_at).saturating_add(idle), verdict));
    }
    ends
}

fn until(end: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(end - now).unwrap_or(0))
}

/// Whether the runtime reports for certain that it does not have the sandbox, or that no process of
/// it is alive. A failed query does not count, nor does a sandbox that a running operation is
/// ending.
async fn is_gone(inner: &Inner, context: &Context, row: &SandboxRow) -> bool {
    if !matches!(row.state, State::Running | State::Paused) {
        return false;
    }
    let Ok(runtime) = inner.runtime(&row.runtime) else { return false };
    let gone = match inner.with_deadline(runtime.inspect(&row.id)).await {
        Ok(status) => status.state == stockade_runtime::State::Ended,
        Err(Error::NoSandbox(_)) => true,
        Err(_) => false,
    };
    gone && !lifecycle::is_ending(context.engine(), &row.id).await
}

/// The sandbox under its lock, if the state that was read without the lock is still valid.
async fn recheck(
    inner: &Inner,
    context: &Context,
    id: &SandboxId,
    seen: Verdict,
) -> Option<SandboxRow> {
    let found = sandboxes::find(&*inner.store, id).await.ok()?;
    let row = found.filter(|row| !row.state.is_terminal())?;
    let holds = match seen {
        Verdict::Terminate(Reason::Gone) => is_gone(inner, context, &row).await,
        seen => due_verdicts(inner, &row).into_iter().any(|end| end.1 == seen && end.0 <= now_ms()),
    };
    holds.then_some(row)
}

/// Ends the sandbox, unless it was renewed, used or changed in the meantime.
async fn terminate(
    inner: &Arc<Inner>,
    context: &Context,
    id: &SandboxId,
    reason: Reason,
) -> Result<(), Problem> {
    let _driver = inner.lock_sandbox(id).await?;
    let seen = Verdict::Terminate(reason);
    let Some(mut row) = recheck(inner, context, id, seen).await else { return Ok(()) };
    let leak = lifecycle::release(inner, &row).await;
    let statements = lifecycle::end_statements(context.id().as_str(), &mut row, reason, leak);
    inner.store.execute(statements).await.map_err(store_problem)
}

/// Pauses an idle sandbox; the next use resumes it.
async fn pause(inner: &Arc<Inner>, context: &Context, id: &SandboxId) -> Result<(), Problem> {
    let _driver = inner.lock_sandbox(id).await?;
    let seen = Verdict::PauseIdle;
    let Some(mut row) = recheck(inner, context, id, seen).await else { return Ok(()) };
    let runtime = inner.runtime(&row.runtime)?;
    let paused = inner
        .terminations
        .run_unless_terminated(id, inner.with_deadline(runtime.pause(id)))
        .await?;
    paused.map_err(|error| runtime_problem(&error))?;
    let change = row.change_to_idle();
    // Each pause is a separate event: the generation distinguishes them.
    let operation = format!("{}:{}", context.id(), row.generation);
    let payload = Payload::SandboxPaused(EndReason { reason: Reason::Idle });
    let event = events::statement(&operation, &row, payload);
    inner.store.execute(vec![change, event]).await.map_err(store_problem)
}
