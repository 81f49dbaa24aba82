//! One request and its response over one connection: HTTP/1.1, and the rules of the Fetch Standard
//! for methods, headers and redirects.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Uri, header};
use hyper_util::rt::TokioIo;
use url::{Position, Url};

use super::Error;
use super::connect::Stream;
use crate::realm_host::{Request, Response};

/// The size of the buffer for a response's head, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The most headers of a request or response.
const MAX_HEADERS: usize = 100;

/// Headers that only this module sets: they frame the message, or belong to the connection.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that are not sent to another origin.
const ORIGIN_HEADERS: &[&str] = &["authorization", "cookie"];

/// Validates a request, and normalizes its method and headers.
pub(super) fn check(request: &mut Request) -> Result<(), Error> {
    let invalid = |what: &str| Error::Invalid(what.to_owned());
    request.method = match request.method.to_ascii_uppercase().as_str() {
        "" => "GET".to_owned(),
        // Tunnels and echoes (Fetch Standard, "forbidden method").
        "CONNECT" | "TRACE" | "TRACK" => return Err(invalid("the method is not allowed")),
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH") => {
            known.to_owned()
        }
        _ => request.method.clone(),
    };
    if request.body.is_some() && matches!(request.method.as_str(), "GET" | "HEAD") {
        return Err(invalid("a request with GET or HEAD has no body"));
    }
    if request.headers.len() > MAX_HEADERS {
        return Err(invalid("there are too many headers"));
    }
    request
        .headers
        .retain(|(name, _)| !RESERVED_HEADERS.iter().any(|ours| name.eq_ignore_ascii_case(ours)));
    Ok(())
}

/// Sends a request and reads the response, whose body is limited to so many bytes.
pub(super) async fn exchange(
    stream: Box<dyn Stream>,
    url: &Url,
    request: &Request,
    limit_bytes: usize,
) -> Result<Response, Error> {
    let network = |error: hyper::Error| Error::Network(describe(&error));
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES).max_headers(MAX_HEADERS);
    let handshake = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(network)?;
    let send = async {
        let response = sender.send_request(message(url, request)?).await.map_err(network)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, limit_bytes).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Error::TooLarge { what: "response", limit_bytes }
            } else {
                Error::Network(error.to_string())
            }
        })?;
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            // Programs see non-ASCII bytes as Latin-1 (Fetch Standard, "isomorphic decode").
            let value = value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
            (name.as_str().to_owned(), value)
        };
        Ok(Response {
            status: head.status.as_u16(),
            status_text: head.status.canonical_reason().unwrap_or_default().to_owned(),
            headers: head.headers.iter().map(header).collect(),
            body: body.to_bytes().to_vec(),
            ..Response::default()
        })
    };
    tokio::pin!(send);
    // The connection must be polled to send the request; it completes first only if the other side
    // closes it.
    tokio::select! {
        biased;
        response = &mut send => response,
        ended = connection => {
            ended.map_err(network)?;
            send.await
        }
    }
}

fn message(url: &Url, request: &Request) -> Result<hyper::Request<Full<Bytes>>, Error> {
    let invalid = |error: &dyn std::fmt::Display| Error::Invalid(error.to_string());
    let method = Method::from_bytes(request.method.as_bytes()).map_err(|e| invalid(&e))?;
    let target: Uri =
        url[Position::BeforePath..Position::AfterQuery].parse().map_err(|e| invalid(&e))?;
    let body = Bytes::from(request.body.clone().unwrap_or_default());
    let mut message = hyper::Request::new(Full::new(body));
    *message.method_mut() = method;
    *message.uri_mut() = target;
    let headers = message.headers_mut();
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|e| invalid(&e))?;
        let value = HeaderValue::from_str(value).map_err(|e| invalid(&e))?;
        headers.append(name, value);
    }
    let host = &url[Position::BeforeHost..Position::AfterPort];
    headers.insert(header::HOST, HeaderValue::from_str(host).map_err(|e| invalid(&e))?);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let plain = [
        (header::ACCEPT, HeaderValue::from_static("*/*")),
        (header::USER_AGENT, HeaderValue::from_static("stockade")),
    ];
    for (name, value) in plain {
        headers.entry(name).or_insert(value);
    }
    Ok(message)
}

/// The location that a response redirects to.
pub(super) fn redirect(response: &Response) -> Option<&str> {
    if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers.iter().find(|(name, _)| name == "location");
    location.map(|(_, place)| place.as_str())
}

/// Changes a request to the one that follows a redirect (Fetch Standard, "HTTP-redirect fetch").
pub(super) fn apply_redirect(request: &mut Request, status: u16, same_origin: bool) {
    let becomes_get = match status {
        301 | 302 => request.method == "POST",
        303 => !matches!(request.method.as_str(), "GET" | "HEAD"),
        _ => false,
    };
    let drop = |headers: &mut Vec<(String, String)>, gone: &dyn Fn(&str) -> bool| {
        headers.retain(|(name, _)| !gone(&name.to_ascii_lowercase()));
    };
    if becomes_get {
        request.method = "GET".to_owned();
        request.body = None;
        drop(&mut request.headers, &|name| name.starts_with("content-"));
    }
    if !same_origin {
        drop(&mut request.headers, &|name| ORIGIN_HEADERS.contains(&name));
    }
}

/// An error with its causes.
fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
