//! `snapshot`, `snapshots`, `remove_snapshot`: stored states of files, each with an owner.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{Caller, CreateSandbox, Result, Snapshot, TakeSnapshot};
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId, SandboxSpec, SnapshotId};
use stockade_durable::{Context, Failure, StartOptions, Step, Store};
use stockade_runtime::{Error, SnapshotInfo};

use crate::clock::{now_ms, timestamp};
use crate::failure::{invalid, runtime_problem, store_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::reserve::with_reserve;
use crate::service::Service;
use crate::spec;
use crate::store::hosts;
use crate::store::sandboxes::SandboxRow;
use crate::store::snapshots::{self, IdStatus};

/// The workflow that takes one.
pub(crate) const NAME: &str = "sandbox.snapshot";

/// The workflow that removes one.
pub(crate) const REMOVE: &str = "sandbox.remove_snapshot";

/// The longest name of a snapshot, in bytes.
const NAME_BYTES: usize = 256;

/// The input of the workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SnapshotInput {
    sandbox_id: SandboxId,
    id: SnapshotId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Takes a snapshot: the row first, then the files.
pub(crate) async fn take(
    service: &Service,
    caller: &Caller,
    request: TakeSnapshot,
) -> Result<Snapshot> {
    if request.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > NAME_BYTES) {
        return Err(invalid(format!("the name of a snapshot has 1 to {NAME_BYTES} bytes")));
    }
    // The files of a paused or stopped sandbox can be stored too.
    service.owned_sandbox(caller, &request.sandbox_id, Operation::Collect).await?;
    let workflow = operation::workflow_id(caller)?;
    let id = match request.id {
        Some(id) => id,
        None => {
            let hash = blake3::hash(workflow.as_str().as_bytes()).to_hex();
            SnapshotId::new(format!("snap-{}", &hash[..12])).map_err(|e| invalid(e.to_string()))?
        }
    };
    let quota = service.inner.options.quotas.snapshots;
    let new = snapshots::NewSnapshot {
        id: &id,
        owner: &caller.owner,
        sandbox: &request.sandbox_id,
        created_at: now_ms(),
        name: request.name.as_deref(),
    };
    let row = snapshots::insert(&new, quota);
    let options = StartOptions {
        id: Some(workflow.clone()),
        statements: vec![row],
        ..StartOptions::default()
    };
    let input = SnapshotInput {
        sandbox_id: request.sandbox_id.clone(),
        id: id.clone(),
        name: request.name.clone(),
    };
    let started = operation::start(&service.engine, NAME, caller, &input, options).await;
    let handle = match started {
        Err(problem) if problem.code == Code::Conflict => {
            let used = service.engine.info(&workflow).await.is_ok_and(|info| info.is_some());
            let in_use = |how: &str| {
                Problem::new(Code::Conflict, format!("the id {id} {how}"))
                    .remedied_by("choose another id, or omit it")
            };
            let store = &*service.inner.store;
            return Err(match snapshots::id_status(store, &caller.owner, &id).await? {
                _ if used => {
                    let message = "the idempotency key was used for another request";
                    Problem::new(Code::Conflict, message)
                }
                IdStatus::Free => {
                    let message = format!("the owner already has {quota} snapshots, the maximum");
                    Problem::new(Code::QuotaExceeded, message).remedied_by("stockade snapshots")
                }
                IdStatus::UsedByOwner => in_use("is already in use"),
                // Only the owner of an id learns that it exists.
                IdStatus::UsedByOther => in_use("is not available"),
            });
        }
        started => started?,
    };
    handle.get_result().await.map_err(store_problem)
}

/// The workflow that takes one.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<SnapshotInput>,
) -> std::result::Result<Snapshot, Failure> {
    let SnapshotInput { sandbox_id, id, name } = &input.request;
    let forget = snapshots::remove(id, &input.owner);
    context.finish_with_on_failure(vec![forget]);
    let _used = inner.activity.start(sandbox_id);
    context.hold(inner.lock_sandbox(sandbox_id).await.map_err(to_failure)?);
    let owned = inner.acl(&context, &input.owner, sandbox_id, Operation::Collect).await?;
    let copy = copy_id(&context).map_err(to_failure)?;
    if owned.files.is_some() {
        context.hold(inner.lock_sandbox(&copy).await.map_err(to_failure)?);
    }
    let taken: Snapshot = context
        .step("snapshot", async |_: Step| {
            let runtime = inner.runtime(&owned.runtime).map_err(to_failure)?;
            let snapshot = async {
                match &owned.files {
                    Some(files) => copy_files(&inner, &owned, (files, &copy), id).await,
                    None => inner.with_deadline(runtime.snapshot(sandbox_id, id)).await,
                }
            };
            let taken = inner
                .terminations
                .run_unless_terminated(sandbox_id, snapshot)
                .await
                .map_err(to_failure)?;
            let taken = taken.map_err(|error| to_failure(runtime_problem(&error)))?;
            Ok(Snapshot {
                id: taken.id,
                sandbox_id: sandbox_id.clone(),
                created_at: timestamp(i64::try_from(taken.created_at_ms).unwrap_or(i64::MAX)),
                size_bytes: taken.size_bytes,
                name: name.clone(),
            })
        })
        .await?;
    let sized = snapshots::set_size(id, taken.size_bytes);
    context.finish_with(vec![sized, owned.touch()]);
    Ok(taken)
}

/// The id of the sandbox in which the files of a stopped one are for a moment, to be stored again. It
/// has no record, so the reaper removes what a crash leaves.
fn copy_id(context: &Context) -> Result<SandboxId> {
    let hash = blake3::hash(context.id().as_str().as_bytes()).to_hex();
    SandboxId::new(format!("copy-{}", &hash[..24])).map_err(|error| invalid(error.to_string()))
}

/// Stores the files of a stopped sandbox, which are in a snapshot, in another one.
async fn copy_files(
    inner: &Inner,
    row: &SandboxRow,
    (files, copy): (&SnapshotId, &SandboxId),
    to: &SnapshotId,
) -> std::result::Result<SnapshotInfo, Error> {
    let invalid = |problem: Problem| Error::Invalid(problem.message);
    let runtime = &**inner.runtime(&row.runtime).map_err(invalid)?;
    let spec = spec::sandbox_spec(row, &inner.id).map_err(invalid)?;
    // Nothing runs in it.
    let spec = SandboxSpec { network: None, ssh_agent: false, ..spec };
    inner.cleanup(runtime, copy).await?;
    let stored = async {
        inner.with_deadline(runtime.restore(files, copy, &spec)).await?;
        inner.with_deadline(runtime.snapshot(copy, to)).await
    };
    let stored = stored.await;
    // The reaper removes it if it cannot be removed now.
    let _ = inner.cleanup(runtime, copy).await;
    stored
}

/// The caller's snapshots, the newest first.
pub(crate) async fn list(service: &Service, caller: &Caller) -> Result<Vec<Snapshot>> {
    snapshots::list(&*service.inner.store, &caller.owner).await
}

/// The owner's snapshot with that id.
pub(crate) async fn find_owned(store: &dyn Store, owner: &OwnerId, id: &str) -> Result<Snapshot> {
    snapshots::find(store, owner, id).await?.ok_or_else(|| {
        Problem::new(Code::NotFound, format!("there is no snapshot {id}"))
            .remedied_by("stockade snapshots")
    })
}

/// Fails unless the snapshot belongs to the caller, or the same request was made before: the
/// snapshot may have been removed since.
pub(crate) async fn check_owner(service: &Service, caller: &Caller, id: &str) -> Result<()> {
    match find_owned(&*service.inner.store, &caller.owner, id).await {
        Err(_) if operation::is_known(&service.engine, caller).await? => Ok(()),
        found => found.map(drop),
    }
}

/// Removes a snapshot.
pub(crate) async fn remove(service: &Service, caller: &Caller, id: SnapshotId) -> Result<()> {
    check_owner(service, caller, id.as_str()).await?;
    let (engine, id) = (&service.engine, &id);
    let run = |caller: Caller| async move { operation::run(engine, REMOVE, &caller, id).await };
    with_reserve(service.inner.reserve.as_ref(), caller, run).await
}

/// The workflow that removes one.
pub(crate) async fn perform_removal(
    inner: Arc<Inner>,
    context: Context,
    input: Input<SnapshotId>,
) -> std::result::Result<(), Failure> {
    let id = &input.request;
    let owner = &input.owner;
    let lost = context
        .volatile("acl", async |_: Step| {
            find_owned(&*inner.store, owner, id.as_str()).await.map_err(to_failure)?;
            lost_host(&inner, owner, id).await.map_err(to_failure)
        })
        .await?;
    if let Some(host) = lost {
        // That server finds its files without a record when it is back, and removes them.
        let ended = vec![hosts::expect_given_up(&host), snapshots::remove(id, owner)];
        context.finish_with(ended);
        return Ok(());
    }
    context
        .step("remove", async |_: Step| {
            for runtime in inner.runtimes.values() {
                let removed = inner.with_deadline(runtime.remove_snapshot(id)).await;
                removed.map_err(|error| to_failure(runtime_problem(&error)))?;
            }
            Ok(())
        })
        .await?;
    let removal = snapshots::remove(id, &input.owner);
    context.finish_with(vec![removal]);
    Ok(())
}

/// The server that was given up and has a snapshot; none if this one has it.
async fn lost_host(inner: &Inner, owner: &OwnerId, id: &SnapshotId) -> Result<Option<String>> {
    let host = hosts::of_snapshot(&*inner.store, id.as_str(), owner).await?;
    match host.filter(|host| host != inner.host()) {
        None => Ok(None),
        Some(host) if inner.is_given_up(&host).await? => Ok(Some(host)),
        Some(host) => {
            let message = format!("the snapshot {id} is on another server");
            Err(Problem::new(Code::Unreachable, message)
                .because(format!("the server {host} has it"))
                .remedied_by("retry: the request is passed on to that server"))
        }
    }
}

/// A sandbox from a snapshot has a private base if the origin has one, unless the request says
/// otherwise.
pub(crate) async fn inherit_base(
    service: &Service,
    caller: &Caller,
    request: &mut CreateSandbox,
) -> Result<()> {
    let Some(snapshot) = spec::snapshot(request).filter(|_| request.private_base.is_none()) else {
        return Ok(());
    };
    let store = &*service.inner.store;
    let Ok(snapshot) = find_owned(store, &caller.owner, snapshot).await else { return Ok(()) };
    if let Ok(origin) = OwnedSandbox::check(store, &caller.owner, &snapshot.sandbox_id).await {
        request.private_base = origin.request.private_base;
    }
    Ok(())
}

/// If a sandbox starts from a snapshot and names no workspace, uses the workspace and working
/// directory of the snapshot's sandbox, because the changes in the snapshot are relative to that
/// workspace.
pub(crate) async fn inherit_workspace(
    service: &Service,
    caller: &Caller,
    request: &mut CreateSandbox,
) -> Result<()> {
    let Some(snapshot) = spec::snapshot(request).filter(|_| request.workspace.is_none()) else {
        return Ok(());
    };
    let store = &*service.inner.store;
    let Ok(snapshot) = find_owned(store, &caller.owner, snapshot).await else { return Ok(()) };
    let Ok(origin) = OwnedSandbox::check(store, &caller.owner, &snapshot.sandbox_id).await else {
        return Ok(());
    };
    request.workspace.clone_from(&origin.request.workspace);
    if request.working_directory.is_none() {
        request.working_directory.clone_from(&origin.request.working_directory);
    }
    Ok(())
}
