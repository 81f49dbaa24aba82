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
mod diagnostics;
mod egress;
mod endpoints;
mod execd;
mod extensions;
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
mod terminal_clients;
mod unavailable;
mod volumes;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts as _, Request, State};
use axum::http::HeaderValue;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, patch, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use stockade_api::{Problem, Sandboxes};
use stockade_core::Code;

use proxy::OwnPorts;
pub use status::Status;

use crate::auth::{HttpAuth, TcpPeer};
use crate::failure::{self, Failure};
use crate::tcp::{AllowedHosts, guard};

/// The largest JSON of a request, in bytes.
const REQUEST_BYTES: usize = 16 << 20;
/// The header with which clients and the server name a request in messages.
const REQUEST_ID: &str = "x-request-id";
/// The longest name of a request that is repeated in its response.
const REQUEST_ID_BYTES: usize = 128;

/// The shared state of all routes.
#[derive(Debug, Clone)]
struct App {
    sandboxes: Arc<dyn Sandboxes>,
    auth: Arc<HttpAuth>,
    own_ports: OwnPorts,
}

/// Every path of the dialect, and `own`, the paths of Stockade's own one, for the host names that may be
/// served.
pub fn routes(
    sandboxes: Arc<dyn Sandboxes>,
    auth: Arc<HttpAuth>,
    hosts: AllowedHosts,
    own: Router,
) -> Router {
    let own_ports = OwnPorts::new(&sandboxes);
    let app = App { sandboxes, auth, own_ports };
    let lifecycle = Router::new()
        .route("/sandboxes", post(create::create).get(sandboxes::list))
        .route("/sandboxes/{id}", get(sandboxes::get).delete(sandboxes::delete))
        .route("/sandboxes/{id}/pause", post(lifecycle::pause))
        .route("/sandboxes/{id}/resume", post(lifecycle::resume))
        .route("/sandboxes/{id}/renew-expiration", post(lifecycle::renew))
        .route("/sandboxes/{id}/metadata", patch(sandboxes::change_metadata))
        .route(
            "/sandboxes/{id}/networkpolicy",
            get(policy::show).put(policy::replace).patch(policy::change).delete(policy::remove),
        )
        .route("/sandboxes/{id}/endpoints/{port}", get(endpoints::get))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/sandboxes/{id}/diagnostics/logs", get(diagnostics::logs))
        .route("/sandboxes/{id}/diagnostics/events", get(diagnostics::events))
        .route("/sandboxes/{id}/diagnostics/inspect", get(diagnostics::inspect))
        .route("/sandboxes/{id}/diagnostics/summary", get(diagnostics::summary))
        .route("/snapshots", get(snapshots::list))
        .route("/snapshots/{id}", get(snapshots::get).delete(snapshots::delete))
        .route("/metrics/events", post(sandboxes::record_event))
        .merge(unavailable::lifecycle())
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), authenticate));
    // These requests have an access token, which `proxy` checks.
    let ports = Router::new()
        .route("/sandboxes/{id}/proxy/{port}", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/{*path}", any(proxy::serve));
    Router::new()
        .route("/health", get(health))
        .route("/version", get(version))
        .nest("/v1", ports.merge(lifecycle))
        .nest_service(stockade_api::wire::TCP_PREFIX, own)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .layer(middleware::from_fn_with_state(hosts, guard))
        .layer(middleware::from_fn(name_request))
        .with_state(app)
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

/// Determines the caller of a request to the lifecycle interface.
async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let principal = async {
        let peer = request::Peer::from_request_parts(&mut parts, &app).await?;
        app.auth.principal(&parts.headers, &peer.0).await.map_err(Failure)
    };
    match principal.await {
        Ok(principal) => {
            parts.extensions.insert(principal);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// Gives each response the name of its request, which clients show in their messages.
async fn name_request(request: Request, next: Next) -> Response {
    let sent = request.headers().get(REQUEST_ID).filter(|id| id.len() <= REQUEST_ID_BYTES);
    let id = sent
        .cloned()
        .or_else(|| HeaderValue::try_from(uuid::Uuid::now_v7().simple().to_string()).ok());
    let mut response = next.run(request).await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
