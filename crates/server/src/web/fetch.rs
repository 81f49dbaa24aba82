//! Requests to the OpenID provider: without redirects, within a deadline and a size.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use stockade_api::Problem;
use stockade_core::Code;
use stockade_core::network::AUTHORITIES;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::{Host, Url};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest response, in bytes.
const RESPONSE_BYTES: usize = 1 << 20;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The address is invalid, or needs TLS that is not configured.
    #[error("the address {0} cannot be used")]
    Address(String),
    /// The connection failed.
    #[error("connect to {0}")]
    Connect(String, #[source] io::Error),
    /// The exchange failed.
    #[error("exchange with {0}: {1}")]
    Exchange(String, String),
    /// It took too long.
    #[error("{0} did not answer in time")]
    TimedOut(String),
}

/// The authorities for TLS: those in a file, or those of the system.
pub(super) fn trust(file: Option<&Path>) -> Result<Arc<ClientConfig>, Problem> {
    let system = AUTHORITIES.iter().map(Path::new);
    let texts: Vec<_> = match file {
        Some(file) => {
            let text = std::fs::read(file).map_err(|error| {
                let message = format!("the authorities {} cannot be read", file.display());
                Problem::new(Code::InvalidInput, message).because(error.to_string())
            })?;
            vec![text]
        }
        None => system.filter_map(|path| std::fs::read(path).ok()).take(1).collect(),
    };
    let mut roots = RootCertStore::empty();
    for text in &texts {
        // Systems have some certificates that no program accepts any more.
        roots
            .add_parsable_certificates(CertificateDer::pem_slice_iter(text).filter_map(Result::ok));
    }
    if roots.is_empty() {
        return Err(Problem::new(Code::InvalidInput, "there are no authorities for TLS")
            .remedied_by("apt-get install ca-certificates"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::caused(Code::Io, &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Whether a URL leads to this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Sends a request. A redirect is a response like any other.
pub(super) async fn fetch(
    trust: Option<Arc<ClientConfig>>,
    request: Request<Vec<u8>>,
) -> Result<Response<Vec<u8>>, Error> {
    let address = request.uri().to_string();
    let all = tokio::time::timeout(TIMEOUT, exchange(trust, request));
    all.await.unwrap_or_else(|_| Err(Error::TimedOut(address)))
}

async fn exchange(
    trust: Option<Arc<ClientConfig>>,
    request: Request<Vec<u8>>,
) -> Result<Response<Vec<u8>>, Error> {
    let text = request.uri().to_string();
    let url = Url::parse(&text).map_err(|_| Error::Address(text.clone()))?;
    let host = url.host_str().ok_or_else(|| Error::Address(text.clone()))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    let connected = TcpStream::connect((bare.as_str(), port)).await;
    let stream = connected.map_err(|error| Error::Connect(text.clone(), error))?;
    let stream: Box<dyn Stream> = match (url.scheme(), trust) {
        ("https", Some(trust)) => {
            let name = ServerName::try_from(bare).map_err(|_| Error::Address(text.clone()))?;
            let connected = TlsConnector::from(trust).connect(name, stream).await;
            Box::new(connected.map_err(|error| Error::Connect(text.clone(), error))?)
        }
        ("http", _) if is_loopback(&url) => Box::new(stream),
        _ => return Err(Error::Address(text)),
    };
    let failed = |error: &dyn std::fmt::Display| Error::Exchange(text.clone(), error.to_string());
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let authority = HeaderValue::try_from(authority).map_err(|error| failed(&error))?;
    parts.headers.insert(header::HOST, authority);
    parts.uri = path.parse().map_err(|_| Error::Address(text.clone()))?;
    let handshaken = handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, driver) = handshaken.map_err(|error| failed(&error))?;
    let driver = tokio::spawn(driver);
    let answered = sender.send_request(Request::from_parts(parts, Full::from(body))).await;
    let (head, body) = answered.map_err(|error| failed(&error))?.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES).collect().await;
    driver.abort();
    let body = body.map_err(|error| failed(&error))?.to_bytes();
    Ok(Response::from_parts(head, body.to_vec()))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
