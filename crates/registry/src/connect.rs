//! Connections: names are resolved, addresses are tried one after the other, and TLS is verified
//! against the authorities of this system.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_core::address::{Class, classify};
use stockade_core::network::AUTHORITIES;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use url::{Host, Url};

use crate::error::Error;
use crate::host::authority;
use crate::times::Times;

/// Where Docker has the authorities of single registries.
const DOCKER_AUTHORITIES: &str = "/etc/docker/certs.d";
/// The longest file of authorities that is read, in bytes.
const FILE_BYTES: u64 = 8 << 20;

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The authorities that TLS connections are verified against.
#[derive(Debug, Clone)]
pub struct Trust(Result<Arc<ClientConfig>, String>);

impl Trust {
    /// Reads the authorities that this system trusts (`SSL_CERT_FILE` has precedence, as in OpenSSL),
    /// and those that Docker has for these hosts. A failure is reported when TLS is needed.
    #[must_use]
    pub fn load(hosts: &[String], named: Option<PathBuf>) -> Self {
        let system = named.into_iter().chain(AUTHORITIES.iter().map(PathBuf::from));
        let mut texts: Vec<_> = system.filter_map(|path| read(&path)).take(1).collect();
        for host in hosts.iter().filter(|host| !host.contains("..")) {
            let entries = std::fs::read_dir(Path::new(DOCKER_AUTHORITIES).join(host));
            let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
            let files = files.filter(|path| path.extension().is_some_and(|end| end == "crt"));
            texts.extend(files.filter_map(|path| read(&path)));
        }
        Self(configuration(&texts))
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}

fn configuration(texts: &[Vec<u8>]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for text in texts {
        // Systems keep some certificates that no program accepts any more.
        roots
            .add_parsable_certificates(CertificateDer::pem_slice_iter(text).filter_map(Result::ok));
    }
    if roots.is_empty() {
        return Err("this system has no CA certificates (package ca-certificates)".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A connection, and what kind of address its other end has.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) class: Class,
}

/// Whether a host with an address of one class may name a host with an address of another. A registry
/// reaches through its client what it cannot reach itself, so it may lead to the internet and to its own
/// kind of network only: never from there into this machine, to its link, or to the credentials of a cloud.
const fn may_lead(from: Class, to: Class) -> bool {
    match (from, to) {
        (_, Class::Public) | (Class::Loopback, _) => true,
        (Class::Public, _) => false,
        (Class::LinkLocal, Class::LinkLocal) | (Class::Metadata, Class::Metadata) => true,
        (_, Class::Loopback | Class::Unspecified | Class::LinkLocal | Class::Metadata) => false,
        _ => true,
    }
}

/// Connects to the host of a URL. `led_by` is the kind of address of the host that named it; `None` if the
/// user did.
pub(crate) async fn open(
    url: &Url,
    trust: &Trust,
    times: &Times,
    led_by: Option<Class>,
) -> Result<Connection, Error> {
    let unreachable = |reason: String| Error::Unreachable { host: authority(url), reason };
    let connect = async {
        let addresses = resolve(url).await.map_err(|error| unreachable(error.to_string()))?;
        let mut failure = unreachable("the name has no address".to_owned());
        for address in addresses {
            let class = classify(address.ip());
            if let Some(from) = led_by.filter(|from| !may_lead(*from, class)) {
                failure = Error::LedInside { host: authority(url), address: address.ip(), from };
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok((stream, class)),
                Err(error) => failure = unreachable(error.to_string()),
            }
        }
        Err(failure)
    };
    let all = async {
        let (stream, class) = connect.await?;
        // Requests are small and wait for their response.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = match url.scheme() {
            "https" => Box::new(secure(url, stream, trust).await?),
            _ => Box::new(stream),
        };
        Ok(Connection { stream, class })
    };
    let limited = tokio::time::timeout(times.connect, all).await;
    limited.unwrap_or_else(|_| {
        Err(unreachable(format!("no connection after {} seconds", times.connect.as_secs())))
    })
}

async fn resolve(url: &Url) -> io::Result<Vec<SocketAddr>> {
    let port = url.port_or_known_default().unwrap_or(443);
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Ipv6(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Domain(name)) => Ok(tokio::net::lookup_host((name, port)).await?.collect()),
        None => Err(io::Error::other("the URL has no host")),
    }
}

async fn secure(
    url: &Url,
    stream: TcpStream,
    trust: &Trust,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let unreachable = |reason: String| Error::Unreachable { host: authority(url), reason };
    let config = trust.0.clone().map_err(unreachable)?;
    let host = url.host_str().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let name = ServerName::try_from(bare.trim_end_matches('.').to_owned());
    let name = name.map_err(|error| unreachable(error.to_string()))?;
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        let reason = error.to_string();
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            // It speaks TLS, and is not the host that it should be.
            Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::AlertReceived(_)
                | rustls::Error::NoCertificatesPresented,
            ) => unreachable(reason),
            _ => Error::NoTls { host: authority(url), reason },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_leads_to_the_internet_and_to_its_own_kind_of_network() {
        use Class::*;
        for (from, to, expected) in [
            (Public, Public, true),
            (Public, Private, false),
            (Public, Loopback, false),
            (Public, Metadata, false),
            (Public, Unspecified, false),
            (Private, Public, true),
            (Private, Private, true),
            (Private, Carrier, true),
            (Private, Loopback, false),
            (Private, Unspecified, false),
            (Private, LinkLocal, false),
            (Private, Metadata, false),
            (Documentation, Metadata, false),
            (LinkLocal, LinkLocal, true),
            (LinkLocal, Metadata, false),
            (Metadata, Loopback, false),
            (Loopback, Loopback, true),
            (Loopback, Private, true),
        ] {
            assert_eq!(may_lead(from, to), expected, "{from} to {to}");
        }
    }
}
