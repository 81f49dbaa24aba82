//! The hosts: one that echoes, and one of HTTP with and without TLS whose path is the length of its
//! response.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Failure, INTERCEPTED, TUNNELLED};

const PIECE: usize = 64 << 10;

pub(crate) struct Far {
    pub(crate) echo: SocketAddr,
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
    /// The certificate of the authority (PEM).
    pub(crate) authority: String,
    _runtime: Runtime,
}

impl Far {
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate()?;
        let names = vec![TUNNELLED.to_owned(), INTERCEPTED.to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.signed_by(&own, &issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (echo, plain, secure) = runtime.block_on(async {
            let bind = || TcpListener::bind("127.0.0.1:0");
            Ok::<_, Failure>((bind().await?, bind().await?, bind().await?))
        })?;
        let addresses = (echo.local_addr()?, plain.local_addr()?, secure.local_addr()?);
        runtime.spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        runtime.spawn(async move {
            while let Ok((stream, _)) = plain.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(respond(stream));
            }
        });
        runtime.spawn(async move {
            while let Ok((stream, _)) = secure.accept().await {
                let _ = stream.set_nodelay(true);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        respond(stream).await;
                    }
                });
            }
        });
        let (echo, plain, secure) = addresses;
        Ok(Self { echo, plain, secure, authority: pem(authority.der()), _runtime: runtime })
    }
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let length = text.split(['/', ' ']).nth(2).and_then(|text| text.parse().ok()).unwrap_or(0);
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    if stream.write_all(answer.as_bytes()).await.is_err() {
        return;
    }
    let piece = vec![b'x'; PIECE];
    let mut left: usize = length;
    while left > 0 {
        let part = piece.get(..left.min(PIECE)).unwrap_or_default();
        if stream.write_all(part).await.is_err() {
            return;
        }
        left -= part.len();
    }
    let _ = stream.shutdown().await;
}
