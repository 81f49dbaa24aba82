//! Relays HTTP and WebSockets to a port inside a sandbox. What authenticates the client does not enter
//! the sandbox. A relayed stream is cut as soon as the sandbox does not run any more or has another
//! owner. `headers` decides which headers pass.

mod headers;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use stockade_api::{Connect, PortAccess, PortGrant, Problem, Sandboxes};
use stockade_core::Code;
use tokio::io::copy_bidirectional;
use tokio::task::JoinHandle;

pub(crate) use headers::{Form, masked_host};
use headers::{inner_headers, mask_host, outer_headers};

use crate::failure::{Failure, invalid};

/// How long a server inside may take for the head of its response.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// A connection over which requests are sent.
type HttpConnection = http1::Connection<TokioIo<Box<dyn stockade_api::Duplex>>, Body>;

type Closed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The metadata with the host that programs inside see instead of that of the request; `${PORT}` in it stands for the port.
pub(crate) const MASKED_HOST: &str = "e2b.dev/mask-request-host";

/// Why a request was not relayed.
#[derive(Debug)]
pub(crate) enum Unrelayed {
    /// Nothing accepts connections at the port.
    Closed(Problem),
    /// Another problem.
    Other(Problem),
}

impl From<Failure> for Unrelayed {
    fn from(Failure(problem): Failure) -> Self {
        Self::Other(problem)
    }
}

impl From<Unrelayed> for Failure {
    fn from(unrelayed: Unrelayed) -> Self {
        let (Unrelayed::Closed(problem) | Unrelayed::Other(problem)) = unrelayed;
        Self(problem)
    }
}

/// Relays a request, whose path is already that of the port.
pub(crate) async fn relay(
    sandboxes: &dyn Sandboxes,
    ports: &Arc<dyn PortAccess>,
    grant: PortGrant,
    form: &Form,
    mut request: Request,
) -> Result<Response, Unrelayed> {
    check_framing(request.headers())?;
    let PortGrant { caller, sandbox, port } = grant;
    let connect = Connect { sandbox_id: sandbox.id.clone(), port };
    let connection = sandboxes.connect(&caller, connect).await;
    let connection = connection.map_err(|problem| match problem.code {
        Code::Unreachable => Unrelayed::Closed(problem),
        _ => Unrelayed::Other(problem),
    })?;
    // Simple servers compare names of headers with their usual form.
    let mut builder = http1::Builder::new();
    let builder = builder.title_case_headers(true);
    let handshaken = builder.handshake::<_, Body>(TokioIo::new(connection)).await;
    let (mut sender, driver) =
        handshaken.map_err(|error| port_problem(port, "does not speak HTTP", &error))?;
    let driver = Driver::new(driver);
    let upgrade = upgrade_of(&mut request);
    let is_head = request.method() == Method::HEAD;
    inner_headers(request.headers_mut(), form, port, upgrade.is_some())?;
    if let Some(masked) = sandbox.metadata.get(MASKED_HOST) {
        mask_host(request.headers_mut(), masked, port)?;
    }
    let ports = Arc::clone(ports);
    let mut closed: Closed =
        Box::pin(async move { ports.wait_until_closed(&caller, &sandbox).await });
    let answered = tokio::select! {
        answered = tokio::time::timeout(HEAD_TIMEOUT, sender.send_request(request)) => answered,
        () = closed.as_mut() => return Err(Unrelayed::Other(not_running())),
    };
    let answered = answered.map_err(|_| {
        Failure(Problem::new(Code::TimedOut, format!("port {port} did not answer in time")))
    })?;
    let mut response = answered.map_err(|error| port_problem(port, "did not answer", &error))?;
    let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let inside = is_upgraded.then(|| hyper::upgrade::on(&mut response));
    let (mut head, body) = response.into_parts();
    outer_headers(&mut head.headers, form, port, is_upgraded);
    keep_one_length(&mut head.headers)
        .map_err(|problem| port_problem(port, "did not answer", &problem))?;
    let body = match inside {
        None => Body::new(OpenBody { body, closed: Some(closed), is_head, _driver: driver }),
        Some(inside) => {
            let outside = upgrade.ok_or_else(|| {
                let message = format!("port {port} changed the protocol without a request for it");
                Failure(Problem::new(Code::Unreachable, message))
            })?;
            tokio::spawn(async move {
                tokio::select! {
                    () = splice(inside, outside, driver) => {}
                    () = closed => {}
                }
            });
            Body::empty()
        }
    };
    Ok(Response::from_parts(head, body))
}

/// Copies the bytes of a WebSocket in both directions, as fast as the slower end reads them.
pub(crate) async fn splice(inside: OnUpgrade, outside: OnUpgrade, driver: Driver) {
    if let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) {
        let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
        // Either end may disconnect at any time.
        let _ = copy_bidirectional(&mut inside, &mut outside).await;
    }
    drop(driver);
}

/// The task that drives a connection to a port. The connection ends with this value.
pub(crate) struct Driver(JoinHandle<()>);

impl Driver {
    pub(crate) fn new(connection: HttpConnection) -> Self {
        Self(tokio::spawn(async move { drop(connection.with_upgrades().await) }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a response, which has its connection until it ends.
pub(crate) fn held(body: Incoming, driver: Driver) -> Body {
    let closed: Closed = Box::pin(std::future::pending());
    Body::new(OpenBody { body, closed: Some(closed), is_head: false, _driver: driver })
}

/// The body of a response, which breaks off when the sandbox is closed.
struct OpenBody {
    body: Incoming,
    /// Absent once it has completed.
    closed: Option<Closed>,
    /// Whether it is left out, so that it says nothing about the length.
    is_head: bool,
    _driver: Driver,
}

impl HttpBody for OpenBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let is_closed = match &mut self.closed {
            Some(closed) => closed.as_mut().poll(context).is_ready(),
            None => return Poll::Ready(None),
        };
        if is_closed {
            self.closed = None;
            return Poll::Ready(Some(Err(axum::Error::new(std::io::Error::other(
                not_running().message,
            )))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_head { SizeHint::default() } else { self.body.size_hint() }
    }
}

/// Refuses a request whose length another server could read otherwise (RFC 9112, section 6.3).
pub(crate) fn check_framing(headers: &HeaderMap) -> Result<(), Failure> {
    let encodings: Vec<_> = headers.get_all(header::TRANSFER_ENCODING).iter().collect();
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    let is_chunked = |value: &axum::http::HeaderValue| {
        value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
    };
    if lengths > 1 || (lengths == 1 && !encodings.is_empty()) {
        return Err(invalid("the request has several lengths"));
    }
    match encodings.as_slice() {
        [] => Ok(()),
        [one] if is_chunked(one) => Ok(()),
        _ => Err(invalid("the request has a transfer encoding other than `chunked`")),
    }
}

/// Keeps one header with the length of an answer. Of an answer without a body, as to `HEAD`, nothing has read
/// the length yet; a client would get no answer at all if it were sent on.
fn keep_one_length(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut lengths = Vec::new();
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for text in value.to_str().unwrap_or_default().split(',') {
            let text = text.trim_matches([' ', '\t']);
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let length = text.parse::<u64>().ok().filter(|_| is_number);
            lengths.push(length.ok_or("the length of its answer is no number")?);
        }
    }
    lengths.dedup();
    match lengths.as_slice() {
        [] => Ok(()),
        [one] => {
            headers.insert(header::CONTENT_LENGTH, (*one).into());
            Ok(())
        }
        _ => Err("its answer has several lengths"),
    }
}

/// The connection of a request for a WebSocket.
fn upgrade_of(request: &mut Request) -> Option<OnUpgrade> {
    let upgrade = request.headers().get(header::UPGRADE)?;
    let is_web_socket = upgrade.as_bytes().eq_ignore_ascii_case(b"websocket");
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.filter(|_| is_web_socket)
}

fn not_running() -> Problem {
    Problem::new(Code::InvalidState, "the sandbox does not run any more, or has another owner")
}

fn port_problem(port: u16, what: &str, error: &dyn std::fmt::Display) -> Failure {
    let problem = Problem::new(Code::Unreachable, format!("port {port} {what}"));
    Failure(problem.because(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_one_length() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["3"], Ok(Some("3"))),
            (&["3", "3"], Ok(Some("3"))),
            (&["3 , 3"], Ok(Some("3"))),
            (&["3", "99"], Err(())),
            (&["3, 99"], Err(())),
            (&["-3"], Err(())),
            (&["+3"], Err(())),
            (&[""], Err(())),
            (&["99999999999999999999"], Err(())),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_LENGTH, value.parse().unwrap());
            }
            let kept = keep_one_length(&mut headers);
            let left: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
            assert!(kept.is_err() || left.len() < 2, "{values:?}");
            let length = left.first().map(|value| value.to_str().unwrap());
            assert_eq!(kept.map(|()| length).map_err(drop), expected, "{values:?}");
        }
    }

    #[test]
    fn a_request_has_one_length() {
        let check = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            check_framing(&headers).is_ok()
        };
        assert!(check(&[]));
        assert!(check(&[("content-length", "3")]));
        assert!(check(&[("transfer-encoding", "chunked")]));
        for refused in [
            &[("transfer-encoding", "chunked"), ("content-length", "3")][..],
            &[("content-length", "3"), ("content-length", "3")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "identity")],
        ] {
            assert!(!check(refused), "{refused:?}");
        }
    }
}
