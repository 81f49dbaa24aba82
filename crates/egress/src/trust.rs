//! The certificate authorities that are trusted when this crate itself makes TLS connections to
//! hosts.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::authority::Protocol;

/// The longest file of authorities that is read, in bytes.
const FILE_BYTES: u64 = 8 << 20;

/// The trusted authorities.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Parses a text (RFC 7468); anything in it that is not a certificate is skipped, as in other
    /// programs.
    ///
    /// # Errors
    /// It contains no certificate.
    pub fn from_pem(text: &[u8]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
        let (taken, _) = roots.add_parsable_certificates(certificates);
        if taken == 0 {
            return Err(io::Error::other("there are no CA certificates"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or as [`Trust::from_pem`].
    pub fn read(file: File) -> io::Result<Self> {
        let mut text = Vec::new();
        file.take(FILE_BYTES).read_to_end(&mut text)?;
        Self::from_pem(&text)
    }

    /// The configuration of a connection that offers these protocols.
    pub(crate) fn offering(&self, protocols: &[Protocol]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = protocols.iter().map(|own| own.name().to_vec()).collect();
        Arc::new(config)
    }
}
