//! `/volumes` of E2B, which are those of the caller, and `/volumecontent`: the files in one. Its id is its name. `access` checks
//! the token of a request for content, `content` serves it, in a sandbox that `sandbox` starts for the request.

mod access;
mod content;
mod entry;
mod sandbox;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stockade_api::{Caller, CreateVolume, Empty, VolumeByName, VolumeMount, VolumeRecord};
use stockade_core::{Code, Problem, VolumeName};

use super::App;
use super::failure::Refused;
use super::request::{JsonBody, Owner};
use crate::auth::Principal;
use crate::failure::invalid;
use crate::openapi::{Api, Security, get};

pub(super) use access::enter;
pub(super) use content::routes as content_routes;
pub(super) use sandbox::SERVED_VOLUME;

/// The routes for volumes themselves.
pub(super) fn routes() -> Api<App> {
    Api::new(Security::Key)
        .route("/volumes", get(list).post(create).body::<NewVolume>(&json!({ "name": "data" })))
        .route("/volumes/{volume}", get(show).delete(remove))
}

/// The request for a volume.
#[derive(Deserialize, JsonSchema)]
struct NewVolume {
    name: String,
}

/// A volume in a list.
#[derive(Serialize)]
struct Listed {
    #[serde(rename = "volumeID")]
    id: String,
    name: String,
}

/// A volume, with the token for its content.
#[derive(Serialize)]
struct Opened {
    #[serde(flatten)]
    volume: Listed,
    token: String,
}

impl Listed {
    fn of(name: &VolumeName) -> Self {
        Self { id: name.to_string(), name: name.to_string() }
    }
}

impl Opened {
    fn of(app: &App, principal: &Principal, volume: &VolumeRecord) -> Json<Self> {
        let token = app.auth.volume_token(principal, volume);
        Json(Self { volume: Listed::of(&volume.name), token })
    }
}

fn absent(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no volume {name:?}"))
}

/// The caller, for operations beside the one that its idempotency key is for.
fn without_key(principal: &Principal) -> Caller {
    let mut caller = principal.caller.clone();
    caller.idempotency_key = None;
    caller
}

/// A volume of the caller that is no cache: those are for the sandboxes of their project.
async fn find(app: &App, principal: &Principal, name: &str) -> Result<VolumeRecord, Problem> {
    let known = VolumeName::new(name).map_err(|_| absent(name))?;
    let request = VolumeByName { name: known };
    let found = app.sandboxes.find_volume(&without_key(principal), request).await;
    match found {
        Ok(volume) if volume.cache().is_none() => Ok(volume),
        Ok(_) => Err(absent(name)),
        Err(problem) if problem.code == Code::NotFound => Err(absent(name)),
        Err(problem) => Err(problem),
    }
}

/// Refuses to mount a volume that there is not. Clients create volumes before they mount them.
pub(super) async fn require(
    app: &App,
    principal: &Principal,
    mounts: &[VolumeMount],
) -> Result<(), Refused> {
    for mount in mounts {
        find(app, principal, mount.name.as_str()).await.map_err(|problem| match problem.code {
            Code::NotFound => invalid(problem.message).0,
            _ => problem,
        })?;
    }
    Ok(())
}

/// `GET /volumes`.
async fn list(
    State(app): State<App>,
    Owner(principal): Owner,
) -> Result<Json<Vec<Listed>>, Refused> {
    let all = app.sandboxes.volumes(&principal.caller, Empty {}).await?;
    let own = all.volumes.iter().filter(|volume| volume.cache().is_none());
    Ok(Json(own.map(|volume| Listed::of(&volume.name)).collect()))
}

/// `POST /volumes`.
async fn create(
    State(app): State<App>,
    Owner(principal): Owner,
    JsonBody(NewVolume { name }): JsonBody<NewVolume>,
) -> Result<(StatusCode, Json<Opened>), Refused> {
    let known = VolumeName::new(name.as_str()).map_err(|error| invalid(error.to_string()))?;
    match find(&app, &principal, &name).await {
        Err(problem) if problem.code == Code::NotFound => {}
        Err(problem) => return Err(problem.into()),
        Ok(_) => {
            let message = format!("there is a volume {name:?} already");
            return Err(Problem::new(Code::Conflict, message).into());
        }
    }
    let request = CreateVolume { name: Some(known), ..CreateVolume::default() };
    let created = app.sandboxes.create_volume(&principal.caller, request).await?;
    Ok((StatusCode::CREATED, Opened::of(&app, &principal, &created.into())))
}

/// `GET /volumes/{volume}`.
async fn show(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(name): Path<String>,
) -> Result<Json<Opened>, Refused> {
    let volume = find(&app, &principal, &name).await?;
    Ok(Opened::of(&app, &principal, &volume))
}

/// `DELETE /volumes/{volume}`.
async fn remove(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    let volume = find(&app, &principal, &name).await?;
    sandbox::end_all(&app, &without_key(&principal), &volume.name).await?;
    let request = VolumeByName { name: volume.name };
    app.sandboxes.remove_volume(&principal.caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
