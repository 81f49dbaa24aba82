//! `GET` of sandboxes and of what they use.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};
use stockade_api::{ListSandboxes, Sandbox, SandboxList};
use stockade_core::{State as SandboxState, Time};

use super::App;
use super::body::{self, detail, listed};
use super::failure::Refused;
use super::request::{Id, NEXT_TOKEN, Owner, Query, find, page};
use super::volumes::SERVED_VOLUME;
use crate::auth::Principal;
use crate::failure::invalid;
use crate::inside::usage;
use crate::opensandbox::{ISOLATED_IN, now};

/// The states that clients know.
const STATES: [&str; 2] = ["running", "paused"];

/// `GET /sandboxes` and `GET /v2/sandboxes`.
pub(super) async fn list(
    State(app): State<App>,
    Owner(principal): Owner,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Value>>), Refused> {
    let query = Query::parse(query.as_deref());
    let states: Vec<_> = query.words("state").collect();
    if let Some(unknown) = states.iter().find(|state| !STATES.contains(state)) {
        return Err(invalid(format!("there is no state {unknown:?}")).into());
    }
    let metadata = query.one("metadata")?.map(metadata).unwrap_or_default();
    let template = query.one("template")?;
    let started_after = match query.one("startedAfter")? {
        None => None,
        Some(text) => Some(time(text)?),
    };
    let mut found = all(&app, &principal, metadata).await?;
    found.retain(|sandbox| {
        let state = body::state(sandbox.state);
        state.is_some_and(|state| states.is_empty() || states.contains(&state))
            && template.is_none_or(|template| body::template(sandbox) == template)
            && started_after.is_none_or(|after| sandbox.created_at > after)
    });
    match query.one("order")? {
        None | Some("desc") => {}
        Some("asc") => found.reverse(),
        Some(other) => return Err(invalid(format!("there is no order {other:?}")).into()),
    }
    let (found, next) = page(found, |sandbox: &Sandbox| sandbox.id.to_string(), &query)?;
    let mut headers = HeaderMap::new();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        headers.insert(NEXT_TOKEN, next);
    }
    Ok((headers, Json(found.iter().map(listed).collect())))
}

fn time(text: &str) -> Result<Time, Refused> {
    let time = serde_json::from_value(text.into());
    time.map_err(|_| invalid(format!("{text:?} is not a time")).into())
}

/// The value is a query of its own, whose names and values clients have encoded once more.
fn metadata(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let pairs = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
        let mut pairs = url::form_urlencoded::parse(pairs.as_bytes());
        pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
    };
    let pairs = url::form_urlencoded::parse(text.as_bytes());
    pairs.map(|(name, value)| (decoded(&name), decoded(&value))).collect()
}

/// All sandboxes of a principal with that metadata that have not ended, the newest first.
async fn all(
    app: &App,
    principal: &Principal,
    metadata: BTreeMap<String, String>,
) -> Result<Vec<Sandbox>, Refused> {
    let mut request = ListSandboxes { metadata, ..ListSandboxes::default() };
    let mut found = Vec::new();
    loop {
        let SandboxList { sandboxes, more } =
            app.sandboxes.list(&principal.caller, request.clone()).await?;
        request.after = sandboxes.last().map(|sandbox| sandbox.id.clone());
        // A session is part of the sandbox that it is in, and one for the content of a volume no client's own.
        let is_hidden = |it: &Sandbox| {
            [ISOLATED_IN, SERVED_VOLUME].iter().any(|name| it.metadata.contains_key(*name))
        };
        found.extend(sandboxes.into_iter().filter(|it| !is_hidden(it)));
        if !more || request.after.is_none() {
            return Ok(found);
        }
    }
}

/// `GET /sandboxes/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
) -> Result<Json<Value>, Refused> {
    let sandbox = find(&app, &principal, &id).await?;
    Ok(Json(detail(&app, &principal, &sandbox)))
}

/// `GET /sandboxes/{id}/metrics`: what it uses now, if that is in the requested time.
pub(super) async fn metrics(
    State(app): State<App>,
    Owner(principal): Owner,
    Id(id): Id,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Value>>, Refused> {
    let query = Query::parse(query.as_deref());
    let (start, end) = (query.number("start")?, query.number("end")?);
    if let (Some(start), Some(end)) = (start, end)
        && start > end
    {
        return Err(invalid("`start` is after `end`").into());
    }
    let sandbox = find(&app, &principal, &id).await?;
    let seconds = now().as_ms() / 1000;
    let is_now = start.is_none_or(|start| start <= seconds) && end.is_none_or(|end| seconds <= end);
    if !is_now || sandbox.state != SandboxState::Running {
        return Ok(Json(Vec::new()));
    }
    Ok(Json(vec![measured(&app, &principal, &sandbox).await?]))
}

/// `GET /sandboxes/metrics?sandbox_ids=`.
pub(super) async fn metrics_of_several(
    State(app): State<App>,
    Owner(principal): Owner,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refused> {
    let query = Query::parse(query.as_deref());
    let ids: Vec<_> = query.words("sandbox_ids").collect();
    let running = all(&app, &principal, BTreeMap::new()).await?;
    let mut found = serde_json::Map::new();
    for sandbox in running.iter().filter(|sandbox| sandbox.state == SandboxState::Running) {
        if ids.contains(&sandbox.id.as_str()) {
            let measured = measured(&app, &principal, sandbox).await?;
            found.insert(sandbox.id.to_string(), measured);
        }
    }
    Ok(Json(json!({ "sandboxes": found })))
}

async fn measured(app: &App, principal: &Principal, sandbox: &Sandbox) -> Result<Value, Refused> {
    let used = usage::measure(&*app.sandboxes, &principal.caller, sandbox).await?;
    let time = now();
    Ok(json!({
        "timestamp": time,
        "timestampUnix": time.as_ms() / 1000,
        "cpuCount": listed(sandbox)["cpuCount"],
        "cpuUsedPct": used.cpu_used,
        "memUsed": used.memory_bytes,
        "memTotal": used.memory_total_bytes,
        // It is part of the memory that is used.
        "memCache": 0,
        "diskUsed": used.disk_bytes,
        "diskTotal": sandbox.limits.disk_bytes.unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_twice() {
        // What a client sends for {"a b": "c&d"}, once the parameter itself is decoded.
        let expected = BTreeMap::from([("a b".to_owned(), "c&d".to_owned())]);
        assert_eq!(metadata("a%2520b=c%2526d"), expected);
        assert_eq!(metadata("user=me"), BTreeMap::from([("user".to_owned(), "me".to_owned())]));
    }
}
