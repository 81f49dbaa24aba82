//! Snapshots: `POST /v1/sandboxes/{id}/snapshots`, and `/v1/snapshots`.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{Empty, Problem, Snapshot, TakeSnapshot};
use stockade_core::{Code, SnapshotId, Time};

use super::App;
use super::request::{Id, JsonBody, Query};
use super::sandboxes::Page;
use crate::auth::Principal;
use crate::failure::{Failure, invalid};

/// The states of a snapshot. One is complete before its response is sent.
const STATES: [&str; 4] = ["Creating", "Deleting", "Ready", "Failed"];
const READY: &str = "Ready";

/// The request for a snapshot.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    name: Option<String>,
}

/// A snapshot in a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotBody {
    id: String,
    sandbox_id: String,
    status: StatusBody,
    created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Serialize)]
struct StatusBody {
    state: &'static str,
}

impl SnapshotBody {
    fn new(snapshot: &Snapshot) -> Self {
        Self {
            id: snapshot.id.to_string(),
            sandbox_id: snapshot.sandbox_id.to_string(),
            status: StatusBody { state: READY },
            created_at: snapshot.created_at,
            name: snapshot.name.clone(),
        }
    }
}

/// `POST /v1/sandboxes/{id}/snapshots`.
pub(super) async fn create(
    State(app): State<App>,
    principal: Principal,
    Id(sandbox_id): Id,
    JsonBody(request): JsonBody<Request>,
) -> Result<(StatusCode, Json<SnapshotBody>), Failure> {
    let request = TakeSnapshot { sandbox_id, id: None, name: request.name };
    let taken = app.sandboxes.snapshot(&principal.caller, request).await?;
    Ok((StatusCode::ACCEPTED, Json(SnapshotBody::new(&taken))))
}

/// `GET /v1/snapshots`.
pub(super) async fn list(
    State(app): State<App>,
    principal: Principal,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<SnapshotBody>>, Failure> {
    let known = ["sandboxId", "name", "state", "page", "pageSize"];
    let query = Query::parse(query.as_deref(), &known)?;
    let mut found = app.sandboxes.snapshots(&principal.caller, Empty {}).await?;
    if let Some(id) = query.one("sandboxId")? {
        found.retain(|snapshot| snapshot.sandbox_id.as_str() == id);
    }
    let states: Vec<_> = query.all("state").collect();
    if let Some(unknown) = states.iter().find(|state| !STATES.contains(state)) {
        return Err(invalid(format!("there is no state {unknown:?}")));
    }
    if let Some(name) = query.one("name")? {
        found.retain(|snapshot| snapshot.name.as_deref() == Some(name));
    }
    // No snapshot has another state.
    if !(states.is_empty() || states.contains(&READY)) {
        found.clear();
    }
    Page::of(&query, &found, SnapshotBody::new).map(Json)
}

async fn find(app: &App, principal: &Principal, id: &str) -> Result<Snapshot, Failure> {
    let found = app.sandboxes.snapshots(&principal.caller, Empty {}).await?;
    let found = found.into_iter().find(|snapshot| snapshot.id.as_str() == id);
    found.ok_or_else(|| {
        Failure(Problem::new(Code::NotFound, format!("there is no snapshot {id:?}")))
    })
}

/// `GET /v1/snapshots/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<SnapshotBody>, Failure> {
    Ok(Json(SnapshotBody::new(&find(&app, &principal, &id).await?)))
}

/// `DELETE /v1/snapshots/{id}`.
pub(super) async fn delete(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id: SnapshotId = find(&app, &principal, &id).await?.id;
    app.sandboxes.remove_snapshot(&principal.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
