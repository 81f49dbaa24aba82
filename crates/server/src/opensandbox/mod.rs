//! The dialect of OpenSandbox: its lifecycle interface below `/v1`, and below
//! `/v1/sandboxes/{id}/proxy/{port}` its interfaces for commands and files (`execd`), for the
//! network policy (`egress`), and the ports of sandboxes.
//!
//! Requests and responses have the form that the clients of OpenSandbox 1.1.1 send and read. What is
//! not available is refused with 501; no member of a request is ignored.
//!
//! Reading order: this file (all routes), `request` (what all routes share),
//! `sandboxes` and the other groups of routes of the lifecycle, `proxy`, `execd`.

mod create;
mod egress;
mod endpoints;
mod execd;
mod lifecycle;
mod limits;
mod names;
mod policy;
mod port;
mod proxy;
mod request;
mod sandboxes;
mod snapshots;
mod status;
mod target;
mod unavailable;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts as _, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use stockade_api::{Problem, Sandboxes};
use stockade_core::Code;

use proxy::OwnPorts;
pub use status::Status;

use target::{EGRESS_PORT, EXECD_PORT, PORT_TOKEN};

use crate::auth::{HttpAuth, Principal, TcpPeer};
use crate::failure::{self, Failure};
use crate::limits::refusal;
use crate::metered::Metered;
use crate::metrics::MEDIA_TYPE;
use crate::observe::{RequestId, Seen, Watch, limit_name, observe};
use crate::openapi::{Api, Security, any, document, get, patch, post};
use crate::tcp::{AllowedHosts, guard};

/// The largest JSON of a request, in bytes.
const REQUEST_BYTES: usize = 16 << 20;

/// The shared state of all routes.
#[derive(Debug, Clone)]
struct App {
    sandboxes: Arc<dyn Sandboxes>,
    auth: Arc<HttpAuth>,
    own_ports: OwnPorts,
    watch: Watch,
}

/// Every path of the dialect, for the host names that may be served. `watch` sees each request.
pub fn routes(
    sandboxes: Arc<dyn Sandboxes>,
    auth: Arc<HttpAuth>,
    hosts: AllowedHosts,
    watch: Watch,
) -> Router {
    let own_ports = OwnPorts::new(&sandboxes);
    let app = App { sandboxes, auth, own_ports, watch: watch.clone() };
    let (routes, _) = api(Some(&app)).into_parts();
    routes
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .layer(middleware::from_fn_with_state(hosts, guard))
        .layer(middleware::from_fn_with_state(watch, observe))
        .with_state(app)
}

/// The OpenAPI document of all routes.
pub fn openapi() -> Value {
    let (_, operations) = api(None).into_parts();
    document(&operations)
}

/// All routes; without `app` only for the document.
fn api(app: Option<&App>) -> Api<App> {
    let authenticated = |api: Api<App>| match app {
        Some(app) => api
            .map(|router| router.layer(middleware::from_fn_with_state(app.clone(), authenticate))),
        None => api,
    };
    let lifecycle = authenticated(lifecycle_routes());
    let metrics = authenticated(Api::new(Security::Admin).route("/metrics", get(metrics)));
    // These requests have an access token, which `proxy` checks.
    let ports = Api::new(Security::Token(PORT_TOKEN))
        .route("/sandboxes/{id}/proxy/{port}", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/{*path}", any(proxy::serve));
    let execd = execd::routes().into_parts().1;
    let egress = egress::routes().into_parts().1;
    Api::new(Security::None)
        .route("/health", get(health))
        .route("/version", get(version))
        .merge(metrics)
        .nest("/v1", ports.merge(lifecycle))
        .list(&format!("/v1/sandboxes/{{id}}/proxy/{EXECD_PORT}"), execd)
        .list(&format!("/v1/sandboxes/{{id}}/proxy/{EGRESS_PORT}"), egress)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
}

/// The routes of the lifecycle interface.
fn lifecycle_routes() -> Api<App> {
    let rules = json!([{ "action": "allow", "target": "example.com" }]);
    Api::new(Security::Key)
        .route(
            "/sandboxes",
            post(create::create)
                .body::<create::Request>(&json!({
                    "image": { "uri": "host" }, "timeout": 600, "entrypoint": []
                }))
                .get(sandboxes::list)
                .query(&["state", "metadata", "page", "pageSize"]),
        )
        .route("/sandboxes/{id}", get(sandboxes::get).delete(sandboxes::delete))
        .route("/sandboxes/{id}/pause", post(lifecycle::pause))
        .route("/sandboxes/{id}/resume", post(lifecycle::resume))
        .route(
            "/sandboxes/{id}/renew-expiration",
            post(lifecycle::renew).body::<lifecycle::Expiration>(
                &json!({ "expiresAt": "2099-01-01T00:00:00+00:00" }),
            ),
        )
        .route(
            "/sandboxes/{id}/metadata",
            patch(sandboxes::change_metadata)
                .body::<BTreeMap<String, Option<String>>>(&json!({ "a": "b" })),
        )
        .route(
            "/sandboxes/{id}/networkpolicy",
            get(policy::show)
                .put(policy::replace)
                .body::<egress::Policy>(&json!({ "egress": rules }))
                .patch(policy::change)
                .body::<Vec<egress::Rule>>(&rules)
                .delete(policy::remove)
                .body::<Vec<String>>(&json!(["example.com"])),
        )
        .route("/sandboxes/{id}/endpoints/{port}", get(endpoints::get).query(&["use_server_proxy"]))
        .route(
            "/sandboxes/{id}/snapshots",
            post(snapshots::create).body::<snapshots::Request>(&json!({})),
        )
        .route("/snapshots", get(snapshots::list))
        .route("/snapshots/{id}", get(snapshots::get).delete(snapshots::delete))
        .route("/metrics/events", post(sandboxes::record_event))
        .merge(unavailable::lifecycle())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
}

/// The metrics of the listener. They name no sandbox, but show what all clients do.
async fn metrics(State(app): State<App>, principal: Principal) -> Result<Response, Failure> {
    if !principal.caller.admin {
        let problem = Problem::new(Code::Forbidden, "only an admin may read the metrics")
            .because("the API key of the request has no admin scope")
            .remedied_by("stockade keys create --admin");
        return Err(problem.into());
    }
    let counts = sandboxes::count(&app, &principal.caller).await?;
    let text = app.watch.metrics.text(&counts);
    let text = text.map_err(|error| Problem::caused(Code::Io, &error))?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy" }))
}

async fn version() -> Json<Value> {
    Json(json!({ "name": "stockade", "version": env!("CARGO_PKG_VERSION") }))
}

async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {}", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}

async fn wrong_method(request: Request) -> Response {
    let message = format!("the path {} has no method {}", request.uri().path(), request.method());
    failure::method_not_allowed(Problem::new(Code::InvalidInput, message))
}

/// Determines the caller of a request, and checks its limits.
async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let principal = async {
        let peer = request::Peer::from_request_parts(&mut parts, &app).await?;
        app.auth.principal(&parts.headers, &peer.0).await.map_err(Failure)
    };
    let mut principal = match principal.await {
        Ok(principal) => principal,
        Err(failure) => return failure.into_response(),
    };
    let id = parts.extensions.get::<RequestId>().map(|id| id.0.clone());
    principal.caller.origin.request_id = id;
    let (seen, name) = (Seen::new(&principal), limit_name(&principal));
    let usage = app.watch.usage.clone();
    let mut response = match usage.admit(&name) {
        Err(limited) => refusal(limited),
        Ok(()) => {
            parts.extensions.insert(principal);
            let body = Metered::request(body, usage.clone(), name.clone(), false);
            let response = next.run(Request::from_parts(parts, body)).await;
            response.map(|body| Metered::response(body, usage, name))
        }
    };
    response.extensions_mut().insert(seen);
    response
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The variable that makes the test write the document.
    const WRITE: &str = "STOCKADE_WRITE_OPENAPI";

    #[test]
    fn the_document_is_that_of_the_routes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let current = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &current).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let is_same = stored == current;
        assert!(is_same, "docs/openapi.json is older than the routes; write it with {WRITE}=1");
    }

    #[test]
    fn only_health_and_version_are_open() {
        let document = openapi();
        let mut open = Vec::new();
        let mut ids = std::collections::BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if operation["security"] == json!([]) {
                    open.push(format!("{method} {path}"));
                }
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} names two operations");
            }
        }
        assert_eq!(open, ["get /health", "get /version"]);
        // Those of the ports that the server itself serves are in it, too.
        for path in [
            "/v1/sandboxes",
            "/v1/sandboxes/{id}/proxy/{port}/{path}",
            "/v1/sandboxes/{id}/proxy/44772/files/upload",
            "/v1/sandboxes/{id}/proxy/18080/policy",
        ] {
            assert!(document["paths"][path].is_object(), "{path}");
        }
    }
}
