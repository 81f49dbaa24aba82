//! Requests that another server of the cluster serves as a whole, because it has their state in its memory:
//! those to the interfaces for commands, files and code of its sandboxes, with their processes, terminals and
//! contexts, and those of its MCP sessions. The other server authenticates the client itself; what it cannot
//! see, which is the other end of the connection, is named to it in a header that is sealed.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::client::conn::http1::handshake;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use stockade_api::{PortName, PortSite, Problem};
use stockade_core::{Code, SandboxId};

use crate::auth::{HttpAuth, TcpPeer};
use crate::cluster::{ClusterSecret, Seals, now_ms};
use crate::e2b;
use crate::failure::Failure;
use crate::handover_hosts::Hosts;
use crate::local::ConnectionGuard;
use crate::mcp::{PATH as MCP, SESSION, no_session};
use crate::opensandbox::EXECD_PORT;
use crate::relay::{Driver, HEAD_TIMEOUT, check_framing, held, splice};
use crate::tcp::host_name;

/// The header that another server adds.
const HEADER: &str = "stockade-handed-over";

/// Hands requests over, and takes those of other servers.
#[derive(Debug)]
pub(crate) struct Handover {
    hosts: Arc<dyn Hosts>,
    secret: ClusterSecret,
    /// The id of this server.
    host: String,
    seals: Seals,
}

/// What another server names.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    /// The id of the server that is to serve the request.
    to: String,
    /// Different for each request.
    id: String,
    /// When it was made, in milliseconds since 1970.
    at: i64,
    /// The other end of the client's connection.
    address: SocketAddr,
    /// The user of the process there, if only that identifies the client.
    uid: Option<u32>,
}

impl Handover {
    pub(crate) fn new(hosts: Arc<dyn Hosts>, secret: ClusterSecret, host: String) -> Self {
        Self { hosts, secret, host, seals: Seals::default() }
    }

    /// Serves a request: here with `serve`, or on the server that has its state.
    pub(crate) async fn serve<F: Future<Output = Response>>(
        &self,
        auth: &HttpAuth,
        site: &PortSite,
        mut request: Request,
        serve: impl FnOnce(Request) -> F,
    ) -> Response {
        let elsewhere = match self.arrive(&mut request) {
            Ok(true) => None,
            Ok(false) => match self.holder(State::of(site, &request)).await {
                Ok(host) => host,
                Err(problem) => return Failure(problem).into_response(),
            },
            Err(problem) => return Failure(problem).into_response(),
        };
        if let Some(host) = elsewhere {
            let is_session = request.uri().path() == MCP;
            let answered = self.hand_over(auth, &host, request).await;
            return answered.unwrap_or_else(|Failure(problem)| match problem.code {
                // With this answer a client opens another session.
                Code::Unreachable if is_session => no_session().into_response(),
                _ => Failure(problem).into_response(),
            });
        }
        let is_mcp = request.uri().path() == MCP;
        if is_mcp {
            self.shorten_session(&mut request);
        }
        let mut response = serve(request).await;
        if is_mcp {
            self.name_session(&mut response);
        }
        response
    }

    /// Takes a request that another server has handed over. False for one of a client.
    fn arrive(&self, request: &mut Request) -> Result<bool, Problem> {
        let mut values = request.headers().get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(false) };
        let refused = || {
            Problem::new(Code::Unauthenticated, "the request is not from a server of this cluster")
        };
        let sealed: Sealed = value
            .to_str()
            .ok()
            .filter(|_| values.next().is_none())
            .and_then(|text| self.secret.open_handover(text))
            .ok_or_else(refused)?;
        if sealed.to != self.host || !self.seals.is_first(&sealed.id, sealed.at, now_ms()) {
            return Err(refused());
        }
        let peer = request.extensions().get::<Arc<TcpPeer>>().ok_or_else(refused)?;
        let peer = Arc::new(peer.on_behalf(sealed.address, sealed.uid));
        request.extensions_mut().insert(peer);
        request.headers_mut().remove(HEADER);
        Ok(true)
    }

    /// The other server that has some state.
    async fn holder(&self, state: State) -> Result<Option<String>, Problem> {
        match state {
            State::None => Ok(None),
            State::OfServer(host) => Ok(Some(host).filter(|host| *host != self.host)),
            State::OfSandbox(id) => self.hosts.of_sandbox(&id).await,
        }
    }

    /// The session as this server knows it.
    fn shorten_session(&self, request: &mut Request) {
        let session = request.headers().get(SESSION).and_then(|value| value.to_str().ok());
        let own = session.and_then(|session| session.split_once('.')).map(|(own, _)| own);
        if let Some(own) = own.and_then(|own| HeaderValue::from_str(own).ok()) {
            request.headers_mut().insert(SESSION, own);
        }
    }

    /// Adds this server to the name of its session.
    fn name_session(&self, response: &mut Response) {
        let session = response.headers().get(SESSION).and_then(|value| value.to_str().ok());
        let named = session.map(|session| format!("{session}.{}", self.host));
        if let Some(named) = named.and_then(|named| HeaderValue::from_str(&named).ok()) {
            response.headers_mut().insert(SESSION, named);
        }
    }

    async fn hand_over(
        &self,
        auth: &HttpAuth,
        host: &str,
        mut request: Request,
    ) -> Result<Response, Failure> {
        check_framing(request.headers())?;
        let peer = request.extensions().get::<Arc<TcpPeer>>().cloned();
        let peer = peer.ok_or_else(|| {
            Problem::new(Code::Unauthenticated, "the connection of the request is unknown")
        })?;
        let sealed = Sealed {
            to: host.to_owned(),
            id: uuid::Uuid::new_v4().simple().to_string(),
            at: now_ms(),
            address: peer.address,
            uid: auth.user_without_keys(&peer).await?,
        };
        let sealed = self.secret.seal_handover(&sealed)?;
        let connection = self.hosts.connect(host).await?;
        let lost = |error: &dyn std::fmt::Display| {
            let message = format!("the server {host}, which holds the sandbox, did not answer");
            Problem::new(Code::Unreachable, message).because(error.to_string())
        };
        let handshaken = handshake::<_, Body>(TokioIo::new(connection)).await;
        let (mut sender, driver) = handshaken.map_err(|error| lost(&error))?;
        let driver = Driver::new(driver);
        let guard = request.extensions().get::<ConnectionGuard>().cloned();
        let upgrade = request.extensions_mut().remove::<OnUpgrade>();
        let is_upgrade = request.headers().contains_key(header::UPGRADE);
        if !is_upgrade {
            request.headers_mut().remove(header::CONNECTION);
        }
        request.headers_mut().insert(HEADER, sealed);
        let answered = tokio::time::timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
        let answered = answered.map_err(|late| lost(&late))?;
        let mut response = answered.map_err(|error| lost(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (mut head, body) = response.into_parts();
            head.headers.remove(header::CONNECTION);
            return Ok(Response::from_parts(head, held(body, driver)));
        }
        let inside = hyper::upgrade::on(&mut response);
        let outside = upgrade.ok_or_else(|| lost(&"it changed the protocol without a request"))?;
        tokio::spawn(async move {
            let _counted = guard;
            splice(inside, outside, driver).await;
        });
        Ok(response.map(|_| Body::empty()))
    }
}

/// The state that a request needs.
enum State {
    None,
    /// That of an MCP session, whose name has the server.
    OfServer(String),
    /// That of an interface of a sandbox.
    OfSandbox(SandboxId),
}

impl State {
    fn of(site: &PortSite, request: &Request) -> Self {
        if request.uri().path() == MCP {
            let session = request.headers().get(SESSION).and_then(|value| value.to_str().ok());
            let host = session.and_then(|session| session.split_once('.'));
            return host.map_or(Self::None, |(_, host)| Self::OfServer(host.to_owned()));
        }
        sandbox_of(site, request).map_or(Self::None, Self::OfSandbox)
    }
}

/// The sandbox whose interface for commands, files or code a request addresses.
fn sandbox_of(site: &PortSite, request: &Request) -> Option<SandboxId> {
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = host_name(host);
    if let Some(label) = name.strip_suffix(site.domain.as_str()).and_then(|it| it.strip_suffix('.'))
    {
        let named = PortName::parse(label)?;
        return named.port.filter(|port| e2b::serves_port(*port)).map(|_| named.sandbox_id);
    }
    let mut path = request.uri().path().splitn(7, '/').skip(1);
    if path.by_ref().take(2).eq(["v1", "sandboxes"]) {
        let id = path.next()?;
        let is_own = path.next() == Some("proxy")
            && path.next().is_some_and(|port| port.parse() == Ok(EXECD_PORT));
        return is_own.then(|| SandboxId::new(id).ok()).flatten();
    }
    // What is wrong with the headers is said where they are served.
    let addressed = e2b::Addressed::of(&e2b::Head::of(request)).ok()??;
    e2b::serves_port(addressed.port).then_some(addressed.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let site =
            PortSite { scheme: "http".to_owned(), domain: "ports.example".to_owned(), port: None };
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sandbox_of(&site, &request.body(Body::empty()).unwrap()).map(|id| id.to_string())
    }

    #[test]
    fn requests_with_state_in_memory_name_their_sandbox() {
        let execd = |rest: &str| found(&format!("/v1/sandboxes/box/proxy/{rest}"), &[]);
        assert_eq!(execd("44772/pty/1?x=y").as_deref(), Some("box"));
        assert_eq!(execd("44772").as_deref(), Some("box"));
        assert_eq!(execd("3000/44772"), None);
        assert_eq!(found("/v1/sandboxes/box/endpoints/44772", &[]), None);
        let process = "/process.Process/Start";
        assert_eq!(found(process, &[("e2b-sandbox-id", "box")]).as_deref(), Some("box"));
        let other = [("e2b-sandbox-id", "box"), ("e2b-sandbox-port", "3000")];
        assert_eq!(found(process, &other), None);
        let code = [("host", "49999-box.ports.example:80")];
        assert_eq!(found("/execute", &code).as_deref(), Some("box"));
        assert_eq!(found("/", &[("host", "3000-box.ports.example")]), None);
        assert_eq!(found("/v1/sandboxes", &[]), None);
    }
}
