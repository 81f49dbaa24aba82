//! One request to a service: a connection of its own, a deadline, and a limit on the answer.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use stockade_core::network::AUTHORITIES;
use stockade_runtime::Content;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::Failure;
use crate::repeat::Repeat;
use crate::upload::{Parts, Progress};

/// The largest answer that is read as a whole, in bytes.
const ANSWER_BYTES: usize = 16 << 20;
/// The protocol to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Without TLS.
    Http,
    /// With TLS; the certificate is verified.
    Https,
}

impl Protocol {
    /// Its name in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Where a service is, with the headers that it wants.
#[derive(Clone)]
pub struct Place {
    /// How it is reached.
    pub protocol: Protocol,
    /// Host and port.
    pub authority: String,
    /// The start of each path.
    pub path: String,
    /// Sent with each request, and with nothing else.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Authorities that the certificate may be of besides those of the system, in PEM format.
    pub authorities: Option<Arc<str>>,
    /// How long one request may take.
    pub timeout: Duration,
}

impl std::fmt::Debug for Place {
    /// Without headers, which have keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// What is sent.
#[derive(Debug, Clone, Default)]
pub struct Sent {
    /// The type of the body.
    pub content_type: Option<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Headers of this request alone.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Sent {
    /// A body of JSON.
    pub fn json(body: &serde_json::Value) -> Self {
        let content_type = Some("application/json".to_owned());
        Self { content_type, body: body.to_string().into_bytes(), ..Self::default() }
    }
}

/// An answer that was read as a whole.
#[derive(Debug)]
pub struct Answer {
    /// The status, a success.
    pub status: StatusCode,
    /// The body.
    pub body: Vec<u8>,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

impl Place {
    /// Its URL.
    pub fn name(&self) -> String {
        format!("{}://{}{}", self.protocol.as_str(), self.authority, self.path)
    }

    /// Sends a request, and reads the answer. It is sent again after a failure that allows it.
    ///
    /// # Errors
    /// The last failure.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        sent: Sent,
        repeat: Repeat,
    ) -> Result<Answer, Failure> {
        repeat.send(|| self.call_once(&method, path, &sent)).await
    }

    async fn call_once(&self, method: &Method, path: &str, sent: &Sent) -> Result<Answer, Failure> {
        let all = async {
            let body = Full::new(Bytes::from(sent.body.clone()));
            let body = body.map_err(|never| match never {}).boxed_unsync();
            let open = self.send(method.clone(), path, sent, body).await?;
            self.whole(open).await
        };
        let late = |_| Failure::TimedOut(self.name());
        tokio::time::timeout(self.timeout, all).await.map_err(late)?
    }

    /// Sends a request whose content is read while it is sent; it is sent once. It takes as long as the content,
    /// but fails when the server takes nothing for the time of one request.
    ///
    /// # Errors
    /// The failure of the request, or of reading the content.
    pub async fn upload(
        &self,
        path: &str,
        sent: Sent,
        before: Vec<u8>,
        content: Content,
        after: Vec<u8>,
    ) -> Result<Answer, Failure> {
        let progress = Progress::default();
        let body = StreamBody::new(Parts::new(before, content, after, &progress)).boxed_unsync();
        let mut all = std::pin::pin!(async {
            let open = self.send(Method::POST, path, &sent, body).await?;
            self.whole(open).await
        });
        loop {
            match tokio::time::timeout(self.timeout, &mut all).await {
                Ok(answered) => return answered,
                Err(_) if progress.is_seen_within(self.timeout) => {}
                Err(_) => return Err(Failure::TimedOut(self.name())),
            }
        }
    }

    /// Sends a request, and returns the answer before its body has arrived, if it is a success.
    ///
    /// # Errors
    /// The failure of the request.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        sent: &Sent,
    ) -> Result<(StatusCode, Download), Failure> {
        let all = async {
            let body = Full::new(Bytes::from(sent.body.clone()));
            let body = body.map_err(|never| match never {}).boxed_unsync();
            let open = self.send(method, path, sent, body).await?;
            if open.status.is_success() {
                let Open { status, body, driver, .. } = open;
                return Ok((status, Download { body, left: Bytes::new(), driver }));
            }
            Err(match self.whole(open).await {
                Err(failure) => failure,
                Ok(answer) => Failure::Answer(self.name(), format!("status {}", answer.status)),
            })
        };
        let late = |_| Failure::TimedOut(self.name());
        tokio::time::timeout(self.timeout, all).await.map_err(late)?
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        sent: &Sent,
        body: Body,
    ) -> Result<Open, Failure> {
        let lost = |error: &dyn std::fmt::Display| Failure::Lost(self.name(), error.to_string());
        let stream = self.connect().await?;
        let handshaken = handshake::<_, Body>(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshaken.map_err(|error| lost(&error))?;
        let driver = Driver(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.path));
        if let Some(headers) = request.headers_mut() {
            let host = HeaderValue::try_from(&self.authority).map_err(|error| lost(&error))?;
            headers.insert(HOST, host);
            if let Some(kind) = &sent.content_type {
                let kind = HeaderValue::try_from(kind).map_err(|error| lost(&error))?;
                headers.insert(CONTENT_TYPE, kind);
            }
            headers.extend(self.headers.iter().cloned());
            headers.extend(sent.headers.iter().cloned());
        }
        let request = request.body(body).map_err(|error| lost(&error))?;
        let answered = sender.send_request(request).await.map_err(|error| lost(&error))?;
        let (head, body) = answered.into_parts();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|text| text.to_str().ok());
        let retry_after = retry_after.and_then(|text| text.parse().ok());
        Ok(Open { status: head.status, retry_after, body, driver })
    }

    async fn whole(&self, open: Open) -> Result<Answer, Failure> {
        let Open { status, retry_after, body, driver } = open;
        let read = Limited::new(body, ANSWER_BYTES).collect().await;
        drop(driver);
        let read = read.map_err(|error| Failure::Lost(self.name(), error.to_string()))?;
        let body = read.to_bytes().to_vec();
        // A redirect could lead a key elsewhere.
        if !status.is_success() {
            let shown = self.without_keys(&body);
            return Err(Failure::refused(status.as_u16(), retry_after, shown.as_bytes()));
        }
        Ok(Answer { status, body })
    }

    /// A text of the service without the keys that were sent to it: an error may repeat them.
    fn without_keys(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        let sensitive = self.headers.iter().filter(|(_, value)| value.is_sensitive());
        for (_, value) in sensitive {
            // The key follows the name of its scheme.
            let key = value.to_str().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
            if !key.is_empty() {
                text = text.replace(key, "[redacted]");
            }
        }
        text
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let failed = |error| Failure::Connect(self.name(), error);
        let (host, port) = self.host_and_port();
        let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
        // Requests are small, and each waits for its answer.
        let _ = stream.set_nodelay(true);
        if self.protocol == Protocol::Http {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(trust(self.authorities.as_deref()).map_err(failed)?);
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }

    fn host_and_port(&self) -> (&str, u16) {
        let default = if self.protocol == Protocol::Https { 443 } else { 80 };
        let split = self.authority.rsplit_once(':').and_then(|(host, port)| {
            let is_whole = !host.contains(':') || host.ends_with(']');
            is_whole.then(|| port.parse().ok().map(|port| (host, port))).flatten()
        });
        let (host, port) = split.unwrap_or((&self.authority, default));
        (host.trim_start_matches('[').trim_end_matches(']'), port)
    }
}

/// The authorities of the system, and others.
fn trust(others: Option<&str>) -> io::Result<Arc<ClientConfig>> {
    let text = AUTHORITIES.iter().find_map(|path| std::fs::read(Path::new(path)).ok());
    let mut roots = RootCertStore::empty();
    if let Some(text) = &text {
        let certificates = CertificateDer::pem_slice_iter(text);
        // Systems have some certificates that no program accepts any more.
        roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    }
    for certificate in
        others.into_iter().flat_map(|text| CertificateDer::pem_slice_iter(text.as_bytes()))
    {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("there are no authorities for TLS on this host"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// An answer whose body has not been read.
struct Open {
    status: StatusCode,
    retry_after: Option<u64>,
    body: Incoming,
    driver: Driver,
}

/// The task of a connection, which ends with its use.
#[derive(Debug)]
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer, as it arrives.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    left: Bytes,
    #[expect(dead_code, reason = "the connection lives as long as its body is read")]
    driver: Driver,
}

impl AsyncRead for Download {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        use hyper::body::Body as _;
        loop {
            if !self.left.is_empty() {
                let length = self.left.len().min(buffer.remaining());
                buffer.put_slice(&self.left.split_to(length));
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(Some(Ok(frame))) => {
                    self.left = frame.into_data().unwrap_or_default();
                }
            }
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_repeats_the_key_is_shown_without_it() {
        let mut value = HeaderValue::from_static("token key-123");
        value.set_sensitive(true);
        let place = Place {
            protocol: Protocol::Http,
            authority: "a".to_owned(),
            path: String::new(),
            headers: vec![(hyper::header::AUTHORIZATION, value)],
            authorities: None,
            timeout: Duration::from_secs(1),
        };
        assert_eq!(place.without_keys(b"no user has key-123"), "no user has [redacted]");
        assert_eq!(format!("{place:?}"), "http://a");
    }

    #[test]
    fn a_port_is_not_a_part_of_an_address() {
        for (authority, expected) in [
            ("box.example", ("box.example", 80)),
            ("127.0.0.1:8080", ("127.0.0.1", 8080)),
            ("[::1]:8080", ("::1", 8080)),
            ("[::1]", ("::1", 80)),
        ] {
            let place = Place {
                protocol: Protocol::Http,
                authority: authority.to_owned(),
                path: String::new(),
                headers: Vec::new(),
                authorities: None,
                timeout: Duration::from_secs(1),
            };
            assert_eq!(place.host_and_port(), expected, "{authority}");
        }
    }
}
