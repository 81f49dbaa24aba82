//! Traffic to the host's side of the network: attempts to connect by address, by name or through
//! the proxy, and the responses.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] =
    &[("fetch", fetch), ("fetch-secured", fetch_tls), ("reach", reach)];

/// How long any operation may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `fetch (direct|proxy) NAME:PORT…`: prints the response of a server, by its name: no attack.
fn fetch(arguments: &[String]) -> Verdict {
    let Some((way, servers)) = arguments.split_first() else {
        return Verdict::Broken("a way is needed".into());
    };
    let output: Vec<_> = servers
        .iter()
        .map(|server| {
            let output = match way.as_str() {
                "proxy" => by_proxy(server),
                _ => TcpStream::connect(server.as_str()).and_then(|stream| get(stream, server)),
            };
            output.unwrap_or_else(|error| format!("no answer: {error}"))
        })
        .collect();
    Verdict::Blocked(output.join(" | "))
}

/// `fetch-secured VARIABLE NAME:PORT[/PATH]…`: prints the response of a server over TLS to a request
/// with a variable's value as `Authorization`, which asks for a compressed part of the body. Trusts
/// the authorities in `SSL_CERT_FILE`: no attack.
fn fetch_tls(arguments: &[String]) -> Verdict {
    let Some((variable, servers)) = arguments.split_first() else {
        return Verdict::Broken("a variable is needed".into());
    };
    let value = std::env::var(variable).unwrap_or_default();
    let output: Vec<_> = servers
        .iter()
        .map(|server| get_tls(server, &value).unwrap_or_else(|error| format!("no answer: {error}")))
        .collect();
    Verdict::Blocked(format!("with {value}: {}", output.join(" | ")))
}

fn get_tls(url: &str, value: &str) -> std::io::Result<String> {
    let (server, path) = url.split_once('/').unwrap_or((url, ""));
    let (name, _) = server.split_once(':').ok_or_else(|| Error::other("no port"))?;
    let file = std::env::var("SSL_CERT_FILE").map_err(Error::other)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_file_iter(file).map_err(Error::other)?.filter_map(Result::ok),
    );
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host = ServerName::try_from(name.to_owned()).map_err(Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), host).map_err(Error::other)?;
    let stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut stream = StreamOwned::new(connection, stream);
    write!(
        stream,
        "GET /{path} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {value}\r\n\
         Range: bytes=40-60\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    )?;
    let mut output = Vec::new();
    match stream.read_to_end(&mut output) {
        // A server that has sent everything may close the connection without a TLS `close_notify`.
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(String::from_utf8_lossy(&output).into_owned()),
    }
}

/// `reach TOKEN ADDRESS…`: whether a server answers with the token at an address, directly or
/// through the proxy.
fn reach(arguments: &[String]) -> Verdict {
    let Some((token, addresses)) = arguments.split_first() else {
        return Verdict::Broken("a token is needed".into());
    };
    let mut escapes = Vec::new();
    let mut held = Vec::new();
    let mut judge = |what: String, said: std::io::Result<String>| match said {
        Ok(said) if said.contains(token) => escapes.push(what),
        Ok(said) => held.push(format!("{what}: {} bytes of somebody else", said.len())),
        Err(error) => held.push(format!("{what}: {error}")),
    };
    for address in addresses {
        if let Ok(direct) = address.parse::<SocketAddr>() {
            let connected = TcpStream::connect_timeout(&direct, TIMEOUT);
            judge(address.clone(), connected.and_then(|stream| get(stream, address)));
        }
        judge(format!("{address} by the proxy"), by_proxy(address));
        judge(format!("{address} by a request to the proxy"), by_request(address));
    }
    Verdict::unless(&escapes, held.join(", "))
}

fn get(mut stream: TcpStream, host: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut output = Vec::new();
    stream.read_to_end(&mut output)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn proxy() -> std::io::Result<TcpStream> {
    let variable = std::env::var("http_proxy").map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(variable.trim_start_matches("http://"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn by_proxy(target: &str) -> std::io::Result<String> {
    let mut stream = proxy()?;
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200") {
        return get(stream, target);
    }
    stream.read_to_end(&mut head)?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn by_request(target: &str) -> std::io::Result<String> {
    let mut stream = proxy()?;
    stream.write_all(
        format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    )?;
    let mut output = Vec::new();
    stream.read_to_end(&mut output)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}
