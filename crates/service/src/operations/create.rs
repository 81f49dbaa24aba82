//! `create`: the row first, under our own id, then the runtime under the same id.

use std::sync::Arc;

use stockade_api::{Caller, CreateSandbox, Expiry, ExpiryAction, Result, Sandbox, SecretMapping};
use stockade_bundle::beneath::Timestamp;
use stockade_bundle::view::coarse_now;
use stockade_core::access::Rules;
use stockade_core::event::{Created, Payload};
use stockade_core::runtime::{Capability, RuntimeName, Support};
use stockade_core::{Code, Isolation, OwnerId, Problem, SandboxId, State};
use stockade_durable::{Context, Failure, StartOptions, WorkflowId};
use stockade_review::Bundles;
use stockade_runtime::Error;

use super::bundles::with_bundles;
use super::{lifecycle, publish, record_with_next, volumes, watch};
use crate::clock::{now_ms, timestamp};
use crate::delivery::{Delivery, Principal};
use crate::elsewhere;
use crate::events;
use crate::failure::{no_sandbox, runtime_problem, store_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::spec;
use crate::ssh_agents;
use crate::store::json;
use crate::store::sandboxes::{self, SandboxRow};

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.create";

/// Checks that the stored secrets of a new sandbox are there.
async fn check_stored_secrets(service: &Service, caller: &Caller, row: &SandboxRow) -> Result<()> {
    let Some(network) = &row.request.network else { return Ok(()) };
    let principal = Principal { caller: caller.owner.clone(), flow_owner: None };
    let delivery = Delivery {
        inner: &service.inner,
        principal: &principal,
        sandbox: &row.id,
        operation: "check",
    };
    for SecretMapping { secret, .. } in &network.stored_secrets {
        delivery.check_one(secret).await?;
    }
    Ok(())
}

/// Inserts the row in the same transaction as the workflow's, then continues as a workflow.
pub(crate) async fn create(
    service: &Service,
    caller: &Caller,
    mut request: CreateSandbox,
) -> Result<Sandbox> {
    let workflow = operation::workflow_id(caller)?;
    super::snapshot::inherit_workspace(service, caller, &mut request).await?;
    super::snapshot::inherit_base(service, caller, &mut request).await?;
    elsewhere::check_sandbox(caller, &mut request, &service.inner.options)?;
    spec::check(&request)?;
    let has_proxy = request.network.as_ref().is_some_and(|net| net.upstream_proxy.is_some());
    if has_proxy && !caller.owner.is_user() {
        // The egress process would connect to any address of this host for it.
        let message = "only a user of this host can name an upstream proxy";
        return Err(Problem::new(Code::Forbidden, message)
            .because("the egress process connects to it from the server's own network"));
    }
    let is_known = operation::is_known(&service.engine, caller).await?;
    let runtime = match is_known {
        // The recorded answer names the runtime that was selected then.
        true => service.inner.default_runtime,
        false => service.inner.select_runtime(&request).await?,
    };
    let mut row = new_row(service, caller, &workflow, request, runtime)?;
    if row.request.id.is_some() && watch::exists(&service.engine, &row.id).await? {
        row.incarnation = incarnation(&workflow);
    }
    if row.request.network.is_some() && !is_known {
        let runtime = service.inner.runtime(&row.runtime)?;
        service.inner.egress.check_supported(&**runtime).await?;
        check_stored_secrets(service, caller, &row).await?;
    }
    if let Some(agent) = &row.request.ssh_agent {
        ssh_agents::check_caller(agent, caller)?;
        if !is_known {
            service.inner.check_agent(agent, &row.owner, &row.id).await?;
        }
    }
    if let Some(snapshot) = spec::snapshot(&row.request) {
        super::snapshot::check_owner(service, caller, snapshot).await?;
    }
    if !is_known {
        let runtime = service.inner.runtime(&row.runtime)?;
        let found = service.inner.resolve_image(caller, &**runtime, &row.request).await?;
        // What the name means later has no effect on this sandbox.
        row.image = found.unwrap_or(row.image);
    }
    if service.inner.options.cluster.is_some() && !is_known {
        // No other server makes one under the same name meanwhile.
        for volume in &row.request.volumes {
            volumes::ensure(service, caller, &volume.name).await?;
        }
    }
    // Before anything is created: a port that is in use is an error without consequences.
    let listeners = match is_known {
        true => Vec::new(),
        false => publish::bind(&row.request.publish).await?,
    };
    let start = async |asked: String| {
        let options = StartOptions {
            id: Some(workflow.clone()),
            statements: sandboxes::release_id(&row.id)
                .into_iter()
                .chain([sandboxes::insert(&row, service.inner.options.quotas.sandboxes)])
                .collect(),
            ..StartOptions::default()
        };
        let input = CreateInput { id: row.id.clone(), asked };
        operation::start(&service.engine, NAME, caller, &input, options).await
    };
    let mut started = start(request_hash(&row.request)).await;
    if started.as_ref().is_err_and(|problem| problem.code == Code::Conflict)
        && let Some(before) = request_of_older_version(&row.request)
    {
        // If it is not the same request either, the first problem is reported.
        started = start(request_hash(&before)).await.or(started);
    }
    let handle = match started {
        Ok(handle) => handle,
        Err(problem) if problem.code == Code::Conflict => {
            return Err(explain_conflict(service, &row, &workflow, problem).await);
        }
        Err(problem) => return Err(problem),
    };
    let created = handle.get_result().await.map_err(store_problem);
    if created.is_ok() && !row.request.publish.is_empty() {
        let ports = row.request.publish.clone();
        publish::publish(service, &row.id, &row.owner, ports, listeners);
    }
    // Its watcher saw it during its creation; only a running sandbox can be idle.
    service.inner.wake(&row.id);
    created
}

fn request_hash(request: &CreateSandbox) -> String {
    blake3::hash(json(request).as_bytes()).to_hex().to_string()
}

/// The same request as a version would have sent it that had no `onExpiry`, and terminated every
/// sandbox that expired. A workflow that such a version has started repeats it under the same key.
fn request_of_older_version(request: &CreateSandbox) -> Option<CreateSandbox> {
    let is_same = request.on_expiry == Some(ExpiryAction::Terminate) && !request.keep;
    is_same.then(|| CreateSandbox { on_expiry: None, ..request.clone() })
}

/// Distinguishes a sandbox from earlier ones with its id.
fn incarnation(workflow: &WorkflowId) -> String {
    blake3::hash(workflow.as_str().as_bytes()).to_hex()[..12].to_owned()
}

/// The input of the workflow.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct CreateInput {
    id: SandboxId,
    /// The hash of the request, which distinguishes it from another one under the same key. The
    /// request itself is stored only in the sandbox's row.
    #[serde(default)]
    asked: String,
}

/// The row of a new sandbox.
fn new_row(
    service: &Service,
    caller: &Caller,
    workflow: &WorkflowId,
    mut request: CreateSandbox,
    runtime: &str,
) -> Result<SandboxRow> {
    let inner = &service.inner;
    let ttl = spec::ttl(request.expiry, inner.options.default_ttl)?;
    // From here on a change of the default has no effect.
    request.expiry = ttl.map_or(Expiry::Never, |ttl| Expiry::Seconds(ttl.as_secs_f64()));
    // A directory of the host as root cannot be private, and says itself what it shares.
    let is_path = request.image.as_deref().is_some_and(|image| image.starts_with('/'));
    let can_be_private = RuntimeName::select(runtime).map_or(true, |runtime| {
        !matches!(runtime.declares(Capability::PrivateBase), Support::No(_))
    });
    if inner.options.private_base && !is_path && can_be_private {
        request.private_base.get_or_insert(true);
    }
    let idle = request.idle_timeout_seconds.map(spec::duration).transpose()?;
    let now = now_ms();
    let ms = |length: std::time::Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let rules = Rules::from_values(request.access_rules.clone());
    Ok(SandboxRow {
        id: request.id.clone().map_or_else(|| derive_id(workflow), Ok)?,
        owner: caller.owner.clone(),
        state: if request.stopped { State::New } else { State::Creating },
        reason: None,
        image: spec::image(&request),
        visibility: "private".to_owned(),
        requested_runtime: request.runtime.clone(),
        runtime: runtime.to_owned(),
        execution_id: caller.execution_id.clone(),
        workflow_id: Some(workflow.as_str().to_owned()),
        workspace_id: request.workspace_id.clone(),
        rules: rules.unwrap_or_default(),
        created_at: now,
        expires_at: ttl.map(|ttl| now.saturating_add(ms(ttl))),
        terminated_at: None,
        idle_timeout_ms: idle.map(ms),
        on_idle: request.on_idle,
        last_used_at: now,
        idle_paused: false,
        files: None,
        remove_at: None,
        bundle: None,
        is_bundled: false,
        generation: 1,
        incarnation: String::new(),
        host: inner.host().to_owned(),
        damaged: false,
        request,
    })
}

/// An id for a sandbox whose request has none: 12 hexadecimal digits (as Orbiter's), derived from
/// the id of the workflow, so that a repeated request with the same key returns the same sandbox.
fn derive_id(workflow: &WorkflowId) -> Result<SandboxId> {
    let hash = blake3::hash(workflow.as_str().as_bytes()).to_hex();
    SandboxId::new(&hash[..12]).map_err(|error| crate::failure::invalid(error.to_string()))
}

/// The problem for a row that could not be inserted.
async fn explain_conflict(
    service: &Service,
    row: &SandboxRow,
    workflow: &WorkflowId,
    problem: Problem,
) -> Problem {
    if service.engine.info(workflow).await.is_ok_and(|info| info.is_some()) {
        let message = "the idempotency key was used for another request";
        return Problem::new(Code::Conflict, message);
    }
    match sandboxes::find(&*service.inner.store, &row.id).await {
        Ok(Some(found)) if found.owner == row.owner => {
            let message = format!("the id {} is already in use", row.id);
            Problem::new(Code::Conflict, message).remedied_by("choose another id, or omit it")
        }
        // Other callers do not learn the reason.
        Ok(Some(_)) => Problem::new(Code::Conflict, format!("the id {} is not available", row.id))
            .remedied_by("choose another id, or omit it"),
        Ok(None) => {
            let quota = service.inner.options.quotas.sandboxes;
            let message = format!("the owner already has {quota} sandboxes, the maximum");
            Problem::new(Code::QuotaExceeded, message).remedied_by("stockade prune")
        }
        Err(_) => problem,
    }
}

/// Creates the sandbox that the row describes.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<CreateInput>,
) -> std::result::Result<Sandbox, Failure> {
    let id = &input.request.id;
    context.hold(inner.lock_sandbox(id).await.map_err(to_failure)?);
    let owned = check_owner(&inner, &context, &input.owner, id).await?;
    let payload = Payload::SandboxCreated(Created {
        image: owned.image.clone(),
        expires_at: owned.expires_at.map(timestamp),
        requested_runtime: owned.requested_runtime.clone(),
        runtime: Some(owned.runtime.clone()),
    });
    let event = events::record(&context, &owned, payload);
    let watched = watch::start(&context, &owned);
    if owned.state != State::Creating {
        watched.await?;
        context.finish_with(vec![event]);
        return Ok(owned.to_sandbox(None));
    }
    let again = context.run_number() > 1;
    let before = coarse_now();
    // Recorded together with the end: a repeated execution finds the existing sandbox.
    let created = context.step_with("create", record_with_next(), async |_| {
        let created = inner
            .terminations
            .run_unless_terminated(id, create_in_runtime(&inner, &owned, again))
            .await;
        created.and_then(|made| made).map_err(to_failure)
    });
    let (watched, created) = tokio::join!(watched, created);
    watched?;
    match created {
        Ok(isolation) => {
            if !again {
                record_baseline(&inner, &owned, before);
            }
            let mut row = (*owned).clone();
            context.finish_with(vec![row.change(State::Running, None), event]);
            Ok(row.to_sandbox(Some(isolation)))
        }
        Err(failure) => {
            if !lifecycle::is_terminating(&failure) {
                // The reaper finds resources that cannot be released now.
                let _ = inner.remove_from_runtime(&owned).await;
            }
            let row = &owned;
            if lifecycle::is_terminating(&failure) {
                return Err(failure);
            }
            // Nothing was created, so nothing remains: its id is free, and its watcher ends.
            context.finish_with_on_failure(vec![sandboxes::remove(id, row.generation)]);
            Err(failure)
        }
    }
}

/// Records what the files of the workspace were at the start, while the sandbox is used already: what the
/// host changes later can then be merged. Without the record it is a conflict without a base.
fn record_baseline(inner: &Arc<Inner>, row: &SandboxRow, at: Timestamp) {
    let Some(workspace) = &row.request.workspace else { return };
    let (inner, owner) = (Arc::clone(inner), row.owner.clone());
    let (id, workspace) = (row.id.clone(), workspace.host.clone());
    tokio::spawn(async move {
        if let Some(home) = inner.home(&owner) {
            let record = move |bundles: &Bundles| bundles.record_baseline(&id, &workspace, at);
            let _ = with_bundles(home, record).await;
        }
    });
}

/// Makes the runtime create it, or finds what an earlier execution had created, and serves its
/// network.
async fn create_in_runtime(inner: &Inner, row: &SandboxRow, again: bool) -> Result<Isolation> {
    let spec = spec::sandbox_spec(row, &inner.id)?;
    let runtime = inner.runtime(&row.runtime)?;
    let failed = |error: Error| runtime_problem(&error);
    let mut status = match inner.with_deadline(runtime.create(&row.id, &spec)).await {
        // What is left of an ended sandbox with this id, whose removal failed.
        Err(Error::Conflict(_)) if !again => {
            inner.cleanup(&**runtime, &row.id).await.map_err(failed)?;
            inner.with_deadline(runtime.create(&row.id, &spec)).await.map_err(failed)?
        }
        created => created.map_err(failed)?,
    };
    if status.state == stockade_runtime::State::Ended {
        // Its lease ended before this process resumed the creation.
        inner.with_deadline(runtime.cleanup(&row.id)).await.map_err(failed)?;
        status = inner.with_deadline(runtime.create(&row.id, &spec)).await.map_err(failed)?;
    }
    if again {
        // Some of its lease has passed since the request.
        let lease = spec::lease(row.expires_at, now_ms());
        inner.with_deadline(runtime.renew(&row.id, lease)).await.map_err(failed)?;
    }
    inner.serve_agent(row).await?;
    inner.serve_network(row).await?;
    Ok(status.isolation)
}

/// The owner check of a sandbox that is being created, and of the snapshot that it starts from.
async fn check_owner(
    inner: &Inner,
    context: &Context,
    owner: &OwnerId,
    id: &SandboxId,
) -> std::result::Result<OwnedSandbox, Failure> {
    let check = async |_| {
        let owned = OwnedSandbox::check(&*inner.store, owner, id).await.map_err(to_failure)?;
        inner.check_here(&owned).map_err(to_failure)?;
        let is_other = owned.workflow_id.as_deref().is_some_and(|own| own != context.id().as_str());
        if owned.state.is_terminal() || is_other {
            return Err(to_failure(no_sandbox(id)));
        }
        if let Some(snapshot) = spec::snapshot(&owned.request) {
            super::snapshot::find_owned(&*inner.store, owner, snapshot)
                .await
                .map_err(to_failure)?;
        }
        Ok(owned)
    };
    context.volatile("acl", check).await
}
