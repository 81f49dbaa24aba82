//! `start`, `stop`, `pause`, `resume`, `renew` and `kill`: the steps of the lifecycle machine. Each
//! is one workflow of the same shape: lock, owner check, act, record.

use std::sync::Arc;
use std::time::Duration;

use stockade_api::{ById, Caller, Expiry, KillSandbox, Renew, Result, Sandbox};
use stockade_core::event::{Empty, EndReason, Payload, Reason, Renewed};
use stockade_core::{Code, Operation, Problem, SandboxId, SnapshotId, State};
use stockade_durable::{Builder, Context, Engine, Failure, Filter, Statement, Status, Step};
use stockade_runtime::{Error, Runtime};

use super::bundles::with_bundles;
use super::collect::NextStep;
use super::{ending, given_up, record_with_next, workflow_fn};
use crate::clock::{now_ms, timestamp};
use crate::failure::{runtime_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::reserve::with_reserve;
use crate::service::Service;
use crate::store::sandboxes::{self, SandboxRow};
use crate::{events, spec};

const START: &str = "sandbox.start";
const STOP: &str = "sandbox.stop";
const PAUSE: &str = "sandbox.pause";
const RESUME: &str = "sandbox.resume";
const RENEW: &str = "sandbox.renew";
const KILL: &str = "sandbox.kill";

/// How often, and at which interval, a kill is tried again once its sandbox's files are being deleted.
const FREED_SPACE_ATTEMPTS: u32 = 50;
const FREED_SPACE_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    builder
        .workflow(
            START,
            workflow_fn(inner, |inner, context, input| async move {
                perform(&inner, &context, input, Operation::Start).await
            }),
        )
        .workflow(
            STOP,
            workflow_fn(inner, |inner, context, input| async move {
                perform(&inner, &context, input, Operation::Stop).await
            }),
        )
        .workflow(
            PAUSE,
            workflow_fn(inner, |inner, context, input| async move {
                perform(&inner, &context, input, Operation::Pause).await
            }),
        )
        .workflow(
            RESUME,
            workflow_fn(inner, |inner, context, input| async move {
                perform(&inner, &context, input, Operation::Resume).await
            }),
        )
        .workflow(KILL, workflow_fn(inner, terminate))
        .workflow(RENEW, workflow_fn(inner, perform_renewal))
}

/// Runs one of the plain steps.
pub(crate) async fn change_state(
    service: &Service,
    caller: &Caller,
    request: ById,
    operation: Operation,
) -> Result<Sandbox> {
    let owned = service.owned_sandbox(caller, &request.id, operation).await?;
    if is_reached(&owned, operation) && !operation::is_known(&service.engine, caller).await? {
        return Ok(owned.to_sandbox(None));
    }
    let name = match operation {
        Operation::Stop => STOP,
        Operation::Pause => PAUSE,
        Operation::Resume => RESUME,
        // The others have no such step.
        Operation::Start
        | Operation::Kill
        | Operation::Renew
        | Operation::Use
        | Operation::Collect => START,
    };
    let (engine, by_id) = (&service.engine, &request);
    let run = |caller: Caller| async move { operation::run(engine, name, &caller, by_id).await };
    let done = match operation {
        // What uses the disk may be a command of the sandbox itself.
        Operation::Stop => with_reserve(service.inner.reserve.as_ref(), caller, run).await,
        _ => run(caller.clone()).await,
    };
    // Its watcher checks again, now that the change is recorded.
    service.inner.wake(&request.id);
    done
}

/// Terminates a sandbox.
pub(crate) async fn kill(
    service: &Service,
    caller: &Caller,
    request: KillSandbox,
) -> Result<Sandbox> {
    let owned = service.owned_sandbox(caller, &request.id, Operation::Kill).await?;
    if owned.state.is_terminal() {
        return Ok(owned.to_sandbox(None));
    }
    let (engine, by_id) = (&service.engine, &request);
    let run = |caller: Caller| async move { operation::run(engine, KILL, &caller, by_id).await };
    if owned.host != service.inner.host() {
        // Nothing of it is on the disk of this server.
        return run(caller.clone()).await;
    }
    let mut done = with_reserve(service.inner.reserve.as_ref(), caller, run).await;
    if done.as_ref().is_err_and(|problem| problem.code == Code::StorageFull) {
        done = if free_space(&service.inner, by_id).await? {
            run_with_freed_space(caller, run).await
        } else {
            let remedy = format!("stockade kill --discard {}", request.id);
            done.map_err(|problem| problem.remedied_by(remedy))
        };
    }
    service.inner.wake(&request.id);
    done
}

/// Removes the files of a sandbox that is to be terminated, before that is recorded: neither the
/// disk nor the reserve has space for the record. Nothing is removed if it may have changes that are
/// in no bundle. If the process ends before the record, the watcher terminates what has no files.
async fn free_space(inner: &Inner, request: &KillSandbox) -> Result<bool> {
    let KillSandbox { id, discard } = request;
    let _terminating = inner.terminations.start(id);
    let _driver = inner.lock_sandbox(id).await?;
    let Some(row) = sandboxes::find(&*inner.store, id).await? else { return Ok(true) };
    let loses_nothing =
        !row.damaged && (row.is_bundled || !ending::has_changes_to_store(inner, &row));
    if !discard && !loses_nothing {
        return Ok(false);
    }
    Ok(release(inner, &row).await.is_none())
}

/// Runs an operation as soon as what was removed leaves space for its record.
async fn run_with_freed_space<T, F: Future<Output = Result<T>>>(
    caller: &Caller,
    operation: impl Fn(Caller) -> F,
) -> Result<T> {
    let caller = Caller { idempotency_key: None, ..caller.clone() };
    for _ in 0..FREED_SPACE_ATTEMPTS {
        match operation(caller.clone()).await {
            Err(problem) if problem.code == Code::StorageFull => {}
            done => return done,
        }
        tokio::time::sleep(FREED_SPACE_INTERVAL).await;
    }
    operation(caller).await
}

/// Changes the end of a sandbox's TTL.
pub(crate) async fn renew(service: &Service, caller: &Caller, request: Renew) -> Result<Sandbox> {
    request.ttl_seconds.map(spec::duration).transpose()?;
    service.owned_sandbox(caller, &request.id, Operation::Renew).await?;
    let done = operation::run(&service.engine, RENEW, caller, &request).await;
    service.inner.wake(&request.id);
    done
}

async fn perform(
    inner: &Arc<Inner>,
    context: &Context,
    input: Input<ById>,
    operation: Operation,
) -> std::result::Result<Sandbox, Failure> {
    let id = &input.request.id;
    context.hold(inner.lock_sandbox(id).await.map_err(to_failure)?);
    let mut row = (*inner.acl(context, &input.owner, id, operation).await?).clone();
    if is_reached(&row, operation) {
        // Another operation has reached it in the meantime.
        return Ok(row.to_sandbox(None));
    }
    let files = stopped_files(context).map_err(to_failure)?;
    if operation == Operation::Start && row.remove_at.is_some() {
        check_quota(inner, context, &row).await?;
    }
    if operation == Operation::Start && row.state == State::Stopped && row.files.is_none() {
        store_files(inner, context, &mut row, &files).await?;
    }
    // Recorded together with the end: until then the reaper may remove a sandbox that was started,
    // so it may have to be started again.
    let result = context
        .step_with(operation.as_str(), record_with_next(), async |_: Step| {
            let result = inner
                .terminations
                .run_unless_terminated(id, call_runtime(inner, &row, operation, &files))
                .await;
            result.map_err(to_failure)?
        })
        .await;
    let stored = match result {
        Ok(stored) => stored,
        // The operation that ends it releases its resources.
        Err(failure) if is_terminating(&failure) => return Err(failure),
        Err(failure) => {
            if operation == Operation::Start {
                // Its new resources are released, and its files stay. The reaper finds resources
                // that cannot be released now.
                if let Ok(runtime) = inner.runtime(&row.runtime) {
                    let _ = inner.cleanup(&**runtime, id).await;
                }
                let reason = Some(failure.message.clone());
                context.finish_with_on_failure(vec![row.change(State::Error, reason)]);
            }
            return Err(failure);
        }
    };
    let target = row.state.apply(operation).unwrap_or(row.state);
    let payload = match operation {
        Operation::Pause => Payload::SandboxPaused(EndReason::because(Reason::Requested)),
        Operation::Stop => Payload::SandboxStopped(EndReason::because(Reason::Requested)),
        Operation::Start => Payload::SandboxStarted(Empty {}),
        _ => Payload::SandboxResumed(Empty {}),
    };
    if operation == Operation::Stop {
        row.files = stored;
    } else if operation == Operation::Start {
        row.expires_at = expiry_after_start(&row, now_ms());
        row.remove_at = None;
        row.bundle = None;
        row.is_bundled = false;
        if let Some(files) = row.files.take() {
            forget(inner, context, &row, files);
        }
    }
    let change = row.change(target, None);
    context.finish_with(vec![change, events::record(context, &row, payload)]);
    Ok(row.to_sandbox(None))
}

/// Whether a sandbox is already in the state in which an operation ends.
fn is_reached(row: &SandboxRow, operation: Operation) -> bool {
    let is_change = matches!(
        operation,
        Operation::Start | Operation::Stop | Operation::Pause | Operation::Resume
    );
    is_change && row.state.apply(operation) == Ok(row.state)
}

/// The workflow of `kill`: its changes become a bundle, and only then are its files removed.
async fn terminate(
    inner: Arc<Inner>,
    context: Context,
    input: Input<KillSandbox>,
) -> std::result::Result<Sandbox, Failure> {
    let KillSandbox { id, discard } = &input.request;
    // The owner check comes first here too: another owner's request must not cancel anything.
    let owned = OwnedSandbox::check(&*inner.store, &input.owner, id).await.map_err(to_failure)?;
    if inner.is_given_up(&owned.host).await.map_err(to_failure)? {
        return given_up::terminate(&context, (*owned).clone(), *discard).map_err(to_failure);
    }
    context.hold(inner.terminations.start(id));
    context.hold(inner.lock_sandbox(id).await.map_err(to_failure)?);
    let mut row = (*inner.acl(&context, &input.owner, id, Operation::Kill).await?).clone();
    if row.state.is_terminal() {
        return Ok(row.to_sandbox(None));
    }
    if !discard {
        save(&inner, &context, &mut row).await?;
    }
    let leak = context.step("cleanup", async |_: Step| Ok(release(&inner, &row).await)).await?;
    let operation = context.id().as_str();
    context.finish_with(end_statements(operation, &mut row, Reason::Requested, leak));
    Ok(row.to_sandbox(None))
}

/// Ends the processes of a sandbox that is to be terminated, and makes a bundle of its changes. If
/// that fails, it is stopped with its files.
async fn save(
    inner: &Inner,
    context: &Context,
    row: &mut SandboxRow,
) -> std::result::Result<(), Failure> {
    if row.damaged {
        let message = format!("the record of the sandbox {} cannot be read", row.id);
        let problem = Problem::new(Code::DatabaseInvalid, message)
            .because("so it is unknown whether it has changes that are in no bundle")
            .remedied_by(format!("stockade kill --discard {}", row.id));
        return Err(to_failure(problem));
    }
    if row.is_bundled || !ending::has_changes_to_store(inner, row) {
        return Ok(());
    }
    ending::end_processes(inner, row).await.map_err(to_failure)?;
    match ending::bundle(inner, row, NextStep::Remove).await {
        // Not a step, so that the steps are those of older records: a repeated execution reads the
        // row.
        Ok(bundle) => context.write(vec![ending::bundled(row, bundle)]).await,
        Err(problem) => {
            row.postpone_removal(now_ms());
            let operation = context.id().as_str();
            let statements = ending::kept(operation, row, Reason::Requested, &problem);
            context.finish_with_on_failure(statements);
            Err(to_failure(problem))
        }
    }
}

/// Fails if a sandbox that did not count for the quota of its owner, because it was to be removed,
/// has no place in it. No other such start of the owner decides meanwhile.
async fn check_quota(
    inner: &Inner,
    context: &Context,
    row: &SandboxRow,
) -> std::result::Result<(), Failure> {
    context.hold(inner.owner_locks.lock(&row.owner).await);
    let counted = sandboxes::count_for_quota(&*inner.store, &row.owner).await;
    let quota = inner.options.quotas.sandboxes;
    if counted.map_err(to_failure)? < i64::from(quota) {
        return Ok(());
    }
    let message = format!("the owner already has {quota} sandboxes, the maximum");
    Err(to_failure(Problem::new(Code::QuotaExceeded, message).remedied_by("stockade prune")))
}

/// Stores the files of a sandbox that stopped by itself in a snapshot, before it is created again
/// with them. Until now they are where its runtime has left them.
async fn store_files(
    inner: &Inner,
    context: &Context,
    row: &mut SandboxRow,
    files: &SnapshotId,
) -> std::result::Result<(), Failure> {
    let runtime = inner.runtime(&row.runtime).map_err(to_failure)?;
    let snapshot = inner.with_deadline(runtime.snapshot(&row.id, files));
    let stored =
        inner.terminations.run_unless_terminated(&row.id, snapshot).await.map_err(to_failure)?;
    stored.map_err(|error| to_failure(runtime_problem(&error)))?;
    row.files = Some(files.clone());
    // Recorded before the runtime's own files are removed. A repeated execution reads the row.
    let change = row.change(row.state, row.reason.clone());
    context.write(vec![change]).await
}

/// When a sandbox expires that starts now: one that has expired has its time to live again.
fn expiry_after_start(row: &SandboxRow, now: i64) -> Option<i64> {
    let end = row.expires_at?;
    match row.request.expiry {
        Expiry::Seconds(seconds) if end <= now => {
            let ttl = spec::duration(seconds).unwrap_or_default().as_millis();
            Some(now.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)))
        }
        _ => Some(end),
    }
}

/// Whether a failure means that the sandbox is being terminated.
pub(crate) fn is_terminating(failure: &Failure) -> bool {
    failure.code == Code::SandboxTerminated.as_str()
}

/// The prefix of the snapshots that hold the files of stopped sandboxes.
pub(crate) const STOPPED: &str = "stop-";

/// The snapshot in which a stop stores the files. Each stop has its own, so that it never finds an
/// older one.
fn stopped_files(context: &Context) -> Result<SnapshotId> {
    let name = format!("{STOPPED}{}", context.id());
    SnapshotId::new(name).map_err(|error| crate::failure::invalid(error.to_string()))
}

/// Removes the stored files of a stopped sandbox, once it is recorded that it is running. The
/// reaper finds files that a crash leaves.
fn forget(inner: &Arc<Inner>, context: &Context, row: &SandboxRow, files: SnapshotId) {
    let (inner, name) = (inner.clone(), row.runtime.clone());
    let handle = context.engine().handle(context.id());
    tokio::spawn(async move {
        if handle.get_result::<serde_json::Value>().await.is_ok()
            && let Ok(runtime) = inner.runtime(&name)
        {
            let _ = runtime.remove_snapshot(&files).await;
        }
    });
}

/// Makes the change in the runtime; every part may be repeated. Returns the snapshot that a stop has
/// left, if it has.
async fn call_runtime(
    inner: &Inner,
    row: &SandboxRow,
    operation: Operation,
    stopped: &SnapshotId,
) -> std::result::Result<Option<SnapshotId>, Failure> {
    let runtime = inner.runtime(&row.runtime).map_err(to_failure)?;
    let failed = |error: Error| to_failure(runtime_problem(&error));
    match operation {
        Operation::Pause => inner.pause_processes(row).await.map_err(to_failure),
        Operation::Resume => {
            inner.ensure_network(row).await.map_err(to_failure)?;
            inner.ensure_agent(row).await;
            inner.with_deadline(runtime.resume(&row.id)).await.map_err(failed)
        }
        Operation::Stop => return stop(inner, &**runtime, row, stopped).await.map_err(failed),
        Operation::Start => {
            // Removes the remains of a start that failed or was interrupted.
            inner.cleanup(&**runtime, &row.id).await.map_err(failed)?;
            let spec = spec::sandbox_spec(row, &inner.id).map_err(to_failure)?;
            let created = match &row.files {
                Some(files) => inner.with_deadline(runtime.restore(files, &row.id, &spec)).await,
                None => inner.with_deadline(runtime.create(&row.id, &spec)).await,
            };
            created.map_err(failed)?;
            let now = now_ms();
            let lease = spec::lease(expiry_after_start(row, now), now);
            inner.with_deadline(runtime.renew(&row.id, lease)).await.map_err(failed)?;
            inner.ensure_agent(row).await;
            inner.serve_network(row).await.map_err(to_failure)
        }
        Operation::Renew | Operation::Use | Operation::Collect | Operation::Kill => Ok(()),
    }
    .map(|()| None)
}

/// Ends the processes of a sandbox. Its files stay where they are, which needs no space. An
/// execution by an older version may have stored them in a snapshot, which is returned then.
async fn stop(
    inner: &Inner,
    runtime: &dyn Runtime,
    row: &SandboxRow,
    stopped: &SnapshotId,
) -> std::result::Result<Option<SnapshotId>, Error> {
    let stored = match inner.with_deadline(runtime.end(&row.id)).await {
        Ok(()) => None,
        Err(Error::NoSandbox(_)) if has_snapshot(inner, runtime, stopped).await? => {
            Some(stopped.clone())
        }
        Err(error) => return Err(error),
    };
    inner.leave(&row.id).await;
    inner.activity.forget(&row.id);
    Ok(stored)
}

/// Whether an earlier execution of the stop has stored the files.
async fn has_snapshot(
    inner: &Inner,
    runtime: &dyn Runtime,
    stopped: &SnapshotId,
) -> std::result::Result<bool, Error> {
    let snapshots = inner.with_deadline(runtime.snapshots()).await?;
    Ok(snapshots.iter().any(|snapshot| snapshot.id == *stopped))
}

/// Whether an operation that has not ended is stopping or killing the sandbox: then that operation
/// decides its state.
pub(crate) async fn is_ending(engine: &Engine, id: &SandboxId) -> bool {
    for name in [STOP, KILL] {
        let filter = Filter {
            name: Some(name.to_owned()),
            status: Some(Status::Pending),
            ..Filter::default()
        };
        // If the operations cannot be read, one may exist.
        let Ok(under_way) = engine.list(filter).await else { return true };
        if under_way.iter().any(|info| info.input["request"]["id"] == id.as_str()) {
            return true;
        }
    }
    false
}

/// Releases the runtime's resources of a sandbox that ends. Returns the reason if that fails now;
/// the reaper tries again.
pub(crate) async fn release(inner: &Inner, row: &SandboxRow) -> Option<String> {
    inner.activity.forget(&row.id);
    if row.request.workspace.is_some()
        && let Some(home) = inner.home(&row.owner)
    {
        let (id, bundle) = (row.id.clone(), row.bundle.clone());
        let _ = with_bundles(home, move |bundles| {
            if let Some(bundle) = bundle {
                // Its contents may be files of the sandbox, which are not needed any more.
                bundles.take_ownership(&bundle)?;
            }
            // Its remaining data is useless for another sandbox with the same id.
            bundles.remove_history(&id)
        })
        .await;
    }
    inner.remove_from_runtime(row).await.err().map(|problem| problem.message)
}

/// The statements that record the end of a sandbox, by the operation with that id.
pub(crate) fn end_statements(
    operation: &str,
    row: &mut SandboxRow,
    reason: Reason,
    leak: Option<String>,
) -> Vec<Statement> {
    let why = leak.map_or_else(
        || reason.as_str().to_owned(),
        |leak| format!("{reason}; still to be removed from its runtime: {leak}"),
    );
    let bundle = row.bundle.clone();
    let change = row.change(State::Terminated, Some(why));
    vec![
        change,
        events::statement(operation, row, Payload::SandboxKilled(EndReason { reason, bundle })),
    ]
}

async fn perform_renewal(
    inner: Arc<Inner>,
    context: Context,
    input: Input<Renew>,
) -> std::result::Result<Sandbox, Failure> {
    let Renew { id, ttl_seconds, shorten } = &input.request;
    context.hold(inner.lock_sandbox(id).await.map_err(to_failure)?);
    let mut row = (*inner.acl(&context, &input.owner, id, Operation::Renew).await?).clone();
    let ttl = ttl_seconds.map(spec::duration).transpose().map_err(to_failure)?;
    // Recorded, so that a second execution of the workflow does not postpone it.
    let end: Option<i64> = match ttl {
        None => None,
        Some(ttl) => {
            let deadline = async |_: Step| {
                Ok(now_ms().saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)))
            };
            Some(context.step("deadline", deadline).await?)
        }
    };
    // It never expires, but the files of one that stopped by itself are removed.
    if let (None, Some(end), true) = (row.expires_at, end, !shorten && row.removal().is_some()) {
        row.extend_removal(end);
        context.finish_with(vec![row.change(row.state, row.reason.clone())]);
        return Ok(row.to_sandbox(None));
    }
    let is_earlier = match (row.expires_at, end) {
        (None, _) => true,
        (Some(old), Some(new)) => old > new,
        (Some(_), None) => false,
    };
    if is_earlier && !shorten {
        return Ok(row.to_sandbox(None));
    }
    if matches!(row.state, State::Running | State::Paused) {
        context
            .step("renew", async |_: Step| {
                let runtime = inner.runtime(&row.runtime).map_err(to_failure)?;
                let lease = spec::lease(end, now_ms());
                let renewed = inner.with_deadline(runtime.renew(&row.id, lease));
                let renewed = inner
                    .terminations
                    .run_unless_terminated(id, renewed)
                    .await
                    .map_err(to_failure)?;
                renewed.map_err(|error| to_failure(runtime_problem(&error)))
            })
            .await?;
    }
    row.expires_at = end;
    // The files of a stopped sandbox remain longer too.
    row.remove_at = None;
    let change = row.change(row.state, row.reason.clone());
    let payload = Payload::SandboxRenewed(Renewed { expires_at: end.map(timestamp) });
    context.finish_with(vec![change, events::record(&context, &row, payload)]);
    Ok(row.to_sandbox(None))
}
