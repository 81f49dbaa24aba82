//! The HTTP proxy for programs inside: tunnels (`CONNECT`, RFC 9110, section 9.3.6) and requests
//! with an absolute target. Each connection has one request. A connection that begins with a version
//! of SOCKS is served by `socks`.

use std::sync::Arc;

use stockade_core::network::{Evidence, Host, Refusal, Transport};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::accept::{accept, relay_connection};
use crate::first_bytes::http::{Head, authority, head};
use crate::rejection;
use crate::relay::FirstBytes;
use crate::sandbox::Sandbox;
use crate::socks;

/// The response to a tunnel request.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves the proxy's listener.
pub(crate) async fn serve(sandbox: &Arc<Sandbox>, listener: TcpListener) {
    accept(&listener, |stream| {
        let sandbox = Arc::clone(sandbox);
        async move { request(&sandbox, stream).await }
    })
    .await;
}

async fn request(sandbox: &Sandbox, mut stream: TcpStream) {
    let refused = async |stream, host: Option<&Host>, port, refusal: &Refusal| {
        sandbox.record(Transport::Proxy, host, port, refusal);
        rejection::answer(stream, &rejection::response(refusal)).await;
    };
    let permit = match sandbox.admit_connection() {
        Ok(permit) => permit,
        Err(refusal) => {
            sandbox.record(Transport::Proxy, None, None, &refusal);
            // The response to a connection over the limit is not waited for.
            let _ = stream.try_write(&rejection::response(&refusal));
            return;
        }
    };
    let reading = async {
        // No method begins with such a byte.
        let mut first = [0];
        let begun = stream.peek(&mut first).await;
        if begun.is_ok() && matches!(first, [socks::VERSION_5 | socks::VERSION_4]) {
            return Ok(Protocol::Socks);
        }
        head(&mut stream).await.map(Protocol::Http)
    };
    let (head, rest) = match timeout(sandbox.limits().first_bytes, reading).await {
        Ok(Ok(Protocol::Socks)) => {
            socks::serve(sandbox, stream).await;
            return drop(permit);
        }
        Ok(Ok(Protocol::Http(Some(read)))) => read,
        // The client sent nothing, or has disconnected.
        Ok(Ok(Protocol::Http(None))) => return,
        Ok(Err(refusal)) => return refused(stream, None, None, &refusal).await,
        Err(_) => {
            let refusal =
                Refusal::InvalidRequest { what: "the request head did not arrive in time" };
            return refused(stream, None, None, &refusal).await;
        }
    };
    let target = match parse_target(sandbox, &head, rest) {
        Ok(wanted) => wanted,
        Err(refusal) => return refused(stream, None, None, &refusal).await,
    };
    let Target { host, port, first, is_tunnel } = target;
    let outside = match sandbox.connect(&host, port).await {
        Ok((outside, _)) => outside,
        Err(refusal) => return refused(stream, Some(&host), Some(port), &refusal).await,
    };
    if is_tunnel && stream.write_all(ESTABLISHED).await.is_err() {
        return;
    }
    relay_connection(sandbox, Transport::Proxy, (stream, outside), (&host, port), first).await;
    drop(permit);
}

/// What a connection to the proxy begins with.
enum Protocol {
    Socks,
    /// The head of a request, and the bytes after it; nothing if nothing arrives.
    Http(Option<(Head, Vec<u8>)>),
}

/// The target of a request.
struct Target {
    host: Host,
    port: u16,
    first: FirstBytes,
    is_tunnel: bool,
}

fn parse_target(sandbox: &Sandbox, head: &Head, rest: Vec<u8>) -> Result<Target, Refusal> {
    // An address that stands for a name is replaced by that name.
    let resolve_host = |host: Host| match host {
        Host::Address(address) => sandbox.host_for_address(address),
        name @ Host::Name(_) => Ok(name),
    };
    if head.method == "CONNECT" {
        let (host, port) = authority(&head.target)?;
        check_host_header(head, &host)?;
        let Some(port) = port else {
            return Err(Refusal::InvalidRequest { what: "CONNECT needs a port" });
        };
        let host = resolve_host(host)?;
        let first = match &host {
            Host::Name(name) => FirstBytes::ForHost(name.clone(), rest),
            Host::Address(_) => FirstBytes::Any(rest),
        };
        return Ok(Target { host, port, first, is_tunnel: true });
    }
    let (target, _) = head.absolute()?;
    let (named, port) = authority(target)?;
    check_host_header(head, &named)?;
    let path = head.origin_target()?;
    let (rest, body) = head.body()?.split(&rest)?;
    // The name in its parsed form, so that no other parser reads it differently.
    let host_text = match &named {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]"),
        other => other.to_string(),
    };
    let host_text = port.map_or_else(|| host_text.clone(), |port| format!("{host_text}:{port}"));
    let bytes = [&head.to_origin(Some((&path, &host_text))), rest].concat();
    let (host, port) = (resolve_host(named)?, port.unwrap_or(80));
    Ok(Target { host, port, first: FirstBytes::Request(bytes, body), is_tunnel: false })
}

/// Checks that a `Host` header, if there is one, is that of the target.
fn check_host_header(head: &Head, host: &Host) -> Result<(), Refusal> {
    let Some(text) = head.host()? else { return Ok(()) };
    match authority(&text) {
        Ok((own, _)) if own == *host => Ok(()),
        _ => Err(Refusal::mismatch(host, Evidence::HostHeader, &text)),
    }
}
