//! Browsers: the ports of sandboxes under host names of their own (`ports`), logins at an OpenID
//! provider (`login`, `provider`), and the playground. A request belongs to one of them by its host
//! name alone: no path of this server is served under the name of a port, and the reverse.

mod fetch;
mod login;
mod pages;
pub(crate) mod playground;
mod ports;
mod provider;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use stockade_api::{CALLBACK_PATH, OPEN_PATH, PortAccess, PortName, PortSite, Problem, Sandboxes};
use stockade_core::{Code, Door};
use tower::ServiceExt as _;

pub use provider::{LoginOptions, OwnerClaim};

use crate::auth::HttpAuth;
use crate::failure::Failure;
use crate::handover::Handover;
use crate::observe::{Watch, watched};
use crate::openapi::{Operation, Security, Site};
use crate::tcp::{authority, framed, host_name};
use login::Logins;

/// The routes of ports and logins in metrics.
const PORT_ROUTE: &str = "the host name of a port";
const LOGIN_ROUTE: &str = "/auth/{path}";
/// The methods of a port in the document; it has any.
const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "options"];

/// The options of what browsers use.
#[derive(Debug)]
pub struct Options {
    /// The host names of ports.
    pub site: PortSite,
    /// The origin of this server itself, as browsers see it, such as `http://localhost:8080`.
    pub public_origin: String,
    /// The provider of logins; without one, only links from `stockade open` lead to a session.
    pub login: Option<LoginOptions>,
}

/// What the listener serves beside this.
#[derive(Debug)]
pub struct Served {
    /// Every path under the names of the server.
    pub main: Router,
    /// The ports of sandboxes that the server itself has for clients of E2B.
    pub e2b: Router,
    /// Hands requests over to the other servers of the cluster.
    pub(crate) handover: Option<Handover>,
}

/// The shared state.
#[derive(Debug, Clone)]
pub(super) struct Web(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    sandboxes: Arc<dyn Sandboxes>,
    ports: Arc<dyn PortAccess>,
    auth: Arc<HttpAuth>,
    site: PortSite,
    public_origin: String,
    logins: Option<Logins>,
    watch: Watch,
    /// What is served under the names of the server itself.
    main: Router,
    /// What is served on the ports that clients of E2B use.
    e2b: Router,
    /// The other servers of the cluster, if there is one.
    handover: Option<Handover>,
}

impl std::ops::Deref for Web {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Adds the host names of ports, and logins, to what the server serves under its own names. `watch` sees
/// their requests, too.
///
/// # Errors
/// [`Code::InvalidInput`] if the options of logins are invalid.
pub fn routes(
    served: Served,
    options: Options,
    sandboxes: Arc<dyn Sandboxes>,
    ports: Arc<dyn PortAccess>,
    auth: Arc<HttpAuth>,
    watch: Watch,
) -> Result<Router, Problem> {
    let Options { site, public_origin, login } = options;
    let logins = login.map(|login| Logins::new(login, &public_origin)).transpose()?;
    let Served { main, e2b, handover } = served;
    let shared =
        Shared { sandboxes, ports, auth, site, public_origin, logins, watch, main, e2b, handover };
    Ok(Router::new().fallback(dispatch).with_state(Web(Arc::new(shared))))
}

async fn dispatch(State(web): State<Web>, request: Request) -> Response {
    let this = &web;
    match &web.handover {
        None => serve_here(this, request).await,
        Some(handover) => {
            let serve = |request: Request| serve_here(this, request);
            handover.serve(&web.auth, &web.site, request, serve).await
        }
    }
}

async fn serve_here(web: &Web, request: Request) -> Response {
    let host = match authority(request.uri(), request.headers()) {
        Ok(host) => host.to_owned(),
        Err(problem) => return Failure(problem).into_response(),
    };
    let name = host_name(&host);
    let label = name.strip_suffix(web.site.domain.as_str()).and_then(|it| it.strip_suffix('.'));
    if let Some(label) = label {
        let named = PortName::parse(label).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("{label:?} names no port of a sandbox"))
        });
        let serve = |request: Request| async move {
            match named {
                Ok(port) => Box::pin(ports::serve(web, port, host, request)).await,
                Err(problem) => Failure(problem).into_response(),
            }
        };
        let serve = |request: Request| framed(request, serve);
        return Box::pin(watched(&web.watch, Door::Web, PORT_ROUTE, request, serve)).await;
    }
    if let Some(logins) = &web.logins
        && request.uri().path().starts_with(login::PATHS)
    {
        let serve = |request: Request| async move {
            let (parts, _) = request.into_parts();
            logins.serve(web, &host, &parts).await
        };
        let serve = |request: Request| framed(request, serve);
        return watched(&web.watch, Door::Web, LOGIN_ROUTE, request, serve).await;
    }
    match web.main.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// What the document says about logins and the host names of ports.
pub(crate) fn operations() -> Vec<Operation> {
    let get = |path, security, site, name| Operation::new("get", path, security, site, name);
    let mut all = vec![
        get(login::AUTHORIZE, Security::None, Site::Server, "login.start"),
        get(login::CALLBACK, Security::Code, Site::Server, "login.finish"),
        get(OPEN_PATH, Security::Code, Site::Port, "ports.open"),
        get(CALLBACK_PATH, Security::Code, Site::Port, "ports.callback"),
    ];
    for path in ["/", "/{path}"] {
        all.extend(METHODS.iter().map(|method| {
            Operation::new(method, path, Security::Session, Site::Port, "ports.pass_on")
        }));
    }
    all
}
