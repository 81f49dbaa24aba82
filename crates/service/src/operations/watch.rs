//! The watcher of each sandbox (FireFlow, "Lifecycle watcher"): a workflow with its own id that
//! checks the sandbox every ten seconds, and at the times that matter, until the sandbox has ended.
//!
//! The loop is one step: after a restart it starts again instead of replaying every check.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stockade_api::Caller;
use stockade_core::event::{EndReason, Payload, Reason};
use stockade_core::{Code, Problem, SandboxId, State};
use stockade_durable::{
    Builder, Context, Engine, Failure, StartOptions, Statement, Status, Step, WorkflowId,
};
use stockade_runtime::{EndCause, Error};

use super::collect::NextStep;
use super::due::{self, Verdict};
use super::{ending, lifecycle};
use crate::clock::now_ms;
use crate::events;
use crate::failure::{runtime_problem, store_problem, to_failure};
use crate::inner::Inner;
use crate::owned_sandbox::OwnedSandbox;
use crate::reserve::Reserve;
use crate::service::Service;
use crate::store::audit;
use crate::store::sandboxes::{self, SandboxRow};
use crate::wakers::Waker;

pub(crate) const NAME: &str = "sandbox.watch";

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

fn options(watcher: String) -> Result<StartOptions, Failure> {
    let id = WorkflowId::new(watcher).map_err(|error| to_failure(store_problem(error.into())))?;
    Ok(StartOptions { id: Some(id), ..StartOptions::default() })
}

/// Starts the watcher of a sandbox as a child of a workflow, as its next step. A sandbox has only
/// one.
pub(crate) fn start(
    context: &Context,
    row: &SandboxRow,
) -> impl Future<Output = Result<(), Failure>> + Send {
    let watched = WatchInput { id: row.id.clone() };
    let started = options(row.watcher_id()).map(|options| context.child(NAME, &watched, options));
    async move { started?.await.map(drop) }
}

/// Whether a sandbox with this id was ever watched: then a new one needs another name for its watcher.
pub(crate) async fn exists(engine: &Engine, id: &SandboxId) -> Result<bool, Problem> {
    let watcher = WorkflowId::new(id.watcher_id()).map_err(|error| store_problem(error.into()))?;
    engine.info(&watcher).await.map(|info| info.is_some()).map_err(store_problem)
}

/// Ensures that a sandbox has its watcher.
pub(crate) async fn ensure(
    engine: &Engine,
    id: &SandboxId,
    incarnation: &str,
) -> Result<(), Failure> {
    let watched = WatchInput { id: id.clone() };
    let watcher = sandboxes::watcher_id(id, incarnation);
    let started = engine.start(NAME, &watched, options(watcher)?).await;
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
        let watcher = Watcher { inner, engine: context.engine(), id };
        loop {
            let verdict = watcher.poll(context, &waker).await?;
            if verdict == Verdict::Ended {
                return Ok(());
            }
            if watcher.act(verdict).await.is_err() {
                // The next check tries it again.
                context.wait(tokio::time::sleep(inner.options.watch_interval)).await?;
            }
        }
    };
    context.volatile("watch", watch).await?;
    inner.wakers.forget(id, &waker);
    Ok(())
}

/// Stops a sandbox now whose processes are lost, as its watcher would at its next check.
pub(crate) async fn stop_if_lost(
    service: &Service,
    caller: &Caller,
    id: &SandboxId,
) -> Result<(), Problem> {
    let inner = &service.inner;
    let owned = OwnedSandbox::check(&*inner.store, &caller.owner, id).await?;
    let watcher = Watcher { inner, engine: &service.engine, id };
    match watcher.loss(&owned).await {
        Some(verdict) => watcher.act(verdict).await,
        None => Ok(()),
    }
}

/// What watches one sandbox.
struct Watcher<'w> {
    inner: &'w Arc<Inner>,
    engine: &'w Engine,
    id: &'w SandboxId,
}

impl Watcher<'_> {
    /// Checks repeatedly, until there is something to do.
    async fn poll(&self, context: &Context, waker: &Waker) -> Result<Verdict, Failure> {
        let inner = self.inner;
        let interval = inner.options.watch_interval;
        let mut last_inspected: Option<Instant> = None;
        loop {
            let mut wait = interval;
            // If the store cannot be read now, the next check reads it.
            if let Ok(found) = sandboxes::find(&*inner.store, self.id).await {
                let Some(row) = found.filter(|row| self.is_watched(row)) else {
                    return Ok(Verdict::Ended);
                };
                let now = now_ms();
                for (end, verdict) in self.due(&row) {
                    if end <= now {
                        return Ok(verdict);
                    }
                    wait = wait.min(until(end, now));
                }
                let suspected = waker.take_suspicion();
                let is_due = last_inspected
                    .is_none_or(|last_inspected| last_inspected.elapsed() >= interval);
                if suspected || is_due {
                    last_inspected = Some(Instant::now());
                    if let Some(verdict) = self.loss(&row).await {
                        return Ok(verdict);
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

    /// Whether a sandbox is still there. One with the same id may be on another server since this one was
    /// given up: it has a watcher there.
    fn is_watched(&self, row: &SandboxRow) -> bool {
        row.host == self.inner.host() && !row.state.is_terminal()
    }

    /// The times of automatic changes of the sandbox.
    fn due(&self, row: &SandboxRow) -> Vec<(i64, Verdict)> {
        let last = self.inner.activity.last_ms(&row.id).unwrap_or(row.last_used_at);
        due::due(row, last.max(row.last_used_at))
    }

    /// The verdict if the runtime reports for certain that it does not have the sandbox, or that no
    /// process of it is alive. A failed query does not count, nor does a sandbox that a running
    /// operation is ending.
    async fn loss(&self, row: &SandboxRow) -> Option<Verdict> {
        // The runtime of this server says nothing about those of another one.
        let is_here = row.host == self.inner.host();
        if row.damaged || !is_here || !matches!(row.state, State::Running | State::Paused) {
            return None;
        }
        let runtime = self.inner.runtime(&row.runtime).ok()?;
        let verdict = match self.inner.with_deadline(runtime.inspect(&row.id)).await {
            Ok(status) if status.state == stockade_runtime::State::Ended => {
                due::ending(row, reason(status.end_cause.unwrap_or_default()))
            }
            Err(Error::NoSandbox(_)) => Verdict::Terminate(Reason::Gone),
            Ok(_) | Err(_) => return None,
        };
        (!lifecycle::is_ending(self.engine, &row.id).await).then_some(verdict)
    }

    /// Does what a verdict says, unless the sandbox was renewed, used or changed in the meantime.
    async fn act(&self, verdict: Verdict) -> Result<(), Problem> {
        let _driver = self.inner.lock_sandbox(self.id).await?;
        match self.act_locked(verdict).await {
            // The sandbox itself may use the disk, and nothing more is written in it.
            Err(problem) if problem.code == Code::StorageFull => {
                let released = self.inner.reserve.as_ref().and_then(Reserve::release);
                let Some(_released) = released else { return Err(problem) };
                self.act_locked(verdict).await
            }
            done => done,
        }
    }

    async fn act_locked(&self, verdict: Verdict) -> Result<(), Problem> {
        let Some(row) = self.still(verdict).await else { return Ok(()) };
        match verdict {
            Verdict::Ended => Ok(()),
            Verdict::Stop(reason) => self.stop(row, reason).await,
            Verdict::Terminate(reason) => self.terminate(row, reason).await,
            Verdict::PauseIdle => self.pause(row).await,
            Verdict::PauseExpired => self.pause_expired(row).await,
        }
    }

    /// The sandbox under its lock, if the verdict that was made without the lock is still valid.
    async fn still(&self, seen: Verdict) -> Option<SandboxRow> {
        let found = sandboxes::find(&*self.inner.store, self.id).await.ok()?;
        let row = found.filter(|row| self.is_watched(row))?;
        let now = now_ms();
        let is_due = self.due(&row).into_iter().any(|(end, due)| due == seen && end <= now);
        (is_due || self.loss(&row).await == Some(seen)).then_some(row)
    }

    /// Ends the processes of the sandbox; its files remain, and its changes become a bundle.
    async fn stop(&self, mut row: SandboxRow, reason: Reason) -> Result<(), Problem> {
        ending::end_processes(self.inner, &row).await?;
        let failed = match ending::bundle(self.inner, &row, NextStep::Keep).await {
            Ok(bundle) => {
                row.bundle = bundle;
                row.is_bundled = true;
                None
            }
            // Its files remain, and their removal tries it again.
            Err(problem) => Some(problem),
        };
        row.schedule_removal(now_ms());
        let operation = row.watcher_id();
        let mut statements = ending::stopped(&operation, &mut row, reason, failed.as_ref());
        statements.push(audit::by_server(&row, "stop", reason, self.inner.host()));
        self.record(statements).await
    }

    /// Ends the sandbox, once its changes are in a bundle.
    async fn terminate(&self, mut row: SandboxRow, reason: Reason) -> Result<(), Problem> {
        let operation = row.watcher_id();
        if !row.is_bundled && ending::has_changes_to_store(self.inner, &row) {
            ending::end_processes(self.inner, &row).await?;
            match ending::bundle(self.inner, &row, NextStep::Remove).await {
                // Recorded before any file is removed.
                Ok(bundle) => self.record(vec![ending::bundled(&mut row, bundle)]).await?,
                Err(problem) => {
                    row.postpone_removal(now_ms());
                    let statements = ending::kept(&operation, &mut row, reason, &problem);
                    return self.record(statements).await;
                }
            }
        }
        let leak = lifecycle::release(self.inner, &row).await;
        let mut statements = lifecycle::end_statements(&operation, &mut row, reason, leak);
        statements.push(audit::by_server(&row, "kill", reason, self.inner.host()));
        self.record(statements).await
    }

    /// Pauses the idle sandbox; the next use resumes it.
    async fn pause(&self, mut row: SandboxRow) -> Result<(), Problem> {
        let paused = self.inner.pause_processes(&row);
        self.inner.terminations.run_unless_terminated(self.id, paused).await??;
        let change = row.change_to_idle();
        // Each pause is a separate event: the generation distinguishes them.
        let operation = format!("{}:{}", row.watcher_id(), row.generation);
        let payload = Payload::SandboxPaused(EndReason::because(Reason::Idle));
        let audited = audit::by_server(&row, "pause", Reason::Idle, self.inner.host());
        self.record(vec![change, events::statement(&operation, &row, payload), audited]).await
    }

    /// Pauses the sandbox that expires; from then on it does not expire.
    async fn pause_expired(&self, mut row: SandboxRow) -> Result<(), Problem> {
        let runtime = self.inner.runtime(&row.runtime)?;
        // The runtime would end it.
        let kept = self.inner.with_deadline(runtime.renew(self.id, None));
        let kept = self.inner.terminations.run_unless_terminated(self.id, kept).await?;
        kept.map_err(|error| runtime_problem(&error))?;
        let paused = self.inner.pause_processes(&row);
        let paused = self.inner.terminations.run_unless_terminated(self.id, paused).await?;
        if paused.is_err() {
            // It must not run on.
            return self.stop(row, Reason::Expired).await;
        }
        row.expires_at = None;
        let change = row.change(State::Paused, None);
        // Each pause is a separate event: the generation distinguishes them.
        let operation = format!("{}:{}", row.watcher_id(), row.generation);
        let payload = Payload::SandboxPaused(EndReason::because(Reason::Expired));
        let audited = audit::by_server(&row, "pause", Reason::Expired, self.inner.host());
        self.record(vec![change, events::statement(&operation, &row, payload), audited]).await
    }

    async fn record(&self, statements: Vec<Statement>) -> Result<(), Problem> {
        self.inner.store.execute(statements).await.map_err(store_problem)
    }
}

/// The reason for which a sandbox without processes is stopped or terminated.
const fn reason(cause: EndCause) -> Reason {
    match cause {
        EndCause::HostRestarted => Reason::HostRestarted,
        EndCause::LeaseExpired => Reason::Expired,
        // An interrupted operation may have requested it.
        EndCause::ProcessesLost | EndCause::Requested => Reason::ProcessesLost,
    }
}

fn until(end: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(end - now).unwrap_or(0))
}
