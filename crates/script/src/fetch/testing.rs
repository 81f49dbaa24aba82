//! A server on loopback that acts as every public host: names have the addresses that the test
//! chooses, and a connection to any checked address ends at the server.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use url::Url;

use super::connect::{Connect, Stream, secure, trust};
use super::guard::Resolve;

/// For `secure.example.com`, until 2126.
const CERTIFICATE: &[u8] = include_bytes!("testing/certificate.pem");
const KEY: &[u8] = include_bytes!("testing/key.pem");

/// The server's response to a request, by its first line and the `Host` header.
type Handler = fn(&str) -> String;

/// A running server, and the requests that it received.
#[derive(Debug)]
pub(super) struct FakeNetwork {
    server: SocketAddr,
    names: BTreeMap<&'static str, Vec<IpAddr>>,
    pub(super) resolved: Mutex<Vec<String>>,
    pub(super) connected: Mutex<Vec<SocketAddr>>,
    pub(super) requests: Arc<Mutex<Vec<String>>>,
}

impl FakeNetwork {
    /// A world with these names, whose one server responds like this.
    pub(super) async fn new(names: &[(&'static str, &str)], handler: Handler) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, handler, Arc::clone(&requests)));
        let parsed = |(name, addresses): &(&'static str, &str)| {
            (*name, addresses.split_whitespace().map(|one| one.parse().unwrap()).collect())
        };
        Arc::new(Self {
            server,
            names: names.iter().map(parsed).collect(),
            resolved: Mutex::default(),
            connected: Mutex::default(),
            requests,
        })
    }
}

#[async_trait]
impl Resolve for FakeNetwork {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.resolved.lock().unwrap().push(name.to_owned());
        self.names.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[async_trait]
impl Connect for FakeNetwork {
    async fn connect(&self, url: &Url, addresses: &[SocketAddr]) -> io::Result<Box<dyn Stream>> {
        let vetted = addresses.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.connected.lock().unwrap().push(*vetted);
        let stream = TcpStream::connect(self.server).await?;
        if url.scheme() != "https" {
            return Ok(Box::new(stream));
        }
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        Ok(Box::new(secure(stream, url, trust(&[certificate]).unwrap()).await?))
    }
}

async fn serve(listener: TcpListener, handler: Handler, requests: Arc<Mutex<Vec<String>>>) {
    let certificates = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, requests) = (acceptor.clone(), Arc::clone(&requests));
        tokio::spawn(async move {
            let mut first = [0];
            // The first byte of a TLS handshake.
            if stream.peek(&mut first).await.is_ok() && first == [0x16] {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, handler, &requests).await;
                }
            } else {
                answer(stream, handler, &requests).await;
            }
        });
    }
}

async fn answer<S: Stream>(mut stream: S, handler: Handler, requests: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let Ok(length) = stream.read(&mut piece).await else { return };
        request.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(length > 0, "{text}");
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let answer = handler(&format!("{first} {host}"));
    requests.lock().unwrap().push(text.clone());
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
