//! `/v1/sandboxes/{id}/proxy/{port}/…`: checks the access token of a request to a port of a sandbox,
//! and passes it on: to the interfaces that the server itself has on two ports, or to the port.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::OnUpgrade;
use stockade_api::{PortGrant, Sandbox, Sandboxes};
use stockade_core::SandboxId;
use tower::ServiceExt as _;

use super::request::{Peer, port_number, sandbox_id};
use super::snapshots_in_use::SnapshotsInUse;
use super::target::{
    EGRESS_PORT, EGRESS_TOKEN, EXECD_PORT, EXECD_TOKEN, PORT_TOKEN, PortState, Target,
};
use super::terminal_clients::Clients;
use super::{App, REQUEST_BYTES, egress, execd};
use crate::admission::{Terms, admit};
use crate::auth::{Principal, Scope, TcpPeer, invalid_token, is_link};
use crate::code::Engine;
use crate::failure::{Failure, invalid};
use crate::relay::{Form, relay};
use crate::renewal::renew;

/// The routes of the ports that the server itself serves.
#[derive(Debug, Clone)]
pub(super) struct OwnPorts {
    execd: Router,
    egress: Router,
}

impl OwnPorts {
    pub(super) fn new(sandboxes: &Arc<dyn Sandboxes>, code: &Engine) -> Self {
        let clients = Clients::default();
        let in_use = SnapshotsInUse::default();
        let state = || PortState {
            sandboxes: Arc::clone(sandboxes),
            clients: clients.clone(),
            in_use: in_use.clone(),
            code: code.clone(),
        };
        Self {
            execd: limited(execd::routes(Some(&state())).into_parts().0).with_state(state()),
            egress: limited(egress::routes().into_parts().0).with_state(state()),
        }
    }
}

fn limited(routes: Router<PortState>) -> Router<PortState> {
    routes.layer(DefaultBodyLimit::max(REQUEST_BYTES))
}

/// Serves a request to a port.
pub(super) async fn serve(
    State(app): State<App>,
    peer: Peer,
    Path(path): Path<HashMap<String, String>>,
    request: Request,
) -> Response {
    serve_port(app, peer, &path, request).await.unwrap_or_else(Failure::into_response)
}

async fn serve_port(
    app: App,
    Peer(peer): Peer,
    path: &HashMap<String, String>,
    request: Request,
) -> Result<Response, Failure> {
    let part = |name: &str| path.get(name).map_or("", String::as_str);
    let id = sandbox_id(part("id")).map_err(|_| Failure(invalid_token()))?;
    let Opened { principal, sandbox, port } =
        open(&app, &peer, request.headers(), &id, part("port")).await?;
    let is_relayed = !matches!(port, EXECD_PORT | EGRESS_PORT);
    let terms = if is_relayed { Terms::RELAYED } else { Terms::OWN };
    let form = Form::Path(format!("/v1/sandboxes/{id}/proxy/{}", part("port")));
    let this = &app;
    let serve = |principal: Principal, request: Request| async move {
        let target =
            Target { caller: principal.caller, sandbox: Arc::new(sandbox), identity: None };
        let answered = answer(this, target, port, form, request).await;
        answered.unwrap_or_else(Failure::into_response)
    };
    Ok(admit(&app.watch, principal, request, terms, serve).await)
}

/// Passes a request on to the interface of a port, or to the port.
async fn answer(
    app: &App,
    mut target: Target,
    port: u16,
    form: Form,
    mut request: Request,
) -> Result<Response, Failure> {
    let (caller, sandbox) = (&target.caller, &target.sandbox);
    renew(&*app.sandboxes, caller, sandbox, request.headers()).await?;
    *request.uri_mut() = inner_uri(request.uri())?;
    // Other requests may be several operations, which cannot have the same key.
    if port == EXECD_PORT && request.uri().path() == "/command" {
        let key = request.headers().get(stockade_api::wire::KEY_HEADER);
        target.caller.idempotency_key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
    }
    let routes = match port {
        EXECD_PORT => &app.own_ports.execd,
        EGRESS_PORT => &app.own_ports.egress,
        _ => {
            let port = app.ports.check_port(&target.sandbox, Some(port))?;
            let sandbox = Arc::unwrap_or_clone(target.sandbox);
            let grant = PortGrant { caller: target.caller, sandbox, port };
            return Ok(relay(&*app.sandboxes, &app.ports, grant, &form, request).await?);
        }
    };
    // The parts of this path are no parameters of the routes on the port.
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    parts.extensions = Extensions::new();
    parts.extensions.insert(target);
    // For a WebSocket.
    parts.extensions.extend(upgrade.map(in_extensions).unwrap_or_default());
    match routes.clone().oneshot(Request::from_parts(parts, body)).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}

fn in_extensions(upgrade: OnUpgrade) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(upgrade);
    extensions
}

/// A port that a request may use.
struct Opened {
    principal: Principal,
    sandbox: Sandbox,
    port: u16,
}

/// Checks the access token of a request, or the link in the place of its port.
async fn open(
    app: &App,
    peer: &TcpPeer,
    headers: &HeaderMap,
    id: &SandboxId,
    part: &str,
) -> Result<Opened, Failure> {
    let sandboxes = &*app.sandboxes;
    if is_link(part) {
        let checked = app.auth.check_link(sandboxes, &*app.ports, peer, (id, part)).await?;
        let (principal, sandbox, port) = checked;
        // A token that is sent beside a link must be valid, too.
        if headers.contains_key(PORT_TOKEN) {
            let token = token_of(headers, PORT_TOKEN)?;
            app.auth.check_token(sandboxes, peer, &token, (id, Scope::Port(port))).await?;
        }
        return Ok(Opened { principal, sandbox, port });
    }
    let port = port_number(part)?;
    let name = match port {
        EXECD_PORT => EXECD_TOKEN,
        EGRESS_PORT => EGRESS_TOKEN,
        _ => PORT_TOKEN,
    };
    let token = token_of(headers, name)?;
    let (principal, sandbox) =
        app.auth.check_token(sandboxes, peer, &token, (id, Scope::Port(port))).await?;
    Ok(Opened { principal, sandbox, port })
}

/// The access token of a request.
fn token_of(headers: &HeaderMap, name: &str) -> Result<String, Failure> {
    let mut values = headers.get_all(name).iter();
    let token = values.next().and_then(|value| value.to_str().ok());
    match (token, values.next()) {
        (Some(token), None) => Ok(token.to_owned()),
        _ => Err(invalid_token().into()),
    }
}

/// The path after the port, as the client has written it, and the query.
fn inner_uri(uri: &Uri) -> Result<Uri, Failure> {
    // `/sandboxes/ID/proxy/PORT/PATH`
    let path = uri.path().splitn(6, '/').nth(5).unwrap_or_default();
    let text = match uri.query() {
        Some(query) => format!("/{path}?{query}"),
        None => format!("/{path}"),
    };
    let text: PathAndQuery = text.parse().map_err(|_| invalid("the path is invalid"))?;
    Ok(Uri::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_path_is_passed_on_unchanged() {
        for (path, inner) in [
            ("/sandboxes/a/proxy/80", "/"),
            ("/sandboxes/a/proxy/80/", "/"),
            ("/sandboxes/a/proxy/80/x/y", "/x/y"),
            ("/sandboxes/a/proxy/80//x", "//x"),
            ("/sandboxes/a/proxy/80/%2e%2e/x?q=1&q=%2F", "/%2e%2e/x?q=1&q=%2F"),
            ("/sandboxes/a/proxy/80?q", "/?q"),
        ] {
            assert_eq!(inner_uri(&path.parse().unwrap()).unwrap().to_string(), inner);
        }
    }
}
