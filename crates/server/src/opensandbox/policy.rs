//! `/v1/sandboxes/{id}/networkpolicy`: the network policy of a sandbox, for clients with an API key.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::App;
use super::egress::{self, Policy, Rule};
use super::request::{Id, JsonBody};
use super::sandboxes::find;
use crate::auth::Principal;
use crate::failure::Failure;

/// `GET`.
pub(super) async fn show(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<Json<Value>, Failure> {
    Ok(egress::status(&find(&app, &principal.caller, &id).await?))
}

/// `PUT`: replaces the rules.
pub(super) async fn replace(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    JsonBody(policy): JsonBody<Policy>,
) -> Result<Json<Value>, Failure> {
    let sandbox = find(&app, &principal.caller, &id).await?;
    let request = egress::replacement(&sandbox, policy)?;
    Ok(egress::status(&app.sandboxes.change_network(&principal.caller, request).await?))
}

/// `PATCH`: adds rules.
pub(super) async fn change(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    JsonBody(rules): JsonBody<Vec<Rule>>,
) -> Result<Json<Value>, Failure> {
    let sandbox = find(&app, &principal.caller, &id).await?;
    let request = egress::additions(&sandbox, &rules)?;
    Ok(egress::status(&app.sandboxes.change_network(&principal.caller, request).await?))
}

/// `DELETE`: removes the rules for targets.
pub(super) async fn remove(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    JsonBody(targets): JsonBody<Vec<String>>,
) -> Result<Json<Value>, Failure> {
    let sandbox = find(&app, &principal.caller, &id).await?;
    let request = egress::removals(&sandbox, &targets)?;
    Ok(egress::status(&app.sandboxes.change_network(&principal.caller, request).await?))
}
