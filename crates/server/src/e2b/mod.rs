//! The dialect of E2B: its interface for sandboxes at the root of the server, and for each sandbox the
//! interfaces for commands and files (`envd`, port 49983) and for code (port 49999). Released clients address
//! a sandbox by headers, or by the host name of its port.
//!
//! Requests and responses have the form that the clients of E2B 2.31 to 2.63 send and read. Unknown members
//! are accepted, for clients of later versions send more; known ones that have no effect here are refused.
//!
//! Reading order: this file (all routes), `create`, `list` and `lifecycle` (sandboxes), `access` (the
//! tokens), `connect` (the protocol of `process` and `filesystem`), `files`, `interpreter`, `volumes`.

mod access;
mod body;
mod connect;
mod create;
mod failure;
mod files;
mod filesystem;
mod interpreter;
mod lifecycle;
mod list;
mod metadata;
mod network;
mod ports;
mod process;
mod request;
mod secrets;
mod signature;
mod snapshots;
mod templates;
mod unavailable;
mod user;
mod volumes;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware;
use serde_json::json;
use stockade_api::{PortAccess, PortSite, Sandboxes};

use crate::admission::{Admission, authenticate_with};
use crate::auth::HttpAuth;
use crate::code::Engine;
use crate::observe::Watch;
use crate::openapi::{Api, Security, get, post, put};
use crate::opensandbox::now;

pub(crate) use access::{Addressed, Head, resumed, serves_port};
pub(crate) use body::is_of_client;
pub(crate) use failure::{closed_port, not_running};
pub(crate) use ports::by_header;

/// The port of the interfaces for commands and files.
pub(crate) const ENVD_PORT: u16 = 49983;
/// The port of the interface for code.
pub(crate) const INTERPRETER_PORT: u16 = 49999;
/// The header with the token for commands and files.
pub(crate) const ENVD_TOKEN: &str = "X-Access-Token";
/// The header with the token for the ports of a sandbox.
pub(crate) const TRAFFIC_TOKEN: &str = "E2B-Traffic-Access-Token";
/// The version of `envd` whose behaviour clients may expect.
const ENVD_VERSION: &str = "0.6.4";
/// The largest JSON of a request, in bytes.
const REQUEST_BYTES: usize = 16 << 20;
/// The prefix of metadata that clients may not set.
const RESERVED: &str = "e2b.dev/";

/// What the dialect serves.
pub(crate) struct Backend {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    pub(crate) ports: Arc<dyn PortAccess>,
    pub(crate) auth: Arc<HttpAuth>,
    pub(crate) watch: Watch,
    pub(crate) site: PortSite,
    /// Whether ports of programs need no token, where a request does not say so.
    pub(crate) has_public_ports: bool,
    pub(crate) code: Engine,
    /// Whether other servers create sandboxes in the same database.
    pub(crate) is_clustered: bool,
}

/// The shared state of all routes.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    sandboxes: Arc<dyn Sandboxes>,
    ports: Arc<dyn PortAccess>,
    auth: Arc<HttpAuth>,
    watch: Watch,
    site: PortSite,
    has_public_ports: bool,
    is_clustered: bool,
    processes: process::Processes,
    watchers: filesystem::Watchers,
    tokens: signature::Tokens,
    code: Engine,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    pub(crate) fn new(backend: Backend) -> Self {
        let Backend { sandboxes, ports, auth, watch, site, has_public_ports, code, is_clustered } =
            backend;
        Self(Arc::new(Shared {
            sandboxes,
            ports,
            auth,
            watch,
            site,
            has_public_ports,
            is_clustered,
            processes: process::Processes::new(now()),
            watchers: filesystem::Watchers::default(),
            tokens: signature::Tokens::default(),
            code,
        }))
    }
}

/// Every path of the dialect; without anything to serve only for the document.
pub(crate) fn api(app: Option<App>) -> Api {
    let admission = app.as_ref().map(|app| Admission::new(app.auth.clone(), app.watch.clone()));
    let control = control_routes().layered(admission.as_ref(), |router, admission| {
        let state = (admission, failure::refuse as fn(_) -> _);
        router.layer(middleware::from_fn_with_state(state, authenticate_with))
    });
    let envd = envd_routes().layered(app.as_ref(), |router, app| {
        router.layer(middleware::from_fn_with_state(app, access::enter))
    });
    let code = interpreter::routes().layered(app.as_ref(), |router, app| {
        router.layer(middleware::from_fn_with_state(app, access::enter_interpreter))
    });
    let content = volumes::content_routes().layered(app.as_ref(), |router, app| {
        router.layer(middleware::from_fn_with_state(app, volumes::enter))
    });
    control
        .merge(content)
        .merge(envd)
        .merge(code)
        .map(|router| router.layer(DefaultBodyLimit::max(REQUEST_BYTES)))
        .with_state(app)
}

/// The routes of the interface for sandboxes.
fn control_routes() -> Api<App> {
    let create = || {
        post(create::create)
            .body::<create::Request>(&json!({ "templateID": "base" }))
            .get(list::list)
    };
    let connect =
        || post(lifecycle::connect).body::<lifecycle::Connect>(&json!({ "timeout": 300 }));
    let listed = ["metadata", "state", "limit", "nextToken", "order", "template", "startedAfter"];
    Api::new(Security::Key)
        .route("/sandboxes", create().query(&listed))
        .route("/v2/sandboxes", create().query(&listed))
        .route("/sandboxes/metrics", get(list::metrics_of_several).query(&["sandbox_ids"]))
        .route("/sandboxes/{id}", get(list::get).delete(lifecycle::kill))
        .route("/sandboxes/{id}/connect", connect())
        .route("/v2/sandboxes/{id}/connect", connect())
        .route("/sandboxes/{id}/resume", connect())
        .route("/sandboxes/{id}/pause", post(lifecycle::pause).body::<lifecycle::Pause>(&json!({})))
        .route(
            "/sandboxes/{id}/timeout",
            post(lifecycle::set_timeout).body::<lifecycle::Timeout>(&json!({ "timeout": 600 })),
        )
        .route(
            "/sandboxes/{id}/refreshes",
            post(lifecycle::refresh).body::<lifecycle::Refresh>(&json!({ "duration": 60 })),
        )
        .route("/sandboxes/{id}/metrics", get(list::metrics).query(&["start", "end"]))
        .route(
            "/sandboxes/{id}/network",
            put(network::replace).body::<network::Update>(&json!({ "allowOut": ["example.com"] })),
        )
        .route(
            "/sandboxes/{id}/snapshots",
            post(snapshots::create).body::<snapshots::Request>(&json!({})),
        )
        .route(
            "/sandboxes/{id}/fork",
            post(snapshots::fork).body::<snapshots::Fork>(&json!({ "count": 1 })),
        )
        .route(
            "/snapshots",
            get(snapshots::list).query(&["sandboxID", "name", "limit", "nextToken"]),
        )
        .route("/templates/{template}", get(templates::get).delete(templates::delete))
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route(
            "/secrets",
            get(secrets::list)
                .query(&["limit", "nextToken"])
                .post(secrets::create)
                .body::<secrets::NewSecret>(&json!({ "name": "token", "value": "text" })),
        )
        .route(
            "/secrets/{secret}",
            get(secrets::show)
                .delete(secrets::remove)
                .post(secrets::update)
                .body::<secrets::NewValue>(&json!({ "value": "text" })),
        )
        .merge(volumes::routes())
        .merge(unavailable::routes())
}

/// The routes of the interfaces for commands and files.
fn envd_routes() -> Api<App> {
    Api::new(Security::Token(ENVD_TOKEN))
        .merge(process::routes())
        .merge(filesystem::routes())
        .merge(files::routes())
}
