//! `pause`, `resume` and `renew-expiration` of a sandbox.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{ById, Problem, Renew};
use stockade_core::{Code, Time};

use super::App;
use super::request::{Id, JsonBody};
use super::sandboxes::find;
use crate::auth::Principal;
use crate::failure::{Failure, invalid};

/// `POST /v1/sandboxes/{id}/pause`.
pub(super) async fn pause(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    app.sandboxes.pause(&principal.caller, ById { id }).await?;
    Ok(StatusCode::ACCEPTED)
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_ms(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let left = request.expires_at.duration_since(now).as_secs_f64();
    if left <= 0.0 {
        return Err(invalid("`expiresAt` is in the past"));
    }
    let request = Renew { id, ttl_seconds: Some(left), shorten: true };
    let renewed = app.sandboxes.renew(&principal.caller, request).await?;
    let expires_at = renewed.expires_at.ok_or_else(|| invalid("the sandbox does not expire"))?;
    Ok(Json(Expiration { expires_at }))
}
