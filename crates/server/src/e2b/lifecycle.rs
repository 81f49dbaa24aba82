//! `connect`, `pause`, `timeout`, `refreshes` and `DELETE` of a sandbox.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use stockade_api::{ById, Caller, KillSandbox, Problem, Renew, Sandbox, Sandboxes};
use stockade_core::{Code, SandboxId, State as SandboxState};

use super::App;
use super::body::Credentials;
use super::create::seconds;
use super::failure::Refused;
use super::request::{Id, JsonBody, Owner, absent, find};
use crate::auth::Principal;
use crate::failure::invalid;
use crate::opensandbox::{end_sessions, now};

/// The time to live after a connect that names none, in seconds.
const TIMEOUT: i64 = 300;
/// The time to live of a sandbox that is to expire now, in seconds.
const NOW: f64 = 0.001;

/// The caller, for operations beside the one that its idempotency key is for.
fn without_key(principal: &Principal) -> Caller {
    let mut caller = principal.caller.clone();
    caller.idempotency_key = None;
    caller
}

/// The request for the credentials of a sandbox, which is resumed if it is paused.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Connect {
    /// In seconds.
    #[serde(default)]
    timeout: Option<i64>,
    /// Whether its memory is kept.
    #[serde(default)]
    memory: Option<bool>,
}

/// `POST /sandboxes/{id}/connect`: never shortens the life of one that runs.
pub(super) async fn connect(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(Connect { timeout, memory }): JsonBody<Connect>,
) -> Result<(StatusCode, Json<Credentials>), Refused> {
    let ttl = seconds(timeout.unwrap_or(TIMEOUT))?;
    let sandbox = find(&app, &principal, &id).await?;
    let caller = without_key(&principal);
    let is_running = sandbox.state == SandboxState::Running;
    if !is_running {
        if sandbox.state == SandboxState::Paused && memory == Some(false) {
            app.sandboxes.stop(&caller, ById { id: id.clone() }).await?;
        }
        wake(&*app.sandboxes, &caller, &id).await?;
    }
    let renew = Renew { id: id.clone(), ttl_seconds: Some(ttl), shorten: !is_running };
    let sandbox = app.sandboxes.renew(&caller, renew).await?;
    let status = if is_running { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(Credentials::new(&app, &principal, &sandbox))))
}

/// Resumes a sandbox that is paused, or starts one whose memory was not kept.
pub(super) async fn wake(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    id: &SandboxId,
) -> Result<Sandbox, Problem> {
    let request = stockade_api::GetSandbox { id: id.clone(), metrics: false };
    let current = sandboxes.get_status(caller, request).await?;
    let by_id = ById { id: id.clone() };
    match current.state {
        SandboxState::Running => Ok(current),
        SandboxState::Paused => sandboxes.resume(caller, by_id).await,
        _ => sandboxes.start(caller, by_id).await,
    }
}

/// The request to pause a sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pause {
    /// Whether its memory is kept.
    #[serde(default)]
    memory: Option<bool>,
    /// No program of ours runs inside, so that none can be unhealthy.
    #[serde(default)]
    #[expect(dead_code, reason = "both values have the same meaning")]
    require_healthy_guest: Option<bool>,
}

/// `POST /sandboxes/{id}/pause`: from then on it does not expire.
pub(super) async fn pause(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(request): JsonBody<Pause>,
) -> Result<StatusCode, Refused> {
    let sandbox = find(&app, &principal, &id).await?;
    if sandbox.state != SandboxState::Running {
        let message = format!("the sandbox {id} is already paused");
        return Err(Problem::new(Code::Conflict, message).into());
    }
    let caller = without_key(&principal);
    let renew = Renew { id: id.clone(), ttl_seconds: None, shorten: false };
    app.sandboxes.renew(&caller, renew).await?;
    let by_id = ById { id: id.clone() };
    let paused = match request.memory {
        Some(false) => app.sandboxes.stop(&caller, by_id).await,
        _ => app.sandboxes.pause(&caller, by_id).await,
    };
    if let Err(problem) = paused {
        // It runs on, and expires as before.
        let left = sandbox.expires_at.map(|at| at.duration_since(now()).as_secs_f64().max(NOW));
        let renew = Renew { id, ttl_seconds: left, shorten: true };
        app.sandboxes.renew(&caller, renew).await?;
        return Err(problem.into());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A new time to live.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Timeout {
    /// In seconds.
    timeout: i64,
}

/// `POST /sandboxes/{id}/timeout`: counts from now, and may be earlier than before. With 0 it expires now.
pub(super) async fn set_timeout(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(Timeout { timeout }): JsonBody<Timeout>,
) -> Result<StatusCode, Refused> {
    let ttl = if timeout == 0 { NOW } else { seconds(timeout)? };
    find(&app, &principal, &id).await?;
    let renew = Renew { id, ttl_seconds: Some(ttl), shorten: true };
    app.sandboxes.renew(&principal.caller, renew).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A longer time to live.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Refresh {
    /// In seconds.
    #[serde(default)]
    duration: Option<i64>,
}

/// `POST /sandboxes/{id}/refreshes`, of older clients: never shortens its life.
pub(super) async fn refresh(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(Refresh { duration }): JsonBody<Refresh>,
) -> Result<StatusCode, Refused> {
    let ttl = seconds(duration.ok_or_else(|| invalid("`duration` is missing"))?)?;
    find(&app, &principal, &id).await?;
    let renew = Renew { id, ttl_seconds: Some(ttl), shorten: false };
    app.sandboxes.renew(&principal.caller, renew).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /sandboxes/{id}`.
pub(super) async fn kill(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
) -> Result<StatusCode, Refused> {
    find(&app, &principal, &id).await.map_err(|Refused(problem)| match problem.code {
        Code::NotFound => Refused(absent(id.as_str())),
        _ => Refused(problem),
    })?;
    end_sessions(&*app.sandboxes, &without_key(&principal), &id).await?;
    app.sandboxes.kill(&principal.caller, KillSandbox::new(id.clone())).await?;
    app.tokens.remove(&id);
    Ok(StatusCode::NO_CONTENT)
}
