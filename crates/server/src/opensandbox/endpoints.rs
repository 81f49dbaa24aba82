//! `GET /v1/sandboxes/{id}/endpoints/{port}`: where clients reach a port, and with which headers.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, header};
use serde::Serialize;
use stockade_api::Problem;
use stockade_core::{Code, State as SandboxState};

use super::App;
use super::request::{Query, port_number, sandbox_id};
use super::sandboxes::find;
use super::target::{EGRESS_PORT, EGRESS_TOKEN, EXECD_PORT, EXECD_TOKEN, PORT_TOKEN};
use crate::auth::{Principal, Scope};
use crate::failure::{Failure, invalid, unsupported};

/// An endpoint.
#[derive(Debug, Serialize)]
pub(super) struct Endpoint {
    /// Host, port and path, without a scheme.
    endpoint: String,
    headers: BTreeMap<&'static str, String>,
}

/// The endpoint of a port. It is the same with and without `use_server_proxy`. With `expires`, it is a
/// link that needs no headers until then.
pub(super) async fn get(
    State(app): State<App>,
    principal: Principal,
    Path((id, port)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<Endpoint>, Failure> {
    let query = Query::parse(query.as_deref(), &["use_server_proxy", "expires"])?;
    let is_proxied = query.flag("use_server_proxy")?;
    let expires = query.number("expires")?;
    if is_proxied && expires.is_some() {
        return Err(invalid("`expires` and `use_server_proxy` exclude each other"));
    }
    let id = sandbox_id(&id)?;
    let port = port_number(&port)?;
    let sandbox = find(&app, &principal.caller, &id).await?;
    if sandbox.state == SandboxState::Terminated {
        let message = format!("the sandbox {id} is terminated");
        return Err(Problem::new(Code::SandboxTerminated, message).into());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| invalid("the request names no host"))?;
    let name = match port {
        EXECD_PORT => EXECD_TOKEN,
        EGRESS_PORT => EGRESS_TOKEN,
        _ => PORT_TOKEN,
    };
    if let Some(expires) = expires {
        if matches!(port, EXECD_PORT | EGRESS_PORT) {
            return Err(unsupported(format_args!("a link to port {port}")));
        }
        app.ports.check_port(&sandbox, Some(port))?;
        let target = (port, expires);
        let link = app.auth.sign_link(&*app.ports, &principal, &sandbox, target).await?;
        return Ok(Json(Endpoint {
            endpoint: format!("{host}/v1/sandboxes/{id}/proxy/{link}"),
            headers: BTreeMap::new(),
        }));
    }
    let token = app.auth.token(&principal, &sandbox, Scope::Port(port));
    Ok(Json(Endpoint {
        endpoint: format!("{host}/v1/sandboxes/{id}/proxy/{port}"),
        headers: BTreeMap::from([(name, token)]),
    }))
}
