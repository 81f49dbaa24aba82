//! `pause`, `resume` and `renew-expiration` of a sandbox.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{ById, Caller, Problem, Renew};
use stockade_core::{Code, Time};

use super::App;
use super::execd::isolated::sessions;
use super::request::{Id, JsonBody, now};
use super::sandboxes::find;
use crate::auth::Principal;
use crate::failure::{Failure, invalid};

/// `POST /v1/sandboxes/{id}/pause`.
pub(super) async fn pause(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    let paused = app.sandboxes.pause(&principal.caller, ById { id }).await?;
    // Nothing of a paused sandbox runs.
    for session in running_sessions(&app, &principal, &paused.id).await? {
        app.sandboxes.pause(&without_key(&principal), ById { id: session.id }).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// The isolated sessions of a sandbox that run.
async fn running_sessions(
    app: &App,
    principal: &Principal,
    id: &stockade_core::SandboxId,
) -> Result<Vec<stockade_api::Sandbox>, Failure> {
    let mut sessions = sessions(&*app.sandboxes, &without_key(principal), id).await?;
    sessions.retain(|session| session.state == stockade_core::State::Running);
    Ok(sessions)
}

/// The caller, for operations beside the one that its idempotency key is for.
fn without_key(principal: &Principal) -> Caller {
    let mut caller = principal.caller.clone();
    caller.idempotency_key = None;
    caller
}

/// `POST /v1/sandboxes/{id}/resume`. One that has stopped is started.
pub(super) async fn resume(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    let sandbox = find(&app, &principal.caller, &id).await?;
    if sandbox.state == stockade_core::State::Stopped {
        app.sandboxes.start(&principal.caller, ById { id }).await?;
    } else {
        app.sandboxes.resume(&principal.caller, ById { id }).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// A new time at which a sandbox expires.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expiration {
    #[schemars(with = "String")]
    expires_at: Time,
}

/// `POST /v1/sandboxes/{id}/renew-expiration`. The time may be earlier than before.
pub(super) async fn renew(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    JsonBody(request): JsonBody<Expiration>,
) -> Result<Json<Expiration>, Failure> {
    let sandbox = find(&app, &principal.caller, &id).await?;
    if sandbox.expires_at.is_none() && !sandbox.state.is_terminal() {
        let message = "the sandbox was created without a timeout, and does not expire";
        return Err(Problem::new(Code::Conflict, message).into());
    }
    let left = request.expires_at.duration_since(now()).as_secs_f64();
    if left <= 0.0 {
        return Err(invalid("`expiresAt` is in the past"));
    }
    let request = Renew { id, ttl_seconds: Some(left), shorten: true };
    let renewed = app.sandboxes.renew(&principal.caller, request).await?;
    let expires_at = renewed.expires_at.ok_or_else(|| invalid("the sandbox does not expire"))?;
    Ok(Json(Expiration { expires_at }))
}
