//! TLS of the listener: a certificate and its private key, from files in PEM format.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::server::TlsStream;

/// Why TLS is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate cannot be read.
    #[error("the certificate cannot be read")]
    Certificate(#[source] pem::Error),
    /// The private key cannot be read.
    #[error("the private key cannot be read")]
    Key(#[source] pem::Error),
    /// They do not belong together, or cannot be used.
    #[error("the certificate and the private key cannot be used")]
    Unusable(#[source] tokio_rustls::rustls::Error),
}

/// Accepts connections with TLS.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// TLS with a chain of certificates and a private key.
    ///
    /// # Errors
    /// If one of the files cannot be read, or they do not belong together.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, Error> {
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(Error::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(Error::Key)?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::Unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(Error::Unusable)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}
