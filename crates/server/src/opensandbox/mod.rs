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
mod credentials;
mod diagnostics;
mod egress;
mod endpoints;
mod execd;
mod extensions;
mod lifecycle;
mod limits;
mod policy;
mod pools;
mod proxy;
mod proxy_config;
mod request;
mod sandboxes;
mod snapshots;
mod snapshots_in_use;
mod status;
mod target;
mod terminal_clients;
mod unavailable;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use stockade_api::{PortAccess, Problem, Sandboxes};
use stockade_core::Code;

pub(crate) use egress::written;
pub(crate) use execd::isolated::{ISOLATED_IN, end_sessions};
pub use pools::Pool;
use proxy::OwnPorts;
pub(crate) use request::now;
pub use status::Status;

pub(crate) use target::EXECD_PORT;
use target::{EGRESS_PORT, PORT_TOKEN};

use crate::admission::{Admission, authenticate};
use crate::auth::{HttpAuth, Principal, TcpPeer};
use crate::code::Engine;
use crate::failure::{Failure, unknown, wrong_method};
use crate::metrics::MEDIA_TYPE;
use crate::observe::Watch;
use crate::openapi::{Api, Security, any, get, patch, post};

/// The largest JSON of a request, in bytes.
const REQUEST_BYTES: usize = 16 << 20;

/// The shared state of all routes.
#[derive(Debug, Clone)]
struct App {
    sandboxes: Arc<dyn Sandboxes>,
    auth: Arc<HttpAuth>,
    ports: Arc<dyn PortAccess>,
    own_ports: OwnPorts,
    watch: Watch,
    pool: Pool,
}

/// What the dialect serves.
pub(crate) struct Backend {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    pub(crate) ports: Arc<dyn PortAccess>,
    pub(crate) auth: Arc<HttpAuth>,
    pub(crate) watch: Watch,
    pub(crate) code: Engine,
    pub(crate) pool: Pool,
}

/// Every path of the dialect; without anything to serve only for the document.
pub(crate) fn api(served: Option<Backend>) -> Api {
    let app = served.map(|Backend { sandboxes, ports, auth, watch, code, pool }| {
        let own_ports = OwnPorts::new(&sandboxes, &code);
        App { sandboxes, auth, ports, own_ports, watch, pool }
    });
    let admission = app.as_ref().map(|app| Admission::new(app.auth.clone(), app.watch.clone()));
    let authenticated = |api: Api<App>| {
        api.layered(admission.as_ref(), |router, admission| {
            router.layer(middleware::from_fn_with_state(admission, authenticate))
        })
    };
    let lifecycle = authenticated(lifecycle_routes());
    let metrics = authenticated(Api::new(Security::Admin).route("/metrics", get(metrics)));
    // These requests have an access token, which `proxy` checks.
    let ports = Api::new(Security::Token(PORT_TOKEN))
        .route("/sandboxes/{id}/proxy/{port}", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/", any(proxy::serve))
        .route("/sandboxes/{id}/proxy/{port}/{*path}", any(proxy::serve));
    let execd = execd::routes(None).into_parts().1;
    let egress = egress::routes().into_parts().1;
    Api::new(Security::None)
        .route("/health", get(health))
        .route("/version", get(version))
        .merge(metrics)
        .nest("/v1", ports.merge(lifecycle))
        .list(&format!("/v1/sandboxes/{{id}}/proxy/{EXECD_PORT}"), execd)
        .list(&format!("/v1/sandboxes/{{id}}/proxy/{EGRESS_PORT}"), egress)
        .method_not_allowed_fallback(wrong_method)
        .map(|router| router.layer(DefaultBodyLimit::max(REQUEST_BYTES)))
        .with_state(app)
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
        .route(
            "/sandboxes/{id}/endpoints/{port}",
            get(endpoints::get).query(&["use_server_proxy", "expires"]),
        )
        .route(
            "/sandboxes/{id}/snapshots",
            post(snapshots::create).body::<snapshots::Request>(&json!({})),
        )
        .route("/sandboxes/{id}/diagnostics/logs", get(diagnostics::logs).query(&["scope", "tail"]))
        .route(
            "/sandboxes/{id}/diagnostics/events",
            get(diagnostics::events).query(&["scope", "limit"]),
        )
        .route("/sandboxes/{id}/diagnostics/inspect", get(diagnostics::inspect))
        .route(
            "/sandboxes/{id}/diagnostics/summary",
            get(diagnostics::summary).query(&["tail", "event_limit"]),
        )
        .route(
            "/snapshots",
            get(snapshots::list).query(&["sandboxId", "name", "state", "page", "pageSize"]),
        )
        .route("/snapshots/{id}", get(snapshots::get).delete(snapshots::delete))
        .route("/metrics/events", post(sandboxes::record_event))
        .merge(pools::routes())
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
