//! The certificate authority of one sandbox. Only programs inside trust it; its key never leaves
//! this process and is dropped with the sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use stockade_core::network::Name;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The largest number of hosts whose certificates are cached.
const MAX_CACHED: usize = 256;

/// Why a certificate is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be created.
    #[error("create a certificate")]
    Make(#[from] rcgen::Error),
    /// It cannot be used.
    #[error("use a certificate")]
    Use(#[from] rustls::Error),
}

/// The authority.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    cache: Mutex<HashMap<(Name, Protocol), Arc<ServerConfig>>>,
}

/// A protocol of requests that can be read, as TLS names it (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// Its name.
    pub(crate) const fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Stockade egress of one sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.der().clone();
        let issuer = Issuer::new(params, key);
        Ok(Self { certificate, issuer, cache: Mutex::new(HashMap::new()) })
    }

    /// Its certificate, for programs that must trust it (RFC 7468).
    pub(crate) fn pem(&self) -> String {
        let text = STANDARD.encode(&self.certificate);
        let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
        for line in text.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem + "-----END CERTIFICATE-----\n"
    }

    /// The configuration of a server with that name, which speaks one protocol.
    pub(crate) fn server(
        &self,
        name: &Name,
        protocol: Protocol,
    ) -> Result<Arc<ServerConfig>, Error> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let key_of_cache = (name.clone(), protocol);
        if let Some(config) = cache().get(&key_of_cache) {
            return Ok(Arc::clone(config));
        }
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.as_str().to_owned()])?;
        // Clients verify the subject alternative names; the common name is for people, and limited
        // to 64 characters.
        let shown = if name.as_str().len() <= 64 { name.as_str() } else { "a host" };
        params.distinguished_name.push(DnType::CommonName, shown);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate, self.certificate.clone()], key)?;
        config.alpn_protocols = vec![protocol.name().to_vec()];
        let config = Arc::new(config);
        let mut cache = cache();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(key_of_cache, Arc::clone(&config));
        Ok(config)
    }
}
