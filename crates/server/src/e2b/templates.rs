//! Templates: names of what a sandbox can start from. Snapshots are among them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use stockade_api::Problem;
use stockade_core::Code;

use super::App;
use super::body::HOST_TEMPLATES;
use super::create::find_snapshot;
use super::failure::Refused;
use super::request::Owner;
use crate::failure::unsupported;

fn absent(name: &str) -> Refused {
    Problem::new(Code::NotFound, format!("there is no template {name:?}")).into()
}

/// `GET /templates/aliases/{alias}`.
pub(super) async fn alias(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(alias): Path<String>,
) -> Result<Json<Value>, Refused> {
    if HOST_TEMPLATES.contains(&alias.as_str()) {
        return Ok(Json(json!({ "templateID": alias, "public": true })));
    }
    let found = find_snapshot(&app, &principal, &alias).await?;
    let id = found.ok_or_else(|| absent(&alias))?;
    Ok(Json(json!({ "templateID": id.as_str(), "public": false })))
}

/// `GET /templates/{template}`.
pub(super) async fn get(
    state: State<App>,
    owner: Owner,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refused> {
    let Json(found) = alias(state, owner, Path(name.clone())).await?;
    Ok(Json(json!({
        "templateID": found["templateID"],
        "public": found["public"],
        "aliases": [name.clone()],
        "names": [name],
        "builds": [],
    })))
}

/// `DELETE /templates/{template}`: removes a snapshot.
pub(super) async fn delete(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    if HOST_TEMPLATES.contains(&name.as_str()) {
        return Err(unsupported(format_args!("removing the template {name:?}")).into());
    }
    let found = find_snapshot(&app, &principal, &name).await?;
    let id = found.ok_or_else(|| absent(&name))?;
    app.sandboxes.remove_snapshot(&principal.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
