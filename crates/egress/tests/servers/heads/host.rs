//! A host in this process that says what it receives, and the certificates of all hosts of these tests.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use super::Seen;
use super::cases::{NAME, NUMBER};

/// The certificate of the host, its key, and the authority that has signed it (PEM).
pub(super) struct Identity {
    pub(super) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

fn pem(kind: &str, content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

impl Identity {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the heads of requests");
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let names = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let certificate = names.signed_by(&own, &issuer).unwrap();
        Self {
            authority: pem("CERTIFICATE", authority.der()),
            certificate: pem("CERTIFICATE", certificate.der()),
            key: pem("PRIVATE KEY", &own.serialize_der()),
        }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Starts the host. It has seen a request before it answers.
pub(super) async fn start(identity: &Identity) -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = identity.acceptor();
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                match stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    true => streams(stream, sender).await,
                    false => text(stream, sender).await,
                }
            });
        }
    });
    (address, seen)
}

async fn streams(stream: TlsStream<TcpStream>, seen: mpsc::UnboundedSender<Seen>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let uri = request.uri();
        let value = |name: &str| {
            let value = request.headers().get(name).map(|value| value.as_bytes());
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        };
        let one = Seen {
            number: value(NUMBER),
            method: request.method().to_string(),
            host: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: decoded(uri.path()),
            authorization: value("authorization"),
        };
        let _ = seen.send(one);
        let _ = respond.send_response(http::Response::new(()), true);
    }
}

/// Reads all requests of a connection, as far as their heads go.
async fn text(mut stream: TlsStream<TcpStream>, seen: mpsc::UnboundedSender<Seen>) {
    let mut all = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut all).await {
        while let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<_> = all.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            let mut lines = head.split("\r\n");
            let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
            // The end of a body in chunks.
            if !words.last().is_some_and(|word| word.starts_with("HTTP/")) {
                continue;
            }
            let fields: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
            let value = |name: &str| {
                let own: Vec<_> =
                    fields.iter().filter(|field| field.0.eq_ignore_ascii_case(name)).collect();
                own.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(", ")
            };
            let target = words.get(1).copied().unwrap_or_default();
            let one = Seen {
                number: value(NUMBER),
                method: words.first().copied().unwrap_or_default().to_owned(),
                host: value("host"),
                path: decoded(target.split('?').next().unwrap_or_default()),
                authorization: value("authorization"),
            };
            let _ = seen.send(one);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

/// A path as a server decodes it.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path;
    while let Some((plain, encoded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(&encoded[..2], 16).unwrap());
        rest = &encoded[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).unwrap()
}
