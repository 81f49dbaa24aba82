//! `start`, `stop`, `pause`, `resume`, `renew` and `kill`: the steps of the lifecycle machine. Each
//! is one workflow of the same shape: lock, owner check, act, record.

use std::sync::Arc;

use stockade_api::{ById, Caller, Renew, Result, Sandbox};
use stockade_core::event::{Ended, Nothing, Payload, Reason, Renewed};
use stockade_core::{Operation, SandboxId, State};
use stockade_durable::{Builder, Context, Failure, Statement, Step};
use stockade_runtime::Error;

use super::with;
use crate::clock::{now_ms, timestamp};
use crate::failure::{of_runtime, to_failure};
use crate::operation::{self, Input};
use crate::row::SandboxRow;
use crate::service::{Inner, Service};
use crate::{events, spec};

const START: &str = "sandbox.start";
const STOP: &str = "sandbox.stop";
const PAUSE: &str = "sandbox.pause";
const RESUME: &str = "sandbox.resume";
const RENEW: &str = "sandbox.renew";
const KILL: &str = "sandbox.kill";

pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    builder
        .workflow(
            START,
            with(inner, |inner, context, input| async move {
                change(&inner, &context, input, Operation::Start).await
            }),
        )
        .workflow(
            STOP,
            with(inner, |inner, context, input| async move {
                change(&inner, &context, input, Operation::Stop).await
            }),
        )
        .workflow(
            PAUSE,
            with(inner, |inner, context, input| async move {
                change(&inner, &context, input, Operation::Pause).await
            }),
        )
        .workflow(
            RESUME,
            with(inner, |inner, context, input| async move {
                change(&inner, &context, input, Operation::Resume).await
            }),
        )
        .workflow(
            KILL,
            with(inner, |inner, context, input| async move {
                change(&inner, &context, input, Operation::Kill).await
            }),
        )
        .workflow(RENEW, with(inner, prolong))
}

/// Does one of the plain steps.
pub(crate) async fn step(
    service: &Service,
    caller: &Caller,
    request: ById,
    operation: Operation,
) -> Result<Sandbox> {
    let owned = service.owned(caller, &request.id, operation).await?;
    if operation == Operation::Kill && owned.state.is_terminal() {
        return Ok(owned.to_sandbox(None));
    }
    let name = match operation {
        Operation::Start => START,
        Operation::Stop => STOP,
        Operation::Pause => PAUSE,
        Operation::Resume => RESUME,
        Operation::Kill | Operation::Renew | Operation::Use => KILL,
    };
    operation::run(&service.engine, name, caller, &request).await
}

/// Moves the end of a sandbox's life.
pub(crate) async fn renew(service: &Service, caller: &Caller, request: Renew) -> Result<Sandbox> {
    spec::duration(request.ttl_seconds)?;
    service.owned(caller, &request.id, Operation::Renew).await?;
    operation::run(&service.engine, RENEW, caller, &request).await
}

async fn change(
    inner: &Inner,
    context: &Context,
    input: Input<ById>,
    operation: Operation,
) -> std::result::Result<Sandbox, Failure> {
    let id = &input.request.id;
    let _driver = inner.locks.lock(id).await;
    let mut row = (*inner.acl(context, &input.owner, id, operation).await?).clone();
    if operation == Operation::Kill {
        if !row.state.is_terminal() {
            let leak =
                context.step("cleanup", async |_: Step| Ok(release(inner, &row).await)).await?;
            let operation = context.id().as_str();
            context.finish_with(ended(operation, &mut row, Reason::Requested, leak));
            inner.wake(id);
        }
        return Ok(row.to_sandbox(None));
    }
    let acted =
        context.step(operation.as_str(), async |_: Step| act(inner, &row, operation).await).await;
    match acted {
        Ok(()) => {
            let target = row.state.after(operation).unwrap_or(row.state);
            let mut statements = vec![row.change(target, None)];
            let payload = match operation {
                Operation::Pause => {
                    Some(Payload::SandboxPaused(Ended { reason: Reason::Requested }))
                }
                Operation::Resume => Some(Payload::SandboxResumed(Nothing {})),
                _ => None,
            };
            statements.extend(payload.map(|payload| events::record(context, &row, payload)));
            context.finish_with(statements);
            Ok(row.to_sandbox(None))
        }
        Err(failure) if operation == Operation::Start => {
            // What was made of it is given back; what cannot be is found by the reaper.
            let _ = inner.free(&row).await;
            let reason = Some(failure.message.clone());
            context.finish_with_on_failure(vec![row.change(State::Error, reason)]);
            Err(failure)
        }
        Err(failure) => Err(failure),
    }
}

/// What the runtime is told; every part may be told again.
async fn act(
    inner: &Inner,
    row: &SandboxRow,
    operation: Operation,
) -> std::result::Result<(), Failure> {
    let runtime = inner.runtime(&row.runtime).map_err(to_failure)?;
    let failed = |error: Error| to_failure(of_runtime(&error));
    match operation {
        Operation::Pause => runtime.pause(&row.id).await.map_err(failed),
        Operation::Resume => runtime.resume(&row.id).await.map_err(failed),
        Operation::Stop => {
            match runtime.snapshot(&row.id, &row.stopped_files().map_err(to_failure)?).await {
                Ok(_) | Err(Error::Conflict(_)) => {}
                // It was cleaned up already, so the snapshot was taken.
                Err(Error::NoSandbox(_)) => {}
                Err(error) => return Err(failed(error)),
            }
            runtime.cleanup(&row.id).await.map_err(failed)
        }
        Operation::Start => {
            let spec = spec::runtime(row).map_err(to_failure)?;
            let files = row.stopped_files().map_err(to_failure)?;
            let kept = runtime.snapshots().await.map_err(failed)?;
            if kept.iter().any(|snapshot| snapshot.id == files) {
                runtime.restore(&files, &row.id, &spec).await.map_err(failed)?;
                runtime.remove_snapshot(&files).await.map_err(failed)?;
            } else {
                runtime.create(&row.id, &spec).await.map_err(failed)?;
            }
            let lease = spec::lease(row.expires_at, now_ms());
            runtime.renew(&row.id, lease).await.map_err(failed)
        }
        Operation::Renew | Operation::Use | Operation::Kill => Ok(()),
    }
}

/// Gives back what the runtime holds of a sandbox that ends. What it does not let go of now is told,
/// and asked for again by the reaper.
pub(crate) async fn release(inner: &Inner, row: &SandboxRow) -> Option<String> {
    inner.activity.forget(&row.id);
    inner.free(row).await.err().map(|problem| problem.message)
}

/// The statements that say that a sandbox has ended, by the operation of that id.
pub(crate) fn ended(
    operation: &str,
    row: &mut SandboxRow,
    reason: Reason,
    leak: Option<String>,
) -> Vec<Statement> {
    let why = leak.map_or_else(
        || reason.as_str().to_owned(),
        |leak| format!("{reason}; to be removed from its runtime later: {leak}"),
    );
    let change = row.change(State::Terminated, Some(why));
    vec![change, events::of(operation, row, Payload::SandboxKilled(Ended { reason }))]
}

async fn prolong(
    inner: Arc<Inner>,
    context: Context,
    input: Input<Renew>,
) -> std::result::Result<Sandbox, Failure> {
    let Renew { id, ttl_seconds, shorten } = &input.request;
    let _driver = inner.locks.lock(id).await;
    let mut row = (*inner.acl(&context, &input.owner, id, Operation::Renew).await?).clone();
    let ttl = spec::duration(*ttl_seconds).map_err(to_failure)?;
    // Recorded, so that a second run of the workflow does not move it on.
    let wanted: i64 = context
        .step("deadline", async |_: Step| {
            Ok(now_ms().saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)))
        })
        .await?;
    let end = match row.expires_at {
        None if !shorten => return Ok(row.to_sandbox(None)),
        Some(end) if end > wanted && !shorten => return Ok(row.to_sandbox(None)),
        _ => wanted,
    };
    if matches!(row.state, State::Running | State::Paused) {
        context
            .step("renew", async |_: Step| {
                let runtime = inner.runtime(&row.runtime).map_err(to_failure)?;
                let renewed = runtime.renew(&row.id, spec::lease(Some(end), now_ms())).await;
                renewed.map_err(|error| to_failure(of_runtime(&error)))
            })
            .await?;
    }
    row.expires_at = Some(end);
    let change = row.change(row.state, row.reason.clone());
    let payload = Payload::SandboxRenewed(Renewed { expires_at: timestamp(end) });
    context.finish_with(vec![change, events::record(&context, &row, payload)]);
    inner.wake(&row.id);
    Ok(row.to_sandbox(None))
}

/// Resumes a sandbox that was paused because nobody used it, before it is used again.
pub(crate) async fn wake_up(service: &Service, caller: &Caller, id: &SandboxId) -> Result<()> {
    let row = SandboxRow::find(&*service.inner.store, id).await?;
    if !row.is_some_and(|row| row.state == State::Paused && row.idle_paused) {
        return Ok(());
    }
    let anonymous = Caller { idempotency_key: None, ..caller.clone() };
    match step(service, &anonymous, ById { id: id.clone() }, Operation::Resume).await {
        // Somebody else was quicker.
        Err(problem) if problem.code == stockade_core::Code::InvalidState => Ok(()),
        answer => answer.map(drop),
    }
}
