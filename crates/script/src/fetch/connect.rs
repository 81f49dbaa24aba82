//! Opens the connections of fetches, only to addresses that were checked.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use stockade_core::network::AUTHORITIES;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use url::Url;

/// A stream that can be read and written.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens connections.
#[async_trait]
pub trait Connect: std::fmt::Debug + Send + Sync {
    /// A stream for HTTP with the URL's host, at one of these addresses.
    ///
    /// # Errors
    /// Why there is none.
    async fn connect(&self, url: &Url, addresses: &[SocketAddr]) -> io::Result<Box<dyn Stream>>;
}

/// Connects by TCP, with TLS if the URL is `https`.
#[derive(Debug, Default)]
pub struct Direct {
    /// Loaded at first use.
    trusted: OnceLock<Result<Arc<ClientConfig>, String>>,
}

#[async_trait]
impl Connect for Direct {
    async fn connect(&self, url: &Url, addresses: &[SocketAddr]) -> io::Result<Box<dyn Stream>> {
        // One after the other, in the order of the resolver.
        let stream = TcpStream::connect(addresses).await?;
        stream.set_nodelay(true)?;
        if url.scheme() != "https" {
            return Ok(Box::new(stream));
        }
        let trusted = self.trusted.get_or_init(|| trust(&authorities()?).map_err(describe));
        let trusted = trusted.clone().map_err(io::Error::other)?;
        Ok(Box::new(secure(stream, url, trusted).await?))
    }
}

/// Makes a TLS connection to a URL's host over a stream.
pub(super) async fn secure<S: Stream>(
    stream: S,
    url: &Url,
    trusted: Arc<ClientConfig>,
) -> io::Result<tokio_rustls::client::TlsStream<S>> {
    let host = url.host_str().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(bare.trim_end_matches('.').to_owned());
    let name = name.map_err(io::Error::other)?;
    TlsConnector::from(trusted).connect(name, stream).await
}

/// A TLS configuration that trusts these authorities.
pub(super) fn trust(
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // Systems keep some certificates that no program accepts any more.
    roots.add_parsable_certificates(authorities.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The certificates of the authorities that this system trusts: `SSL_CERT_FILE` has precedence
/// (OpenSSL's rule).
fn authorities() -> Result<Vec<CertificateDer<'static>>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let candidates = named.into_iter().chain(AUTHORITIES.iter().map(std::path::PathBuf::from));
    let file = candidates.filter_map(|path| File::open(path).ok()).next();
    let file = file.ok_or("this system has no CA certificates (package ca-certificates)")?;
    CertificateDer::pem_reader_iter(file).collect::<Result<_, _>>().map_err(describe)
}

fn describe(error: impl std::fmt::Display) -> String {
    error.to_string()
}
