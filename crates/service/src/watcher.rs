//! The watcher of each sandbox (seed 002, "Lifecycle watcher"): a workflow with an id of its own
//! that looks at the sandbox every ten seconds, and at the moments that matter, until it has ended.
//!
//! The loop is one step: after a restart it begins anew instead of replaying every look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_api::IdleAction;
use stockade_core::event::{Ended, Payload, Reason};
use stockade_core::{SandboxId, State};
use stockade_durable::{Builder, Context, Engine, Failure, StartOptions, Step, WorkflowId};
use stockade_runtime::Error;
use tokio::sync::Notify;

use crate::clock::now_ms;
use crate::events;
use crate::failure::{of_store, to_failure};
use crate::operations::life;
use crate::row::SandboxRow;
use crate::service::Inner;

const NAME: &str = "sandbox.watch";

/// The sandbox that a watcher watches.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Watched {
    id: SandboxId,
}

/// What wakes watchers before their time.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<HashMap<SandboxId, Arc<Notify>>>);

impl Wakers {
    fn of(&self, id: &SandboxId) -> Arc<Notify> {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.entry(id.clone()).or_default().clone()
    }

    fn forget(&self, id: &SandboxId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Inner {
    /// Has a sandbox looked at now.
    pub(crate) fn wake(&self, id: &SandboxId) {
        self.wakers.of(id).notify_one();
    }
}

pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    let inner = inner.clone();
    builder.workflow(NAME, move |context: Context, watched: Watched| {
        let inner = inner.clone();
        async move { watch(&inner, &context, &watched.id).await }
    })
}

fn options(id: &SandboxId) -> Result<StartOptions, Failure> {
    let id = WorkflowId::new(id.watcher()).map_err(|error| to_failure(of_store(error)))?;
    Ok(StartOptions { id: Some(id), ..StartOptions::default() })
}

/// Starts the watcher of a sandbox as a child of a workflow. There is only ever one.
pub(crate) async fn start(context: &Context, id: &SandboxId) -> Result<(), Failure> {
    context.child(NAME, &Watched { id: id.clone() }, options(id)?).await.map(drop)
}

/// Sees to it that a sandbox has its watcher.
pub(crate) async fn ensure(engine: &Engine, id: &SandboxId) -> Result<(), Failure> {
    let watched = Watched { id: id.clone() };
    let started = engine.start(NAME, &watched, options(id)?).await;
    started.map(drop).map_err(|error| to_failure(of_store(error)))
}

async fn watch(inner: &Arc<Inner>, context: &Context, id: &SandboxId) -> Result<(), Failure> {
    let waker = inner.wakers.of(id);
    let watch = async |_: Step| {
        loop {
            match poll(inner, id, &waker).await {
                Verdict::Ended => return Ok(()),
                Verdict::Terminate(reason) => terminate(inner, context, id, reason).await?,
                Verdict::PauseIdle => pause(inner, context, id).await?,
            }
        }
    };
    context.volatile("watch", watch).await?;
    inner.wakers.forget(id);
    Ok(())
}

/// What a watcher has to do something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing is left to be watched.
    Ended,
    /// It has to end.
    Terminate(Reason),
    /// Nobody uses it.
    PauseIdle,
}

/// Looks again and again, until there is something to do.
async fn poll(inner: &Inner, id: &SandboxId, waker: &Notify) -> Verdict {
    loop {
        let mut wait = inner.options.watch_interval;
        // A store that cannot be read now is read at the next look.
        if let Ok(found) = SandboxRow::find(&*inner.store, id).await {
            let Some(row) = found.filter(|row| !row.state.is_terminal()) else {
                return Verdict::Ended;
            };
            let now = now_ms();
            if let Some(end) = row.expires_at {
                if end <= now {
                    return Verdict::Terminate(Reason::Expired);
                }
                wait = wait.min(until(end, now));
            }
            if let Some(idle) = row.idle_timeout_ms
                && row.state == State::Running
            {
                let last = inner.activity.last_ms(id).unwrap_or(row.last_used_at);
                let end = last.max(row.last_used_at).saturating_add(idle);
                if end <= now {
                    return match row.on_idle {
                        IdleAction::Pause => Verdict::PauseIdle,
                        IdleAction::Terminate => Verdict::Terminate(Reason::Idle),
                    };
                }
                wait = wait.min(until(end, now));
            }
            if matches!(row.state, State::Running | State::Paused) && gone(inner, &row).await {
                return Verdict::Terminate(Reason::Gone);
            }
        }
        let _ = tokio::time::timeout(wait, waker.notified()).await;
    }
}

fn until(end: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(end - now).unwrap_or(0))
}

/// Whether the runtime says for certain that it does not have the sandbox, or that nothing lives in
/// it. That it could not be asked says nothing.
async fn gone(inner: &Inner, row: &SandboxRow) -> bool {
    let Ok(runtime) = inner.runtime(&row.runtime) else { return false };
    match runtime.inspect(&row.id).await {
        Ok(status) => status.state == stockade_runtime::State::Ended,
        Err(Error::NoSandbox(_)) => true,
        Err(_) => false,
    }
}

/// Ends the sandbox, unless it was renewed, used or changed in the meantime.
async fn terminate(
    inner: &Arc<Inner>,
    context: &Context,
    id: &SandboxId,
    reason: Reason,
) -> Result<(), Failure> {
    let _driver = inner.locks.lock(id).await;
    let found = SandboxRow::find(&*inner.store, id).await.map_err(to_failure)?;
    let Some(mut row) = found.filter(|row| !row.state.is_terminal()) else { return Ok(()) };
    let still = match reason {
        Reason::Expired => row.expires_at.is_some_and(|end| end <= now_ms()),
        Reason::Gone => {
            matches!(row.state, State::Running | State::Paused) && gone(inner, &row).await
        }
        _ => true,
    };
    if still {
        let leak = life::release(inner, &row).await;
        let statements = life::ended(context.id().as_str(), &mut row, reason, leak);
        let done = inner.store.execute(statements).await;
        done.map_err(|error| to_failure(of_store(error)))?;
    }
    Ok(())
}

/// Pauses a sandbox that nobody uses; the next use resumes it.
async fn pause(inner: &Arc<Inner>, context: &Context, id: &SandboxId) -> Result<(), Failure> {
    let _driver = inner.locks.lock(id).await;
    let found = SandboxRow::find(&*inner.store, id).await.map_err(to_failure)?;
    let Some(mut row) = found.filter(|row| row.state == State::Running) else { return Ok(()) };
    let Ok(runtime) = inner.runtime(&row.runtime) else { return Ok(()) };
    if runtime.pause(id).await.is_err() {
        // It is tried again at the next look.
        tokio::time::sleep(Duration::from_secs(1)).await;
        return Ok(());
    }
    row.idle_paused = true;
    let change = row.change(State::Paused, Some(Reason::Idle.as_str().to_owned()));
    // Each pause is an event of its own: the generation tells them apart.
    let operation = format!("{}:{}", context.id(), row.generation);
    let payload = Payload::SandboxPaused(Ended { reason: Reason::Idle });
    let event = events::of(&operation, &row, payload);
    let done = inner.store.execute(vec![change, event]).await;
    done.map_err(|error| to_failure(of_store(error)))
}
