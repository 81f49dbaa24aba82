//! Connections through a proxy of the host's own network, which the caller has named. The policy has been
//! checked by name; the proxy resolves the name.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stockade_core::network::{Host, Upstream};
use stockade_core::printable::visible;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::resolve::Resolve;

/// The longest head of a response.
const HEAD_BYTES: usize = 16 << 10;
/// How much of a status line is reported.
const REPORTED: usize = 100;

/// A connection to a port of a host through the proxy, and the address of the proxy.
///
/// # Errors
/// Why there is none.
pub(crate) async fn connect(
    proxy: &Upstream,
    resolve: &Arc<dyn Resolve>,
    (host, port): (&Host, u16),
) -> Result<(TcpStream, IpAddr), String> {
    let addresses = match proxy.host() {
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = resolve.resolve(name).await;
            found.map_err(|error| format!("the upstream proxy was not found: {error}"))?.addresses
        }
    };
    let mut cause = "the upstream proxy has no address".to_owned();
    for address in addresses {
        match TcpStream::connect(SocketAddr::new(address, proxy.port())).await {
            Ok(mut stream) => {
                let _ = stream.set_nodelay(true);
                tunnel(&mut stream, proxy, host, port).await?;
                return Ok((stream, address));
            }
            Err(error) => cause = format!("the upstream proxy cannot be reached: {error}"),
        }
    }
    Err(cause)
}

/// Asks for a tunnel, and reads the head of the response and nothing after it.
async fn tunnel(
    stream: &mut TcpStream,
    proxy: &Upstream,
    host: &Host,
    port: u16,
) -> Result<(), String> {
    let target = match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        host => format!("{host}:{port}"),
    };
    let authorization = proxy.authorization();
    let authorization =
        authorization.map(|value| format!("Proxy-Authorization: {value}\r\n")).unwrap_or_default();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
    let broken = |error: std::io::Error| format!("the upstream proxy disconnected: {error}");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES {
            return Err("the response of the upstream proxy is too long".to_owned());
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    match status {
        Some([b'2', _, _]) => Ok(()),
        _ => {
            let line = visible(line.get(..REPORTED).unwrap_or(line));
            Err(format!("the upstream proxy answered `{line}`"))
        }
    }
}
