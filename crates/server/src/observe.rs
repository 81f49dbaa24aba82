//! Sees every request over TCP: names it, counts it, logs it, and records those that were refused before
//! they became an operation.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use stockade_api::{Origin, RecordRefusal};
use stockade_core::{Code, Door};
use tracing::Instrument as _;

use crate::auth::{Principal, TcpPeer, is_link};
use crate::failure::Reported;
use crate::limits::{Limits, Usage, refusal};
use crate::metrics::Metrics;

/// The header with which clients and the server name a request in messages.
const REQUEST_ID: &str = "x-request-id";
/// The longest name of a request that is repeated in its response.
const REQUEST_ID_BYTES: usize = 128;
/// The route of a request without one, in metrics.
const UNKNOWN_ROUTE: &str = "unknown";

/// What sees requests. Its clones are the same.
#[derive(Debug, Clone)]
pub struct Watch {
    pub(crate) usage: Usage,
    pub(crate) metrics: Metrics,
    refusals: Option<Arc<dyn RecordRefusal>>,
}

impl Watch {
    /// Sees requests with these limits. `refusals` records those that are refused.
    pub fn new(limits: Limits, refusals: Option<Arc<dyn RecordRefusal>>) -> Self {
        Self { usage: Usage::new(limits), metrics: Metrics::default(), refusals }
    }
}

/// The name of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Whose request it was, for its log; part of its response.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) owner: String,
    pub(crate) key: Option<String>,
}

impl Seen {
    pub(crate) fn new(principal: &Principal) -> Self {
        Self { owner: principal.caller.owner.to_string(), key: principal.key.clone() }
    }
}

/// Names a principal for its limits.
pub(crate) fn limit_name(principal: &Principal) -> String {
    match &principal.key {
        Some(key) => key.clone(),
        None => format!("owner {}", principal.caller.owner),
    }
}

/// The middleware that sees each request.
pub(crate) async fn observe(State(watch): State<Watch>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| UNKNOWN_ROUTE.to_owned());
    watched(&watch, Door::Http, &route, request, |request| next.run(request)).await
}

/// Sees a request that came through a door, while it is served.
pub(crate) async fn watched<F: Future<Output = Response>>(
    watch: &Watch,
    door: Door,
    route: &str,
    mut request: Request,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    let started = Instant::now();
    let _in_flight = watch.metrics.start();
    let sent = request.headers().get(REQUEST_ID).filter(|id| id.len() <= REQUEST_ID_BYTES);
    let sent = sent.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let id = sent.unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string());
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = request.method().clone();
    let path = without_links(request.uri().path());
    let address = request.extensions().get::<Arc<TcpPeer>>().map(|peer| peer.address);
    let span = tracing::info_span!(
        target: "stockade::http",
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        request = id,
        sandbox = sandbox_of(&path),
        status = tracing::field::Empty,
        code = tracing::field::Empty,
    );
    let mut response = serve(request).instrument(span.clone()).await;
    // The address stands for a client without a principal.
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(address) = address
        && let Err(limited) = watch.usage.admit(&format!("address {}", address.ip().to_canonical()))
    {
        response = refusal(limited);
    }
    let seen = response.extensions().get::<Seen>().cloned();
    let problem = response.extensions().get::<Reported>().map(|reported| reported.0.clone());
    let status = response.status().as_u16();
    let duration = started.elapsed();
    watch.metrics.end(&method, route, status, duration);
    let code = problem.as_ref().map(|problem| problem.code);
    span.record("status", status);
    if let Some(code) = code {
        span.record("code", code.to_string());
    }
    if let (Some(refusals), Some(problem)) = (&watch.refusals, &problem)
        && is_recorded(problem.code, seen.is_some())
    {
        let origin = Origin {
            door,
            key_id: seen.as_ref().and_then(|seen| seen.key.clone()),
            address: address.map(|address| address.to_string()),
            request_id: Some(id.clone()),
            ..Origin::default()
        };
        refusals.record_refusal(&origin, &format!("{method} {path}"), problem).await;
    }
    tracing::info!(
        target: "stockade::http",
        request = id,
        method = %method,
        route,
        sandbox = sandbox_of(&path),
        status,
        code = code.map(|code| code.to_string()),
        owner = seen.as_ref().map(|seen| seen.owner.as_str()),
        key = seen.as_ref().and_then(|seen| seen.key.as_deref()),
        address = address.map(|address| address.to_string()),
        duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        "request"
    );
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// A path without what opens a port.
fn without_links(path: &str) -> String {
    let parts = path.split('/').map(|part| if is_link(part) { "LINK" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Whether a refused request has an audit record here. What became an operation has one already.
const fn is_recorded(code: Code, is_authenticated: bool) -> bool {
    match code {
        Code::RateLimited => true,
        Code::Unauthenticated | Code::Forbidden => !is_authenticated,
        _ => false,
    }
}

/// The id of the sandbox that a path names.
fn sandbox_of(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/v1/sandboxes/")?.split('/').next()?;
    (!id.is_empty() && id.len() <= REQUEST_ID_BYTES).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_is_recorded() {
        let path = "/v1/sandboxes/box/proxy/80~99~key~a~b/x";
        assert_eq!(without_links(path), "/v1/sandboxes/box/proxy/LINK/x");
        assert_eq!(without_links("/v1/sandboxes/box/proxy/80/"), "/v1/sandboxes/box/proxy/80/");
    }

    #[test]
    fn a_path_names_its_sandbox() {
        assert_eq!(sandbox_of("/v1/sandboxes/box/proxy/80/"), Some("box"));
        assert_eq!(sandbox_of("/v1/sandboxes/box"), Some("box"));
        assert_eq!(sandbox_of("/v1/sandboxes"), None);
        assert_eq!(sandbox_of("/v1/sandboxes/"), None);
        assert_eq!(sandbox_of("/health"), None);
    }
}
