//! Snapshots of the files of a sandbox, and forks: new sandboxes with a copy of them.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{
    Bytes, CreateSandbox, Empty, Expiry, Network, Restore, Sandbox, Snapshot, TakeSnapshot,
};
use stockade_core::access::Effect;
use stockade_core::network::AllowedHost;

use super::App;
use super::body::Credentials;
use super::create::seconds;
use super::failure::{Refused, message};
use super::request::{Id, JsonBody, NEXT_TOKEN, Owner, Query, find, page};
use crate::failure::{invalid, unsupported};
use crate::opensandbox::written;

/// How many forks one request may have.
const FORKS: u32 = 20;
/// The time to live of a fork, in seconds.
const TIMEOUT: i64 = 300;

/// The request for a snapshot.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Request {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    memory: Option<bool>,
}

fn body(snapshot: &Snapshot) -> Value {
    let names: Vec<_> = snapshot.name.iter().collect();
    json!({
        "snapshotID": snapshot.id.as_str(),
        "names": names,
        "createdAt": snapshot.created_at,
        "sandboxID": snapshot.sandbox_id.as_str(),
    })
}

/// `POST /sandboxes/{id}/snapshots`: of its files. Processes continue, and are not part of it.
pub(super) async fn create(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(sandbox_id): Id,
    JsonBody(Request { name, memory }): JsonBody<Request>,
) -> Result<(StatusCode, Json<Value>), Refused> {
    if memory == Some(true) {
        return Err(unsupported("a snapshot with `memory`").into());
    }
    find(&app, &principal, &sandbox_id).await?;
    let request = TakeSnapshot { sandbox_id, id: None, name };
    let taken = app.sandboxes.snapshot(&principal.caller, request).await?;
    Ok((StatusCode::CREATED, Json(body(&taken))))
}

/// `GET /snapshots`.
pub(super) async fn list(
    State(app): State<App>,
    Owner(principal): Owner,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Value>>), Refused> {
    let query = Query::parse(query.as_deref());
    let mut found = app.sandboxes.snapshots(&principal.caller, Empty {}).await?;
    if let Some(id) = query.one("sandboxID")? {
        found.retain(|snapshot| snapshot.sandbox_id.as_str() == id);
    }
    if let Some(name) = query.one("name")? {
        found.retain(|snapshot| snapshot.name.as_deref() == Some(name));
    }
    let (found, next) = page(found, |snapshot: &Snapshot| snapshot.id.to_string(), &query)?;
    let mut headers = HeaderMap::new();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        headers.insert(NEXT_TOKEN, next);
    }
    Ok((headers, Json(found.iter().map(body).collect())))
}

/// The request for forks.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Fork {
    /// In seconds.
    #[serde(default)]
    timeout: Option<i64>,
    #[serde(default)]
    count: Option<u32>,
}

/// `POST /sandboxes/{id}/fork`: new sandboxes with a copy of its files. It continues.
pub(super) async fn fork(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    JsonBody(Fork { timeout, count }): JsonBody<Fork>,
) -> Result<(StatusCode, Json<Vec<Value>>), Refused> {
    let count = count.unwrap_or(1);
    if !(1..=FORKS).contains(&count) {
        return Err(invalid(format!("`count` is 1 to {FORKS}")).into());
    }
    let ttl = seconds(timeout.unwrap_or(TIMEOUT))?;
    let parent = find(&app, &principal, &id).await?;
    let mut caller = principal.caller.clone();
    caller.idempotency_key = None;
    let request = TakeSnapshot { sandbox_id: id, id: None, name: None };
    let snapshot = app.sandboxes.snapshot(&caller, request).await?;
    let mut forks = Vec::new();
    for _ in 0..count {
        let sandbox = copy(&parent, ttl)?;
        let restore = Restore { snapshot_id: snapshot.id.clone(), sandbox };
        forks.push(match app.sandboxes.restore(&caller, restore).await {
            Ok(created) => json!({ "sandbox": Credentials::new(&app, &principal, &created) }),
            Err(problem) => json!({
                "error": { "code": problem.code.http_status(), "message": message(&problem) },
            }),
        });
    }
    app.sandboxes.remove_snapshot(&caller, snapshot.id).await?;
    Ok((StatusCode::CREATED, Json(forks)))
}

/// The request for a sandbox like another one.
fn copy(parent: &Sandbox, ttl: f64) -> Result<CreateSandbox, Refused> {
    let id = uuid::Uuid::new_v4().simple().to_string()[..20].to_owned();
    let id = stockade_core::SandboxId::new(format!("i{id}"));
    let id = id.map_err(|error| invalid(error.to_string()))?;
    let network = match &parent.network {
        None => None,
        Some(network) => {
            let hosts = |effect: Effect| {
                let rules = network.policy.rules().iter().filter(|rule| rule.action == effect);
                rules.map(|rule| Ok(written(rule)?)).collect::<Result<Vec<AllowedHost>, Refused>>()
            };
            Some(Network {
                default: network.policy.default_effect(),
                allow: hosts(Effect::Allow)?,
                deny: hosts(Effect::Deny)?,
                limits: network.policy.limits(),
                ..Network::default()
            })
        }
    };
    let environment = [("E2B_SANDBOX", "true"), ("E2B_SANDBOX_ID", id.as_str())]
        .map(|(name, value)| (name.to_owned(), Bytes::from(value)));
    Ok(CreateSandbox {
        environment: environment.into(),
        sudo: true,
        id: Some(id),
        metadata: parent.metadata.clone(),
        limits: parent.limits,
        default_uid: parent.default_uid,
        users: parent.users.clone(),
        working_directory: parent.working_directory.clone(),
        network,
        expiry: Expiry::Seconds(ttl),
        on_expiry: Some(parent.on_expiry),
        keep: parent.keep,
        ..CreateSandbox::default()
    })
}
