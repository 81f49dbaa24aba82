//! Ports of sandboxes that a request addresses by headers or by a host name, where the server has other
//! paths of its own: `/health` and `/metrics` of the port for commands, and every path of other ports.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use stockade_api::PortGrant;

use super::access::{Addressed, Entered, Head, check, serves_port};
use super::failure::{closed_port, not_running, refuse};
use super::{App, ENVD_PORT};
use crate::admission::{Terms, admit};
use crate::auth::Principal;
use crate::failure::Failure;
use crate::inside::usage;
use crate::opensandbox::now;
use crate::relay::{Form, Unrelayed, relay};
use crate::tcp::authority;

/// The middleware that serves such requests.
pub(crate) async fn by_header(State(app): State<App>, request: Request, next: Next) -> Response {
    let head = Head::of(&request);
    let addressed = match Addressed::of(&head) {
        Ok(Some(addressed)) => addressed,
        Ok(None) => return next.run(request).await,
        Err(problem) => return refuse(problem),
    };
    match (addressed.port, request.uri().path()) {
        (ENVD_PORT, "/health") => health(&app, &head, &addressed).await,
        (ENVD_PORT, "/metrics") => metrics(&app, request, (&head, &addressed)).await,
        (port, _) if serves_port(port) => next.run(request).await,
        _ => pass_on(&app, request, (head, addressed)).await,
    }
}

/// `GET /health`. What a client without a token sees is the same for every sandbox.
async fn health(app: &App, request: &Head, addressed: &Addressed) -> Response {
    match check(app, request, addressed).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(_) => not_running(addressed.id.as_str()),
    }
}

/// `GET /metrics`.
async fn metrics(app: &App, request: Request, (head, addressed): (&Head, &Addressed)) -> Response {
    let Entered { principal, sandbox } = match check(app, head, addressed).await {
        Ok(entered) => entered,
        Err(denied) => return denied.into_response(),
    };
    let serve = |principal: Principal, _: Request| async move {
        match usage::measure(&*app.sandboxes, &principal.caller, &sandbox).await {
            Ok(used) => Json(json!({
                "ts": now().as_ms() / 1000,
                "cpu_count": used.cpu_count,
                "cpu_used_pct": used.cpu_used,
                "mem_total": used.memory_total_bytes,
                "mem_used": used.memory_bytes,
                "mem_total_mib": used.memory_total_bytes >> 20,
                "mem_used_mib": used.memory_bytes >> 20,
                "disk_used": used.disk_bytes,
                "disk_total": sandbox.limits.disk_bytes.unwrap_or(0),
            }))
            .into_response(),
            Err(Failure(problem)) => refuse(problem),
        }
    };
    let terms = Terms { refuse, ..Terms::OWN };
    admit(&app.watch, principal, request, terms, serve).await
}

/// Passes a request on to a port of a sandbox.
async fn pass_on(app: &App, request: Request, (head, addressed): (Head, Addressed)) -> Response {
    let Entered { principal, sandbox } = match check(app, &head, &addressed).await {
        Ok(entered) => entered,
        Err(denied) => return denied.into_response(),
    };
    let authority = match authority(&head.uri, &head.headers) {
        Ok(authority) => authority.to_owned(),
        Err(problem) => return refuse(problem),
    };
    let headers = head.headers;
    let form = Form::Host { scheme: app.site.scheme.clone(), authority };
    let serve = |principal: Principal, request: Request| async move {
        let port = match app.ports.check_port(&sandbox, Some(addressed.port)) {
            Ok(port) => port,
            Err(problem) => return refuse(problem),
        };
        let grant = PortGrant { caller: principal.caller, sandbox: sandbox.clone(), port };
        let relayed = relay(&*app.sandboxes, &app.ports, grant, &form, request).await;
        relayed.unwrap_or_else(|unrelayed| match unrelayed {
            Unrelayed::Closed(_) => closed_port(&sandbox, port, &headers),
            Unrelayed::Other(problem) => refuse(problem),
        })
    };
    let terms = Terms { refuse, ..Terms::RELAYED };
    admit(&app.watch, principal, request, terms, serve).await
}
