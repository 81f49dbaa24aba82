//! What a program inside does, in its ways: directly, or through a proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::{Failure, INTERCEPTED};

const PATIENCE: Duration = Duration::from_secs(60);

/// How a host is reached.
pub(crate) enum Way {
    Direct,
    /// By `CONNECT` to a name.
    Proxy {
        port: u16,
        name: &'static str,
    },
}

impl Way {
    fn connect(&self, host: SocketAddr) -> Result<TcpStream, Failure> {
        let (address, name) = match self {
            Self::Direct => (host, None),
            Self::Proxy { port, name } => (SocketAddr::from(([127, 0, 0, 1], *port)), Some(name)),
        };
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if let Some(name) = name {
            let port = host.port();
            let request = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte)?;
                head.extend(byte);
            }
            if head.get(9..12) != Some(b"200") {
                return Err(String::from_utf8_lossy(&head).into_owned().into());
            }
        }
        Ok(stream)
    }
}

/// The milliseconds of one exchange of a byte over an open connection.
pub(crate) fn exchange(way: &Way, host: SocketAddr, count: u32) -> Result<f64, Failure> {
    let mut stream = way.connect(host)?;
    let mut byte = [1];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    let start = Instant::now();
    for _ in 0..count {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(count))
}

/// The milliseconds of one request on a new connection, with a response of this length.
pub(crate) fn request(way: &Way, host: SocketAddr, length: usize) -> Result<f64, Failure> {
    let start = Instant::now();
    let stream = way.connect(host)?;
    receive(stream, crate::TUNNELLED, length)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The same with TLS.
pub(crate) fn secured(
    way: &Way,
    host: SocketAddr,
    length: usize,
    trusted: &str,
) -> Result<f64, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let start = Instant::now();
    let stream = way.connect(host)?;
    let connection = ClientConnection::new(config, ServerName::try_from(INTERCEPTED)?)?;
    receive(StreamOwned::new(connection, stream), INTERCEPTED, length)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn receive(mut stream: impl Read + Write, name: &str, length: usize) -> Result<(), Failure> {
    write!(stream, "GET /{length} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")?;
    stream.flush()?;
    let mut buffer = vec![0; 64 << 10];
    let mut head = Vec::new();
    let mut received = loop {
        let count = stream.read(&mut buffer)?;
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break head.len() - end - 4;
        }
        if count == 0 {
            return Err("the response has no head".into());
        }
    };
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Err(String::from_utf8_lossy(&head).into_owned().into());
    }
    while received < length {
        match stream.read(&mut buffer)? {
            0 => return Err("the response is incomplete".into()),
            count => received += count,
        }
    }
    Ok(())
}

/// So many open tunnels, each of which has carried a byte.
pub(crate) fn tunnels(
    way: &Way,
    host: SocketAddr,
    count: usize,
) -> Result<Vec<TcpStream>, Failure> {
    let open = || -> Result<TcpStream, Failure> {
        let mut stream = way.connect(host)?;
        let mut byte = [1];
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        Ok(stream)
    };
    (0..count).map(|_| open()).collect()
}

/// Waits until all are closed by the other side.
pub(crate) fn wait_for_ends(open: Vec<TcpStream>) -> Result<(), Failure> {
    for mut stream in open {
        match stream.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Ok(_) => return Err("a byte came over a connection that is to be closed".into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
