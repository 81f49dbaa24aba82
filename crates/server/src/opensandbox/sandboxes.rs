//! Sandboxes: their form in responses, and `GET`, `DELETE` and `PATCH` below `/v1/sandboxes`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stockade_api::{
    Caller, ChangeMetadata, GetSandbox, KillSandbox, ListSandboxes, Sandbox, SandboxList,
};
use stockade_core::Time;

use super::execd::isolated::{ISOLATED_IN, end_sessions};
use super::pools::POOL_REF;
use super::request::{Id, JsonBody, Query};
use super::{App, Status};
use crate::auth::Principal;
use crate::failure::{Failure, invalid};
use crate::renewal;

/// The prefix of metadata that clients may not set.
pub(super) const RESERVED: &str = "opensandbox.io/";
/// The metadata with the entrypoint of a sandbox, as JSON.
pub(super) const ENTRYPOINT: &str = "opensandbox.io/entrypoint";
/// States that sandboxes of other servers of this protocol have.
const OTHER_STATES: [&str; 2] = ["Allocated", "Unknown"];
/// The number of sandboxes on a page, and the largest.
const PAGE: u64 = 20;
const LARGEST_PAGE: u64 = 200;

/// A sandbox in a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxBody {
    id: String,
    status: StatusBody,
    created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Time>,
    entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<ImageBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_id: Option<String>,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extensions: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation: Option<Allocation>,
}

/// From which pool a sandbox was requested.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocation {
    mode: &'static str,
    pool_ref: String,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct StatusBody {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct ImageBody {
    uri: String,
}

impl SandboxBody {
    pub(super) fn new(sandbox: &Sandbox) -> Self {
        let (snapshot_id, image) = match sandbox.image.strip_prefix("snapshot:") {
            Some(id) => (Some(id.to_owned()), None),
            None => (None, Some(ImageBody { uri: sandbox.image.clone() })),
        };
        let mut metadata = sandbox.metadata.clone();
        let entrypoint = metadata.get(ENTRYPOINT).and_then(|text| serde_json::from_str(text).ok());
        let extensions = renewal::extensions(&metadata);
        let pool_ref = extensions.as_ref().and_then(|all| all.get(POOL_REF)).cloned();
        let allocation =
            pool_ref.map(|pool_ref| Allocation { mode: "pool", pool_ref, state: "allocated" });
        metadata.retain(|name, _| !name.starts_with(RESERVED));
        Self {
            id: sandbox.id.to_string(),
            status: StatusBody {
                state: Status::of(sandbox.state, None).as_str(),
                reason: sandbox.reason.clone(),
            },
            created_at: sandbox.created_at,
            expires_at: sandbox.expires_at,
            entrypoint: entrypoint.unwrap_or_default(),
            image,
            snapshot_id,
            metadata,
            extensions,
            allocation,
        }
    }
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    items: Vec<T>,
    pagination: Pagination,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pagination {
    page: u64,
    page_size: u64,
    total_items: u64,
    total_pages: u64,
    has_next_page: bool,
}

impl<T> Page<T> {
    /// The page that a query requests.
    pub(super) fn of<S>(query: &Query, all: &[S], body: impl Fn(&S) -> T) -> Result<Self, Failure> {
        let page = query.number("page")?.unwrap_or(1);
        let page_size = query.number("pageSize")?.unwrap_or(PAGE);
        if page == 0 || page_size == 0 || page_size > LARGEST_PAGE {
            let message = format!("`page` begins at 1, and `pageSize` is 1 to {LARGEST_PAGE}");
            return Err(invalid(message));
        }
        let total_items = all.len() as u64;
        let total_pages = total_items.div_ceil(page_size);
        let before = usize::try_from((page - 1).saturating_mul(page_size)).unwrap_or(usize::MAX);
        let length = usize::try_from(page_size).unwrap_or(usize::MAX);
        Ok(Self {
            items: all.iter().skip(before).take(length).map(body).collect(),
            pagination: Pagination {
                page,
                page_size,
                total_items,
                total_pages,
                has_next_page: page < total_pages,
            },
        })
    }
}

/// The sandbox of a request.
pub(super) async fn find(
    app: &App,
    caller: &Caller,
    id: &stockade_core::SandboxId,
) -> Result<Sandbox, Failure> {
    let request = GetSandbox { id: id.clone(), metrics: false };
    Ok(app.sandboxes.get_status(caller, request).await?)
}

/// `GET /v1/sandboxes/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<Json<SandboxBody>, Failure> {
    Ok(Json(SandboxBody::new(&find(&app, &principal.caller, &id).await?)))
}

/// `DELETE /v1/sandboxes/{id}`.
pub(super) async fn delete(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<StatusCode, Failure> {
    end_sessions(&*app.sandboxes, &principal.caller, &id).await?;
    app.sandboxes.kill(&principal.caller, KillSandbox::new(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sandboxes`.
pub(super) async fn list(
    State(app): State<App>,
    principal: Principal,
    RawQuery(query): RawQuery,
) -> Result<Json<Page<SandboxBody>>, Failure> {
    let known = ["state", "metadata", "page", "pageSize"];
    let query = Query::parse(query.as_deref(), &known)?;
    let statuses: Vec<Status> = query
        .all("state")
        .filter(|name| !OTHER_STATES.contains(name))
        .map(|name| name.parse().map_err(|_| invalid(format!("there is no state {name:?}"))))
        .collect::<Result<_, _>>()?;
    let states = stockade_core::State::ALL.iter().copied();
    let states = states.filter(|state| statuses.contains(&Status::of(*state, None)));
    let mut request = ListSandboxes { states: states.collect(), ..ListSandboxes::default() };
    // The value is a query of its own, as `k=v&k=v`.
    for pairs in query.all("metadata") {
        let pairs = url::form_urlencoded::parse(pairs.as_bytes());
        request.metadata.extend(pairs.into_owned());
    }
    let mut found = Vec::new();
    let selects_states = query.all("state").next().is_some();
    // A transitional state is one that no sandbox has at rest.
    while !selects_states || !request.states.is_empty() {
        let list = app.sandboxes.list(&principal.caller, request.clone()).await?;
        let SandboxList { sandboxes, more } = list;
        request.after = sandboxes.last().map(|sandbox| sandbox.id.clone());
        // A session is listed by the sandbox that it is in.
        let own = sandboxes.into_iter().filter(|it| !it.metadata.contains_key(ISOLATED_IN));
        found.extend(own);
        if !more || request.after.is_none() {
            break;
        }
    }
    Page::of(&query, &found, SandboxBody::new).map(Json)
}

/// How many sandboxes the caller has in each state, without terminated ones.
pub(super) async fn count(app: &App, caller: &Caller) -> Result<Vec<(String, u64)>, Failure> {
    use stockade_core::State;
    let states = State::ALL.iter().copied().filter(|state| *state != State::Terminated);
    let mut request = ListSandboxes { states: states.collect(), ..ListSandboxes::default() };
    let mut counts: Vec<_> = request.states.iter().map(|state| (*state, 0)).collect();
    loop {
        let SandboxList { sandboxes, more } = app.sandboxes.list(caller, request.clone()).await?;
        for sandbox in &sandboxes {
            let count = counts.iter_mut().find(|(state, _)| *state == sandbox.state);
            if let Some((_, count)) = count {
                *count += 1;
            }
        }
        request.after = sandboxes.last().map(|sandbox| sandbox.id.clone());
        if !more || request.after.is_none() {
            return Ok(counts.into_iter().map(|(state, n)| (state.to_string(), n)).collect());
        }
    }
}

/// `PATCH /v1/sandboxes/{id}/metadata`.
pub(super) async fn change_metadata(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    JsonBody(metadata): JsonBody<BTreeMap<String, Option<String>>>,
) -> Result<Json<SandboxBody>, Failure> {
    if let Some(name) = metadata.keys().find(|name| name.starts_with(RESERVED)) {
        return Err(invalid(format!("the metadata {name:?} has the reserved prefix {RESERVED}")));
    }
    let request = ChangeMetadata { id, metadata };
    let changed = app.sandboxes.change_metadata(&principal.caller, request).await?;
    Ok(Json(SandboxBody::new(&changed)))
}

/// What a client measured when it created a sandbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "the client's own measurement is checked and not used")]
pub(super) struct MetricsEvent {
    event_type: String,
    create_duration_ms: u64,
    success: bool,
    #[serde(default)]
    sandbox_id: Option<String>,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    sdk_language: Option<String>,
    #[serde(default)]
    sdk_version: Option<String>,
}

/// `POST /v1/metrics/events`. The server measures by itself; the measurements of clients are not
/// trusted.
pub(super) async fn record_event(_: Principal, _: JsonBody<MetricsEvent>) -> StatusCode {
    StatusCode::NO_CONTENT
}
