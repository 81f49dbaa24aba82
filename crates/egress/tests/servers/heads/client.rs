//! A client that writes any head, over TLS: frames of HTTP/2 and text of HTTP/1.1 are written here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::cases::{Head, NAME, NUMBER, PATH};

/// How long an answer may take, and how long a server may be silent that waits for more.
const PATIENCE: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(300);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `HEADERS`, `RST_STREAM` and `GOAWAY`, which answer a stream.
const ANSWERS: [u8; 3] = [1, 3, 7];

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Headers as literals without an index (RFC 7541, section 6.2.2). Characters are bytes.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let bytes = bytes(text);
        assert!(bytes.len() < 127, "a length of one byte");
        [vec![u8::try_from(bytes.len()).unwrap()], bytes].concat()
    };
    headers.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A text as Latin-1, or as UTF-8 if it has other characters.
fn bytes(text: &str) -> Vec<u8> {
    let latin: Option<Vec<u8>> = text.chars().map(|own| u8::try_from(own).ok()).collect();
    latin.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// The headers of a stream with this number. `after` is a mark: what follows comes behind all others.
fn headers<'a>(replaced: &'a [(&'a str, &'a str)], number: &'a str) -> Vec<(&'a str, &'a str)> {
    let (late, replaced) = match replaced.split_first() {
        Some((("after", _), late)) => (late, &[][..]),
        _ => (&[][..], replaced),
    };
    let usual = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", NAME),
        (":path", PATH),
        (NUMBER, number),
    ];
    let is_usual = |(name, _): &&(&str, &str)| !replaced.iter().any(|(own, _)| own == name);
    let pseudo = replaced.iter().filter(|(name, _)| name.starts_with(':'));
    let others = replaced.iter().filter(|(name, _)| !name.starts_with(':'));
    let usual = usual.iter().filter(is_usual);
    pseudo.chain(usual).chain(others).chain(late).copied().collect()
}

/// The bytes of a head, with its body.
fn written(head: &Head, number: &str) -> Vec<u8> {
    match head {
        Head::Text(text) => bytes(&text.replacen('$', &format!("\r\n{NUMBER}: {number}\r\n"), 1)),
        Head::Stream(replaced, body) => {
            let block = block(&headers(replaced, number));
            let flags = END_HEADERS | if body.is_empty() { END_STREAM } else { 0 };
            let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            all.extend(frame(SETTINGS, 0, 0, b""));
            all.extend(frame(HEADERS, flags, 1, &block));
            if !body.is_empty() {
                all.extend(frame(DATA, END_STREAM, 1, body.as_bytes()));
            }
            all
        }
    }
}

/// What TLS connections trust, and speak.
fn connector(authority: &str, head: &Head) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    let protocol: &[u8] = match head {
        Head::Stream(..) => b"h2",
        Head::Text(_) => b"http/1.1",
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Sends a head over a connection, and waits for its answer. Returns the first bytes of that.
pub(super) async fn send(stream: TcpStream, authority: &str, head: &Head, number: &str) -> Vec<u8> {
    let server = ServerName::try_from(NAME).unwrap();
    let connecting = connector(authority, head).connect(server, stream);
    let mut stream = timeout(PATIENCE, connecting).await.unwrap().unwrap();
    stream.write_all(&written(head, number)).await.unwrap();
    stream.flush().await.unwrap();
    let answering = async {
        match head {
            Head::Stream(..) => frames(&mut stream).await,
            Head::Text(_) => text(&mut stream).await,
        }
    };
    timeout(PATIENCE, answering).await.unwrap()
}

/// Reads frames until the stream or the connection has its answer.
async fn frames(stream: &mut TlsStream<TcpStream>) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return Vec::new();
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut content).await.is_err() || ANSWERS.contains(&head[3]) {
            return head.to_vec();
        }
    }
}

/// Reads until the end of the connection, or until nothing more comes.
async fn text(stream: &mut TlsStream<TcpStream>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(Ok(1..)) = timeout(SILENCE, stream.read_buf(&mut all)).await {}
    all
}

/// A tunnel through a proxy to a port of the host.
pub(super) async fn tunnel(proxy: SocketAddr, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let request = format!("CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    stream
}
