//! HTTP with servers on ports inside: a request, and a response whose body is streamed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use stockade_api::body::BodyReader;
use stockade_api::{
    Caller, FileContent, HttpHead, HttpRequest, HttpStream, Method, OpenWebSocket, Result,
    WebSocket,
};
use stockade_core::{Code, Problem};
use stockade_runtime::{Connection, Target};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::AbortOnDrop;
use crate::connection::SandboxConnection;
use crate::failure::{invalid, runtime_problem};
use crate::inner::Inner;
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};
use crate::service::Service;
use crate::{handshake as websocket, spec};

/// The timeout of a response if the request has none.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A response with the connection that carries its body.
pub(crate) struct PortResponse {
    pub(crate) head: hyper::http::response::Parts,
    pub(crate) body: Incoming,
    connection: AbortOnDrop<()>,
}

/// The problem for a port that failed.
pub(crate) fn port_problem(port: u16, what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::Unreachable, format!("port {port} {what}")).because(error.to_string())
}

/// Opens an HTTP connection to a port.
async fn open(
    inner: &Inner,
    owned: &OwnedSandbox,
    port: u16,
) -> Result<(SendRequest<Full<Bytes>>, AbortOnDrop<()>)> {
    let runtime = inner.runtime(&owned.runtime)?;
    let connected = runtime.connect(&owned.id, &Target::Tcp(port)).await;
    let connection: Box<dyn Connection> = connected.map_err(|error| runtime_problem(&error))?;
    let opened = handshake(TokioIo::new(connection)).await;
    let (sender, driver) =
        opened.map_err(|error| port_problem(port, "does not speak HTTP", &error))?;
    let driver = tokio::spawn(async move {
        // The response reports its result.
        let _ = driver.with_upgrades().await;
    });
    Ok((sender, AbortOnDrop(driver)))
}

/// The head of a request, with the caller's headers.
fn head(
    method: hyper::Method,
    port: u16,
    path: &str,
    headers: &BTreeMap<String, String>,
) -> hyper::http::request::Builder {
    let mut head = hyper::Request::builder().method(method).uri(path);
    if !headers.keys().any(|name| name.eq_ignore_ascii_case("host")) {
        head = head.header(hyper::header::HOST, format!("localhost:{port}"));
    }
    headers.iter().fold(head, |head, (name, value)| head.header(name, value))
}

/// Sends a request, and waits for the head of its response.
pub(crate) async fn send(
    inner: &Inner,
    owned: &OwnedSandbox,
    request: HttpRequest,
) -> Result<PortResponse> {
    let port = request.port;
    let (mut sender, connection) = open(inner, owned, port).await?;
    let method = method(request.method);
    let head = head(method, port, &request.path, &request.headers);
    let body = Full::new(Bytes::from(request.body.map(|body| body.0).unwrap_or_default()));
    let sent =
        head.body(body).map_err(|error| invalid(format!("the request is invalid: {error}")))?;
    let response = sender.send_request(sent).await;
    let response = response.map_err(|error| port_problem(port, "did not answer", &error))?;
    let (head, body) = response.into_parts();
    Ok(PortResponse { head, body, connection })
}

/// Fails for a request that cannot be sent.
pub(super) fn check(request: &HttpRequest) -> Result<()> {
    if request.port == 0 {
        return Err(invalid("the port of a request must be from 1 to 65535"));
    }
    if !request.path.starts_with('/') {
        return Err(invalid("the path of a request must start with `/`"));
    }
    request.timeout_seconds.map(spec::duration).transpose()?;
    Ok(())
}

const fn method(method: Method) -> hyper::Method {
    match method {
        Method::Get => hyper::Method::GET,
        Method::Head => hyper::Method::HEAD,
        Method::Post => hyper::Method::POST,
        Method::Put => hyper::Method::PUT,
        Method::Patch => hyper::Method::PATCH,
        Method::Delete => hyper::Method::DELETE,
        Method::Options => hyper::Method::OPTIONS,
    }
}

/// The headers of a response; the values of a repeated header are joined by a comma.
pub(crate) fn headers(head: &hyper::http::response::Parts) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|all| *all = format!("{all}, {value}"))
            .or_insert(value);
    }
    headers
}

async fn with_timeout<T>(
    timeout_seconds: Option<f64>,
    response: impl Future<Output = Result<T>>,
) -> Result<T> {
    let timeout = timeout_seconds.map(spec::duration).transpose()?.unwrap_or(TIMEOUT);
    tokio::time::timeout(timeout, response).await.unwrap_or_else(|_| {
        Err(Problem::new(Code::TimedOut, format!("no response within {timeout:?}")))
    })
}

/// Sends a request, and streams the response's body. Nothing of it is recorded.
pub(crate) async fn stream(
    service: &Service,
    caller: &Caller,
    request: HttpRequest,
) -> Result<HttpStream> {
    let used = service.inner.use_sandbox(&caller.owner, &request.sandbox_id).await?;
    check(&request)?;
    if request.markdown {
        return Err(invalid("a streamed body cannot be converted to Markdown"));
    }
    let limit = request.limit_bytes.unwrap_or(u64::MAX);
    let response =
        with_timeout(request.timeout_seconds, send(&service.inner, &used, request)).await?;
    let head = HttpHead { status: response.head.status.as_u16(), headers: headers(&response.head) };
    let body = Body {
        received: BodyReader::new(response.body),
        _connection: response.connection,
        _used: used,
    };
    Ok(HttpStream { head, body: FileContent(Box::pin(body.take(limit))) })
}

/// A body as a byte stream; it counts as a use of its sandbox until it is dropped.
struct Body {
    received: BodyReader<Incoming>,
    _connection: AbortOnDrop<()>,
    _used: ActiveSandbox,
}

impl AsyncRead for Body {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.received).poll_read(context, buffer)
    }
}

/// Opens a WebSocket. Nothing of it is recorded.
pub(crate) async fn web_socket(
    service: &Service,
    caller: &Caller,
    request: WebSocket,
) -> Result<OpenWebSocket> {
    let used = service.inner.use_sandbox(&caller.owner, &request.sandbox_id).await?;
    if !request.path.starts_with('/') {
        return Err(invalid("the path of a WebSocket must start with `/`"));
    }
    let (protocol, connection) =
        with_timeout(request.timeout_seconds, upgrade(&service.inner, &used, &request)).await?;
    Ok(OpenWebSocket { protocol, connection: Box::new(SandboxConnection::new(connection, used)) })
}

/// The opening handshake (RFC 6455, section 4).
async fn upgrade(
    inner: &Inner,
    owned: &OwnedSandbox,
    request: &WebSocket,
) -> Result<(Option<String>, Box<dyn Connection>)> {
    let WebSocket { port, path, headers, protocols, .. } = request;
    let refused = |what: &str, why: &dyn std::fmt::Display| port_problem(*port, what, why);
    let (mut sender, driver) = open(inner, owned, *port).await?;
    let own = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "connection" || name == "upgrade" || name.starts_with("sec-websocket-")
    };
    let headers = headers.iter().filter(|(name, _)| !own(name));
    let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
    let key = websocket::key();
    let mut head = head(hyper::Method::GET, *port, path, &headers)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key);
    if !protocols.is_empty() {
        head = head.header("sec-websocket-protocol", protocols.join(", "));
    }
    let sent = head.body(Full::default());
    let sent = sent.map_err(|error| invalid(format!("the request is invalid: {error}")))?;
    let response = sender.send_request(sent).await;
    let response = response.map_err(|error| refused("did not answer", &error))?;
    let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    if response.status() != hyper::StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused("did not open a WebSocket", &response.status()));
    }
    if text("sec-websocket-accept") != Some(&websocket::accept(&key)) {
        return Err(refused(
            "did not open a WebSocket",
            &"its response does not match the request",
        ));
    }
    let protocol = text("sec-websocket-protocol").map(str::to_owned);
    if protocol.as_ref().is_some_and(|chosen| !protocols.contains(chosen)) {
        return Err(refused(
            "did not open a WebSocket",
            &"it chose a protocol that was not offered",
        ));
    }
    let upgraded = hyper::upgrade::on(response).await;
    let upgraded = upgraded.map_err(|error| refused("did not open a WebSocket", &error))?;
    // It has handed over the connection, and ends by itself.
    drop(driver);
    Ok((protocol, Box::new(TokioIo::new(upgraded))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stockade_api::{CreateSandbox, Sandboxes as _};
    use stockade_core::OwnerId;
    use stockade_durable::sqlite;
    use stockade_runtime::fake::Fake;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_web_socket_is_opened_and_carries_bytes_both_ways() {
        let directory = tempfile::tempdir().unwrap();
        let (path, synchronous) = (directory.path().join("db"), sqlite::Synchronous::Normal);
        let options = sqlite::Options { path, synchronous, migrations: crate::MIGRATIONS };
        let store = Arc::new(sqlite::Sqlite::open(options).await.unwrap());
        let fake = Fake::new();
        let runtimes: Vec<Arc<dyn stockade_runtime::Runtime>> = vec![Arc::new(fake.clone())];
        let service = Service::launch(store, runtimes, crate::Options::default()).await.unwrap();
        let me = Caller::new(OwnerId::new("u1").unwrap());
        let sandbox = service.create(&me, CreateSandbox::default()).await.unwrap();
        let mut listener = fake.listen(&sandbox.id, Target::Tcp(80)).unwrap();
        tokio::spawn(async move {
            let mut connection = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap();
            let key = request.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
            let accept = websocket::accept(key.unwrap());
            let response = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-protocol: chat\r\nsec-websocket-accept: {accept}\r\n\r\nhello"
            );
            connection.write_all(response.as_bytes()).await.unwrap();
            let (mut from, mut to) = tokio::io::split(connection);
            tokio::io::copy(&mut from, &mut to).await.unwrap();
        });
        let request = WebSocket {
            sandbox_id: sandbox.id,
            port: 80,
            path: "/ws".to_owned(),
            headers: BTreeMap::new(),
            protocols: vec!["chat".to_owned()],
            timeout_seconds: None,
        };
        let mut opened = service.web_socket(&me, request).await.unwrap();
        assert_eq!(opened.protocol.as_deref(), Some("chat"));
        let mut received = [0; 5];
        opened.connection.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hello");
        opened.connection.write_all(b"again").await.unwrap();
        opened.connection.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"again");
    }
}
