//! Sessions: each is a sandbox that begins with the files of the outer one.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Value, json};
use stockade_api::{
    ById, Bytes, Caller, CommandLine, CreateSandbox, Empty, Execute, Expiry, ExpiryAction,
    GetSandbox, IdleAction, KillSandbox, ListCommands, MakeDirectory, Problem, RemoveFile, Renew,
    Restore, Sandbox, SetPermissions, Snapshot, StatFile, TakeSnapshot,
};
use stockade_core::sandbox::BestEffort;
use stockade_core::{Code, SandboxId, SnapshotId, State as SandboxState, Time};

use super::super::super::extensions;
use super::super::super::request::{JsonBody, now};
use super::super::super::target::{PortState, Target, VARIABLES_FILE};
use super::changes::Baseline;
use super::request::Create;
use super::{ISOLATED_IN, sessions};
use crate::failure::{Failure, invalid, unsupported};

/// The metadata of the sandbox of a session: its request.
const REQUEST: &str = "opensandbox.io/isolated";
/// The beginning of its id, before that of the session.
const PREFIX: &str = "isolated-";
/// Prints the variables of a command in the sandbox.
const PRINT_VARIABLES: [&str; 2] = ["/bin/cat", "/proc/self/environ"];

/// A session.
pub(super) struct Session {
    pub(super) id: String,
    pub(super) request: Create,
    /// Its own sandbox, in place of the outer one.
    pub(super) target: Target,
}

fn unknown(id: &str) -> Failure {
    Failure(Problem::new(Code::NotFound, format!("there is no isolated session {id:?}")))
}

/// The session of a sandbox with that id.
pub(super) async fn find(state: &PortState, outer: &Target, id: &str) -> Result<Session, Failure> {
    let sandbox_id = SandboxId::new(format!("{PREFIX}{id}")).map_err(|_| unknown(id))?;
    let request = GetSandbox { id: sandbox_id, metrics: false };
    let sandbox = match state.sandboxes.get_status(&outer.caller, request).await {
        Ok(sandbox) => sandbox,
        Err(problem) if problem.code == Code::NotFound => return Err(unknown(id)),
        Err(problem) => return Err(problem.into()),
    };
    let is_inside = sandbox.metadata.get(ISOLATED_IN) == Some(&outer.sandbox.id.to_string());
    if !is_inside || sandbox.state == SandboxState::Terminated {
        return Err(unknown(id));
    }
    let request = request_of(&sandbox).ok_or_else(|| unknown(id))?;
    let sandbox = renew(state, outer, sandbox).await?;
    // It was paused with the outer sandbox.
    let is_paused = sandbox.state == SandboxState::Paused;
    let sandbox = match is_paused && outer.sandbox.state == SandboxState::Running {
        true => state.sandboxes.resume(&outer.caller, ById { id: sandbox.id }).await?,
        false => sandbox,
    };
    let target = Target { sandbox: sandbox.into(), ..outer.clone() };
    Ok(Session { id: id.to_owned(), request, target })
}

fn request_of(sandbox: &Sandbox) -> Option<Create> {
    serde_json::from_str(sandbox.metadata.get(REQUEST)?).ok()
}

/// A session that is used lives as long as the outer sandbox.
async fn renew(state: &PortState, outer: &Target, session: Sandbox) -> Result<Sandbox, Failure> {
    let Some(until) = outer.sandbox.expires_at else { return Ok(session) };
    if session.expires_at.is_none_or(|expires_at| expires_at >= until) {
        return Ok(session);
    }
    let left = until.duration_since(now()).as_secs_f64();
    let renew = Renew { id: session.id.clone(), ttl_seconds: Some(left), shorten: false };
    Ok(state.sandboxes.renew(&outer.caller, renew).await?)
}

/// `POST /v1/isolated/session`.
pub(super) async fn create(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    JsonBody(request): JsonBody<Create>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    // It is completed or undone, also if the client disconnects.
    let created = tokio::spawn(create_all(state, outer, request));
    created.await.map_err(|error| Failure(Problem::caused(Code::Io, &error)))?
}

async fn create_all(
    state: PortState,
    outer: Target,
    request: Create,
) -> Result<(StatusCode, Json<Value>), Failure> {
    if extensions::refuses_sessions(&outer.sandbox) {
        return Err(unsupported("an isolated session of a sandbox that was created without"));
    }
    let request = request.check()?;
    for root in request.roots() {
        let (sandbox_id, path) = (outer.sandbox.id.clone(), root.path.as_str().into());
        let stat = StatFile { sandbox_id, path, follow: false };
        let entry = state.sandboxes.stat_file(&outer.caller, stat).await?;
        if entry.kind != stockade_api::FileKind::Directory {
            return Err(invalid(format!("{} is not a directory", root.path)));
        }
    }
    let id = uuid::Uuid::now_v7().hyphenated().to_string();
    let before = Baseline::outer(&state, &outer, &request).await?;
    let created = restore(&state, &outer, &request, &id).await?;
    let created_at = created.created_at;
    let inner = Target { sandbox: created.into(), ..outer.clone() };
    let prepared = async {
        prepare(&state, &inner, &request).await?;
        before.complete(&state, &inner, &request).await?.write(&state, &outer, &id).await
    };
    if let Err(failure) = prepared.await {
        let kill = KillSandbox::discarding(inner.sandbox.id.clone());
        // The response reports the first failure.
        let _ = state.sandboxes.kill(&outer.caller, kill).await;
        return Err(failure);
    }
    let body = json!({ "session_id": id, "created_at": created_at });
    Ok((StatusCode::CREATED, Json(with_request(body, &request))))
}

/// Creates the sandbox of a session from a snapshot of the outer one, which is then removed.
async fn restore(
    state: &PortState,
    outer: &Target,
    request: &Create,
    id: &str,
) -> Result<Sandbox, Failure> {
    let environment = environment(state, outer).await?;
    let environment = request.env_passthrough.clone().unwrap_or_default().select(environment);
    let text = serde_json::to_string(request).map_err(|error| invalid(error.to_string()))?;
    let mut metadata: BTreeMap<String, String> =
        [(ISOLATED_IN.to_owned(), outer.sandbox.id.to_string()), (REQUEST.to_owned(), text)].into();
    if let Some(file) = outer.sandbox.metadata.get(VARIABLES_FILE) {
        metadata.insert(VARIABLES_FILE.to_owned(), file.clone());
    }
    let expiry = match outer.sandbox.expires_at {
        Some(until) => Expiry::Seconds(until.duration_since(now()).as_secs_f64().max(1.0)),
        None => Expiry::Never,
    };
    let id = SandboxId::new(format!("{PREFIX}{id}")).map_err(|error| invalid(error.to_string()))?;
    let sandbox = CreateSandbox {
        id: Some(id),
        environment,
        metadata,
        users: outer.sandbox.users.clone(),
        default_uid: outer.sandbox.default_uid,
        limits: outer.sandbox.limits,
        // Where the outer sandbox has them, this one has them too.
        best_effort: [BestEffort::Cpus, BestEffort::Memory].into(),
        access_rules: request.access_rules(&outer.sandbox.access_rules),
        expiry,
        on_expiry: Some(ExpiryAction::Terminate),
        idle_timeout_seconds: request
            .idle_seconds()
            .map(|seconds| std::time::Duration::from_secs(seconds).as_secs_f64()),
        on_idle: IdleAction::Terminate,
        runtime: Some(outer.sandbox.runtime.clone()),
        ..CreateSandbox::default()
    };
    let snapshot_id = SnapshotId::new(sandbox.id.as_ref().map_or("", SandboxId::as_str));
    let snapshot_id = snapshot_id.map_err(|error| invalid(error.to_string()))?;
    let _in_use = state.in_use.enter(&snapshot_id);
    remove_left(state, outer).await?;
    let id = Some(snapshot_id.clone());
    let take = TakeSnapshot { sandbox_id: outer.sandbox.id.clone(), id, name: None };
    state.sandboxes.snapshot(&outer.caller, take).await?;
    let restore = Restore { snapshot_id: snapshot_id.clone(), sandbox };
    let restored = state.sandboxes.restore(&outer.caller, restore).await;
    let removed = state.sandboxes.remove_snapshot(&outer.caller, snapshot_id).await;
    let restored = restored?;
    removed?;
    Ok(restored)
}

/// Removes the snapshots of a sandbox for sessions that a server did not complete.
async fn remove_left(state: &PortState, outer: &Target) -> Result<(), Failure> {
    let all = state.sandboxes.snapshots(&outer.caller, Empty {}).await?;
    let left = snapshots_of(&all, &outer.sandbox.id).filter(|id| !state.in_use.contains(id));
    for id in left {
        match state.sandboxes.remove_snapshot(&outer.caller, id.clone()).await {
            Err(problem) if problem.code != Code::NotFound => return Err(problem.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Those of the snapshots from which sessions of a sandbox are created.
pub(super) fn snapshots_of<'a>(
    all: &'a [Snapshot],
    outer: &'a SandboxId,
) -> impl Iterator<Item = &'a SnapshotId> {
    let is_of = |snapshot: &&Snapshot| {
        snapshot.sandbox_id == *outer && snapshot.id.as_str().starts_with(PREFIX)
    };
    all.iter().filter(is_of).map(|snapshot| &snapshot.id)
}

/// The variables of a command in a sandbox.
async fn environment(
    state: &PortState,
    target: &Target,
) -> Result<BTreeMap<String, Bytes>, Failure> {
    let line = CommandLine::Program(PRINT_VARIABLES.map(str::to_owned).into());
    let execute = Execute::new(target.sandbox.id.clone(), line);
    let printed = state.sandboxes.execute(&target.caller, execute).await?;
    if printed.end.exit_code != Some(0) {
        let message = "the variables of the sandbox cannot be read";
        return Err(Problem::new(Code::LaunchFailed, message).into());
    }
    let pairs = printed.stdout.0.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(at);
        Some((String::from_utf8(name.to_vec()).ok()?, Bytes(value.get(1..)?.to_vec())))
    });
    Ok(pairs.collect())
}

/// Creates the directory for the state of the session's shell.
async fn prepare(state: &PortState, inner: &Target, request: &Create) -> Result<(), Failure> {
    let directory = request.state_directory()?;
    let (sandbox_id, path) = (inner.sandbox.id.clone(), directory.as_str().into());
    let make = MakeDirectory {
        sandbox_id: sandbox_id.clone(),
        path,
        mode: Some(0o700),
        uid: None,
        gid: None,
    };
    state.sandboxes.make_directory(&inner.caller, make).await?;
    if request.uid.is_some() {
        let (uid, gid) = (request.uid, request.gid);
        let path = directory.into();
        let set = SetPermissions { sandbox_id, path, mode: None, uid, gid };
        state.sandboxes.set_permissions(&inner.caller, set).await?;
    }
    Ok(())
}

/// A response with what was requested.
fn with_request(mut body: Value, request: &Create) -> Value {
    if let (Some(body), Ok(Value::Object(request))) =
        (body.as_object_mut(), serde_json::to_value(request))
    {
        body.extend(request);
    }
    body
}

/// The time of the last command of a session, and in how many seconds it ends without another.
async fn activity(
    state: &PortState,
    caller: &Caller,
    session: &Sandbox,
) -> Result<(Time, Option<i64>), Failure> {
    let list = ListCommands { sandbox_id: Some(session.id.clone()), ended: true };
    let commands = state.sandboxes.commands(caller, list).await?.commands;
    let last = commands.first().map_or(session.created_at, |command| command.created_at);
    let idle = request_of(session).and_then(|request| request.idle_seconds());
    let left = idle.and_then(|seconds| {
        let passed = now().duration_since(last).as_secs();
        Some(i64::try_from(seconds).ok()?.saturating_sub(passed).max(0))
    });
    Ok((last, left))
}

fn status(session: &Sandbox) -> &'static str {
    if session.state == SandboxState::Error { "dead" } else { "active" }
}

/// `GET /v1/isolated/sessions`.
pub(super) async fn list(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
) -> Result<Json<Value>, Failure> {
    let mut found = Vec::new();
    for session in sessions(&*state.sandboxes, &outer.caller, &outer.sandbox.id).await? {
        let Some(id) = session.id.as_str().strip_prefix(PREFIX) else { continue };
        let (last_run_at, left) = activity(&state, &outer.caller, &session).await?;
        found.push(json!({
            "session_id": id,
            "status": status(&session),
            "created_at": session.created_at,
            "last_run_at": last_run_at,
            "idle_remaining_seconds": left,
        }));
    }
    Ok(Json(json!({ "sessions": found })))
}

/// `GET /v1/isolated/session/{session}`.
pub(super) async fn get(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let session = find(&state, &outer, &id).await?;
    let sandbox = &session.target.sandbox;
    let (last_run_at, left) = activity(&state, &outer.caller, sandbox).await?;
    let body = json!({
        "session_id": session.id,
        "status": status(sandbox),
        "created_at": sandbox.created_at,
        "last_run_at": last_run_at,
        "idle_remaining_seconds": left,
    });
    Ok(Json(with_request(body, &session.request)))
}

/// `DELETE /v1/isolated/session/{session}`. Changes that were not committed are deleted.
pub(super) async fn remove(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    let session = find(&state, &outer, &id).await?;
    let kill = KillSandbox::discarding(session.target.sandbox.id.clone());
    state.sandboxes.kill(&outer.caller, kill).await?;
    let (sandbox_id, path) = (outer.sandbox.id.clone(), Baseline::path(&id).into());
    match state.sandboxes.remove_file(&outer.caller, RemoveFile { sandbox_id, path }).await {
        Err(problem) if problem.code != Code::FileNotFound => Err(problem.into()),
        _ => Ok(()),
    }
}
