//! Relays HTTP and WebSockets to a port inside a sandbox. What authenticates the client does not
//! enter the sandbox, and what comes out can neither set cookies nor act as a page of this origin.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::client::conn::http1::handshake;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use stockade_api::{Connect, Problem, Sandboxes};
use stockade_core::Code;
use tokio::io::copy_bidirectional;

use super::target::{EGRESS_TOKEN, EXECD_TOKEN, PORT_TOKEN, Target};
use crate::auth::KEY_HEADERS;
use crate::failure::{Failure, invalid};

/// How long a server inside may take for the head of its response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Headers that are about one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];
/// Headers of a request that do not enter the sandbox, beside those that authenticate the client.
const REQUEST_ONLY_OUTSIDE: [&str; 5] = ["authorization", "cookie", "forwarded", "origin", "host"];
/// Headers of a response that would have an effect on this server's origin.
const RESPONSE_ONLY_INSIDE: [&str; 7] = [
    "alt-svc",
    "clear-site-data",
    "public-key-pins",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
];

/// Relays a request, whose path is already that of the port.
pub(super) async fn relay(
    sandboxes: &dyn Sandboxes,
    target: &Target,
    port: u16,
    mut request: Request,
) -> Result<Response, Failure> {
    let connect = Connect { sandbox_id: target.sandbox.id.clone(), port };
    let connection = sandboxes.connect(&target.caller, connect).await?;
    let handshaken = handshake::<_, Body>(TokioIo::new(connection)).await;
    let (mut sender, driver) =
        handshaken.map_err(|error| port_problem(port, "does not speak HTTP", &error))?;
    // The connection ends with the response.
    tokio::spawn(driver.with_upgrades());
    let upgrade = upgrade_of(&mut request);
    inner_headers(request.headers_mut(), port, upgrade.is_some())?;
    let answered = tokio::time::timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let answered = answered.map_err(|_| {
        Failure(Problem::new(Code::TimedOut, format!("port {port} did not answer in time")))
    })?;
    let mut response = answered.map_err(|error| port_problem(port, "did not answer", &error))?;
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_upgraded {
        let outside = upgrade.ok_or_else(|| {
            let message = format!("port {port} changed the protocol without a request for it");
            Failure(Problem::new(Code::Unreachable, message))
        })?;
        let inside = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) {
                let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
                // Either end may disconnect at any time.
                let _ = copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
    }
    let (mut head, body) = response.into_parts();
    outer_headers(&mut head.headers, &target.sandbox.id.to_string(), port, is_upgraded);
    Ok(Response::from_parts(head, Body::new(body)))
}

/// The connection of a request for a WebSocket.
fn upgrade_of(request: &mut Request) -> Option<OnUpgrade> {
    let upgrade = request.headers().get(header::UPGRADE)?;
    let is_web_socket = upgrade.as_bytes().eq_ignore_ascii_case(b"websocket");
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.filter(|_| is_web_socket)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove(header::UPGRADE);
}

/// The headers of a request as the sandbox sees them.
fn inner_headers(headers: &mut HeaderMap, port: u16, upgrades: bool) -> Result<(), Failure> {
    remove_hop_by_hop(headers);
    for name in REQUEST_ONLY_OUTSIDE.into_iter().chain(KEY_HEADERS) {
        headers.remove(name);
    }
    for name in [EXECD_TOKEN, EGRESS_TOKEN, PORT_TOKEN] {
        headers.remove(name);
    }
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            ["x-forwarded-", "open-sandbox-", "opensandbox-", "sec-fetch-"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .cloned()
        .collect();
    for name in own {
        headers.remove(name);
    }
    let host = HeaderValue::try_from(format!("localhost:{port}"));
    headers.insert(header::HOST, host.map_err(|error| invalid(error.to_string()))?);
    if upgrades {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    Ok(())
}

/// The headers of a response as the client sees them.
fn outer_headers(headers: &mut HeaderMap, id: &str, port: u16, is_upgraded: bool) {
    remove_hop_by_hop(headers);
    let cross_origin: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in cross_origin {
        headers.remove(name);
    }
    for name in RESPONSE_ONLY_INSIDE {
        headers.remove(name);
    }
    if let Some(location) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok())
        && location.starts_with('/')
        && !location.starts_with("//")
        && let Ok(location) =
            HeaderValue::try_from(format!("/v1/sandboxes/{id}/proxy/{port}{location}"))
    {
        headers.insert(header::LOCATION, location);
    }
    if is_upgraded {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return;
    }
    // A second policy only adds to what the first one forbids.
    headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn port_problem(port: u16, what: &str, error: &dyn std::fmt::Display) -> Failure {
    let problem = Problem::new(Code::Unreachable, format!("port {port} {what}"));
    Failure(problem.because(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn nothing_that_authenticates_enters() {
        let mut headers = map(&[
            ("authorization", "Bearer k"),
            ("cookie", "a=1"),
            ("x-api-key", "k"),
            ("open-sandbox-api-key", "k"),
            ("open-sandbox-client-ip", "10.0.0.1"),
            ("opensandbox-secure-access", "t"),
            ("x-execd-access-token", "t"),
            ("x-forwarded-for", "10.0.0.1"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("host", "box.example"),
            ("accept", "text/html"),
        ]);
        inner_headers(&mut headers, 80, false).unwrap();
        assert_eq!(headers, map(&[("accept", "text/html"), ("host", "localhost:80")]));
    }

    #[test]
    fn a_page_from_inside_cannot_act_on_this_origin() {
        let mut headers = map(&[
            ("set-cookie", "a=1"),
            ("access-control-allow-origin", "*"),
            ("content-security-policy", "default-src *"),
            ("location", "/next?x"),
            ("transfer-encoding", "chunked"),
            ("content-type", "text/html"),
        ]);
        outer_headers(&mut headers, "box", 80, false);
        let expected = map(&[
            ("content-security-policy", "default-src *"),
            ("content-security-policy", "sandbox"),
            ("location", "/v1/sandboxes/box/proxy/80/next?x"),
            ("content-type", "text/html"),
            ("x-content-type-options", "nosniff"),
        ]);
        assert_eq!(headers, expected);
    }
}
