//! One request and its response: HTTP/1.1 over a connection of its own, with limits and deadlines;
//! and redirects, which never carry a credential to another host.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use stockade_core::address::Class;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use url::{Position, Url};
use zeroize::Zeroizing;

use crate::connect::{Trust, open};
use crate::error::Error;
use crate::host::{authority, is_loopback};
use crate::times::Times;

/// The size of the buffer for a response's head, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The most headers of a response.
const MAX_HEADERS: usize = 100;
/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// A request. Without `Debug`, because it contains credentials.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) accept: String,
    /// The value of `Authorization`, which is for the host of the URL only.
    pub(crate) authorization: Option<Zeroizing<String>>,
    /// The first byte that is wanted.
    pub(crate) from: u64,
    /// A form to post.
    pub(crate) form: Option<Zeroizing<String>>,
}

impl Request {
    pub(crate) fn get(url: Url) -> Self {
        Self { url, accept: "*/*".to_owned(), authorization: None, from: 0, form: None }
    }
}

/// A response whose body has not been read.
pub(crate) struct Response {
    /// Where it came from, after redirects.
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The kind of address of the first host of the request, before redirects.
    pub(crate) class: Class,
    body: Incoming,
    times: Times,
    _connection: Connection,
}

/// The task that drives a connection. It ends with the response.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends requests.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) trust: Trust,
    pub(crate) times: Times,
    /// Hosts that may be reached without TLS, besides the loopback.
    pub(crate) insecure: Vec<String>,
}

impl Client {
    /// Sends a request and follows redirects.
    pub(crate) async fn follow(&self, request: &Request) -> Result<Response, Error> {
        let first = request.url.clone();
        let mut request = request.clone();
        let mut response = self.send(&request, None).await?;
        let class = response.class;
        for _ in 0..MAX_REDIRECTS {
            let Some(location) = location(&response) else {
                response.class = class;
                return Ok(response);
            };
            let invalid =
                |reason: String| Error::Invalid { host: authority(&response.url), reason };
            let mut next =
                location.and_then(|place| response.url.join(place).ok()).ok_or_else(|| {
                    invalid("it redirects to a location that is not a URL".to_owned())
                })?;
            next.set_fragment(None);
            self.check_scheme(&next).map_err(invalid)?;
            if !next.username().is_empty() || next.password().is_some() {
                return Err(invalid("it redirects to a URL with credentials".to_owned()));
            }
            if next.origin() != first.origin() {
                request.authorization = None;
                request.form = None;
            }
            request.url = next;
            response = self.send(&request, Some(class)).await?;
        }
        let reason = format!("it redirects more than {MAX_REDIRECTS} times");
        Err(Error::Invalid { host: authority(&first), reason })
    }

    /// Why a URL that a registry names must not be used.
    pub(crate) fn check_scheme(&self, url: &Url) -> Result<(), String> {
        let may_be_plain = is_loopback(url) || self.insecure.contains(&authority(url));
        match url.scheme() {
            "https" => Ok(()),
            "http" if may_be_plain => Ok(()),
            "http" => Err(format!("it leads to {} without TLS", authority(url))),
            other => Err(format!("it leads to the scheme {other:?}")),
        }
    }

    /// Sends one request. `led_by` is the kind of address of the host that named this one; `None` if the
    /// user did.
    pub(crate) async fn send(
        &self,
        request: &Request,
        led_by: Option<Class>,
    ) -> Result<Response, Error> {
        let host = authority(&request.url);
        let unreachable = |reason: String| Error::Unreachable { host: host.clone(), reason };
        let opened = open(&request.url, &self.trust, &self.times, led_by).await?;
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES).max_headers(MAX_HEADERS);
        let exchange = async {
            let handshake = builder.handshake::<_, Full<Bytes>>(TokioIo::new(opened.stream)).await;
            let (mut sender, connection) = handshake.map_err(|error| describe(&error))?;
            let driver = Connection(tokio::spawn(async { drop(connection.await) }).abort_handle());
            let message = message(request).map_err(|error| error.to_string())?;
            let response = sender.send_request(message).await.map_err(|error| describe(&error))?;
            Ok::<_, String>((response, driver))
        };
        let limited = tokio::time::timeout(self.times.head, exchange).await;
        let (response, driver) =
            limited.map_err(|_| unreachable(late(self.times.head)))?.map_err(&unreachable)?;
        let (head, body) = response.into_parts();
        Ok(Response {
            url: request.url.clone(),
            status: head.status,
            headers: head.headers,
            class: opened.class,
            body,
            times: self.times,
            _connection: driver,
        })
    }
}

impl Response {
    /// The host that sent it.
    pub(crate) fn host(&self) -> String {
        authority(&self.url)
    }

    /// The text of a header.
    pub(crate) fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How long the host asks to wait. A date is not understood.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.header(header::RETRY_AFTER)?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// The whole body, which must be small.
    pub(crate) async fn document(mut self, what: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let host = self.host();
        let mut content = Vec::new();
        let read = async {
            while let Some(part) = frame(&mut self.body).await? {
                if (content.len() + part.len()) as u64 > limit {
                    return Ok(false);
                }
                content.extend_from_slice(&part);
            }
            Ok(true)
        };
        match tokio::time::timeout(self.times.document, read).await {
            Ok(Ok(true)) => Ok(content),
            Ok(Ok(false)) => Err(Error::TooLarge { what: what.to_owned(), limit, is_total: false }),
            Ok(Err(reason)) => Err(Error::Unreachable { host, reason }),
            Err(_) => Err(Error::Unreachable { host, reason: late(self.times.document) }),
        }
    }

    /// The parts of the body, which may be large.
    pub(crate) fn parts(self) -> Parts {
        Parts { window: Instant::now(), received: 0, response: self }
    }
}

/// The parts of a large body, which must arrive at some rate.
pub(crate) struct Parts {
    response: Response,
    /// When the current time window began, and what has arrived in it.
    window: Instant,
    received: u64,
}

impl Parts {
    /// The next part; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let times = self.response.times;
        let host = self.response.host();
        let unreachable = |reason: String| Error::Unreachable { host, reason };
        let part = tokio::time::timeout(times.window, frame(&mut self.response.body)).await;
        let part = match part {
            Err(_) => return Err(unreachable(late(times.window))),
            Ok(Err(reason)) => return Err(unreachable(reason)),
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(part))) => part,
        };
        self.received += part.len() as u64;
        if self.window.elapsed() >= times.window {
            if self.received < times.slowest.saturating_mul(times.window.as_secs().max(1)) {
                return Err(unreachable(format!(
                    "it sends less than {} bytes per second",
                    times.slowest
                )));
            }
            (self.window, self.received) = (Instant::now(), 0);
        }
        Ok(Some(part))
    }
}

/// The next bytes of a body. Trailers are ignored.
async fn frame(body: &mut Incoming) -> Result<Option<Bytes>, String> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(describe(&error)),
            Some(Ok(frame)) => {
                if let Ok(part) = frame.into_data() {
                    return Ok(Some(part));
                }
            }
        }
    }
}

fn late(limit: Duration) -> String {
    format!("no answer after {} seconds", limit.as_secs())
}

/// Where a response redirects to: `Some(None)` if it does not say.
fn location(response: &Response) -> Option<Option<&str>> {
    matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308)
        .then(|| response.header(header::LOCATION))
}

fn message(request: &Request) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
    let url = &request.url;
    let target: Uri = url[Position::BeforePath..Position::AfterQuery].parse()?;
    let form = request.form.as_ref();
    let body = form.map(|form| Bytes::copy_from_slice(form.as_bytes())).unwrap_or_default();
    let mut message = hyper::Request::new(Full::new(body));
    *message.uri_mut() = target;
    let headers = message.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_str(&authority(url))?);
    headers.insert(header::ACCEPT, HeaderValue::from_str(&request.accept)?);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("stockade"));
    if let Some(authorization) = &request.authorization {
        let mut value = HeaderValue::from_str(authorization)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    if request.from > 0 {
        headers.insert(header::RANGE, HeaderValue::from_str(&format!("bytes={}-", request.from))?);
    }
    if form.is_some() {
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, kind);
        *message.method_mut() = Method::POST;
    }
    Ok(message)
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
