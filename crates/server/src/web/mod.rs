//! Browsers: the ports of sandboxes under host names of their own (`ports`), logins at an OpenID
//! provider (`login`, `provider`), and the playground. A request belongs to one of them by its host
//! name alone: no path of this server is served under the name of a port, and the reverse.

pub(crate) mod cookies;
mod fetch;
mod login;
mod pages;
mod playground;
mod ports;
mod provider;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use stockade_api::{PortAccess, PortName, PortSite, Problem, Sandboxes};
use stockade_core::Code;
use tower::ServiceExt as _;

pub use playground::routes as playground_routes;
pub use provider::{LoginOptions, OwnerClaim};

use crate::auth::HttpAuth;
use crate::failure::Failure;
use crate::tcp::{authority, host_name};
use login::Logins;

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
    /// What is served under the names of the server itself.
    main: Router,
}

impl std::ops::Deref for Web {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Adds the host names of ports, and logins, to what the server serves under its own names.
///
/// # Errors
/// [`Code::InvalidInput`] if the options of logins are invalid.
pub fn routes(
    main: Router,
    options: Options,
    sandboxes: Arc<dyn Sandboxes>,
    ports: Arc<dyn PortAccess>,
    auth: Arc<HttpAuth>,
) -> Result<Router, Problem> {
    let Options { site, public_origin, login } = options;
    let logins = login.map(|login| Logins::new(login, &public_origin)).transpose()?;
    let shared = Shared { sandboxes, ports, auth, site, public_origin, logins, main };
    Ok(Router::new().fallback(dispatch).with_state(Web(Arc::new(shared))))
}

async fn dispatch(State(web): State<Web>, request: Request) -> Response {
    let host = match authority(request.uri(), request.headers()) {
        Ok(host) => host.to_owned(),
        Err(problem) => return Failure(problem).into_response(),
    };
    let name = host_name(&host);
    let label = name.strip_suffix(web.site.domain.as_str()).and_then(|it| it.strip_suffix('.'));
    if let Some(label) = label {
        return match PortName::parse(label) {
            Some(port) => ports::serve(&web, port, host, request).await,
            None => {
                let message = format!("{label:?} names no port of a sandbox");
                Failure(Problem::new(Code::NotFound, message)).into_response()
            }
        };
    }
    if let Some(logins) = &web.logins
        && request.uri().path().starts_with(login::PATHS)
    {
        let (parts, _) = request.into_parts();
        return logins.serve(&web, &host, &parts).await;
    }
    match web.main.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
