//! SOCKS 5 (RFC 1928) at the proxy's port, for programs that speak it instead of HTTP: `CONNECT`
//! without authentication, by name or by address. The policy, the records and everything after the
//! reply are those of a tunnel through the HTTP proxy.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stockade_core::network::{Host, Refusal, Transport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::accept::relay_connection;
use crate::rejection;
use crate::relay::FirstBytes;
use crate::sandbox::Sandbox;

/// The first byte of SOCKS 5 and of SOCKS 4.
pub(crate) const VERSION_5: u8 = 5;
pub(crate) const VERSION_4: u8 = 4;

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const BIND: u8 = 2;
const UDP_ASSOCIATE: u8 = 3;

const ADDRESS_4: u8 = 1;
const NAME: u8 = 3;
const ADDRESS_6: u8 = 4;

/// A reply (RFC 1928, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandUnsupported = 7,
    AddressUnsupported = 8,
}

impl Reply {
    /// The bytes of the reply. The address that it ends with tells a program nothing that it could
    /// use, so it is zero.
    const fn bytes(self) -> [u8; 10] {
        [VERSION_5, self as u8, 0, ADDRESS_4, 0, 0, 0, 0, 0, 0]
    }
}

/// The reply for a refusal: SOCKS has a number and no text.
const fn reply(refusal: &Refusal) -> Reply {
    match refusal {
        Refusal::Unresolved { .. } => Reply::HostUnreachable,
        Refusal::Unreachable { .. } => Reply::ConnectionRefused,
        Refusal::TooMany { .. } | Refusal::InvalidRequest { .. } | Refusal::InvalidName(_) => {
            Reply::Failed
        }
        _ => Reply::NotAllowed,
    }
}

/// Why a connection ends before its request is known.
enum Invalid {
    /// The client has disconnected, or was too slow.
    Disconnected,
    /// What it sent is refused; it receives these bytes.
    Refused(Refusal, Vec<u8>),
}

impl From<io::Error> for Invalid {
    fn from(_: io::Error) -> Self {
        Self::Disconnected
    }
}

fn refused(what: &'static str, answer: &[u8]) -> Invalid {
    Invalid::Refused(Refusal::InvalidRequest { what }, answer.to_vec())
}

/// Serves a connection whose first byte, which is not read yet, is a version of SOCKS.
pub(crate) async fn serve(sandbox: &Sandbox, mut stream: TcpStream) {
    let reading = timeout(sandbox.limits().first_bytes, request(&mut stream));
    let (named, port) = match reading.await {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(Invalid::Refused(refusal, answer))) => {
            sandbox.record(Transport::Proxy, None, None, &refusal);
            return rejection::answer(stream, &answer).await;
        }
        Ok(Err(Invalid::Disconnected)) | Err(_) => return,
    };
    // An address that stands for a name is replaced by that name.
    let resolved = match named.clone() {
        Host::Address(address) => sandbox.host_for_address(address),
        name @ Host::Name(_) => Ok(name),
    };
    let connected = match resolved {
        Ok(host) => sandbox.connect(&host, port).await.map(|(outside, _)| (host, outside)),
        Err(refusal) => Err(refusal),
    };
    let (host, outside) = match connected {
        Ok(connected) => connected,
        Err(refusal) => {
            sandbox.record(Transport::Proxy, Some(&named), Some(port), &refusal);
            return rejection::answer(stream, &reply(&refusal).bytes()).await;
        }
    };
    if stream.write_all(&Reply::Succeeded.bytes()).await.is_err() {
        return;
    }
    let first = match &host {
        Host::Name(name) => FirstBytes::ForHost(name.clone(), Vec::new()),
        Host::Address(_) => FirstBytes::Any(Vec::new()),
    };
    relay_connection(sandbox, Transport::Proxy, (stream, outside), (&host, port), first).await;
}

/// Negotiates, and reads the request: the host and the port. Reads no byte that follows it.
async fn request(stream: &mut TcpStream) -> Result<(Host, u16), Invalid> {
    if stream.read_u8().await? == VERSION_4 {
        // 0x5b: rejected or failed.
        let answer = [0, 0x5b, 0, 0, 0, 0, 0, 0];
        return Err(refused("it is of SOCKS 4; use SOCKS 5, with names (`socks5h:`)", &answer));
    }
    let mut methods = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        let answer = [VERSION_5, NO_METHOD];
        return Err(refused("SOCKS 5 is possible without authentication only", &answer));
    }
    stream.write_all(&[VERSION_5, NO_AUTHENTICATION]).await?;

    let [version, command, reserved, kind] = {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        head
    };
    if version != VERSION_5 || reserved != 0 {
        return Err(refused("its request is not one of SOCKS 5", &Reply::Failed.bytes()));
    }
    let host = match kind {
        ADDRESS_4 => {
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await?;
            Ok(Host::Address(Ipv4Addr::from(bytes).into()))
        }
        ADDRESS_6 => {
            let mut bytes = [0; 16];
            stream.read_exact(&mut bytes).await?;
            Ok(Host::Address(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()))
        }
        NAME => {
            let mut bytes = vec![0; stream.read_u8().await?.into()];
            stream.read_exact(&mut bytes).await?;
            let text = std::str::from_utf8(&bytes);
            text.map_err(|_| Refusal::InvalidRequest { what: "its name is not text" })
                .and_then(|text| Host::parse(text).map_err(Refusal::from))
        }
        _ => {
            let answer = Reply::AddressUnsupported.bytes();
            return Err(refused("its address is neither a name nor an address", &answer));
        }
    };
    let port = stream.read_u16().await?;
    let unsupported = |what| Err(refused(what, &Reply::CommandUnsupported.bytes()));
    match command {
        CONNECT => {}
        BIND => {
            return unsupported("SOCKS 5 BIND is not possible: nothing outside connects inside");
        }
        UDP_ASSOCIATE => {
            return unsupported(
                "SOCKS 5 UDP ASSOCIATE is not possible: only TCP leaves the sandbox",
            );
        }
        _ => return unsupported("its command is not one of SOCKS 5"),
    }
    let host = host.map_err(|refusal| {
        let answer = reply(&refusal).bytes().to_vec();
        Invalid::Refused(refusal, answer)
    })?;
    if port == 0 {
        return Err(refused("0 is not a port", &Reply::Failed.bytes()));
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use stockade_egress_control::Outcome;

    use super::*;
    use crate::testing::{PATIENCE, World, echo, rest};

    /// What a program inside receives for these bytes.
    async fn exchange(world: &World, bytes: &[u8], length: usize) -> (TcpStream, Vec<u8>) {
        let mut stream = TcpStream::connect(world.proxy).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = vec![0; length];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        (stream, answer)
    }

    fn by_name(name: &str, port: u16, command: u8) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        let head = [5, 2, 0, 2, 5, command, 0, NAME, length];
        [&head[..], name.as_bytes(), &port.to_be_bytes()].concat()
    }

    fn by_address(address: IpAddr, port: u16) -> Vec<u8> {
        let (kind, bytes) = match address {
            IpAddr::V4(address) => (ADDRESS_4, address.octets().to_vec()),
            IpAddr::V6(address) => (ADDRESS_6, address.octets().to_vec()),
        };
        [&[5, 1, 0, 5, CONNECT, 0, kind][..], &bytes, &port.to_be_bytes()].concat()
    }

    async fn world() -> World {
        let world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
        for name in ["api.example", "evil.example"] {
            world.resolver.set(name, &["127.0.0.1"], 60);
        }
        world
    }

    #[tokio::test]
    async fn names_and_addresses_are_connected_to() {
        let server = echo(b"hi").await;
        let mut world = world().await;
        let stands_for = world.address_of("api.example").await;
        for request in [
            by_name("API.example.", server.port(), CONNECT),
            by_name("127.0.0.1", server.port(), CONNECT),
            by_address("127.0.0.1".parse().unwrap(), server.port()),
            by_address("::ffff:127.0.0.1".parse().unwrap(), server.port()),
            by_address(stands_for, server.port()),
        ] {
            // What a hasty program sends behind its request belongs to the connection.
            let request = [&request[..], b"\x01abc"].concat();
            let (mut stream, answer) = exchange(&world, &request, 12).await;
            assert_eq!(answer, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            stream.shutdown().await.unwrap();
            assert_eq!(rest(&mut stream).await.unwrap(), "hi\u{1}abc.");
            assert!(matches!(world.outcome().await, Outcome::Opened { .. }));
            assert!(matches!(world.outcome().await, Outcome::Closed { .. }));
        }
    }

    #[tokio::test]
    async fn the_policy_and_its_records_are_those_of_the_proxy() {
        let server = echo(b"hi").await;
        let mut world = world().await;
        for (request, reply, reason) in [
            (by_name("evil.example", server.port(), CONNECT), 2, "not-allowed"),
            (by_address("10.0.0.1".parse().unwrap(), 80), 2, "address-not-allowed"),
            (by_address("198.18.9.9".parse().unwrap(), 80), 2, "address-not-allowed"),
            (by_address("::1".parse().unwrap(), server.port()), 2, "address-not-allowed"),
            (by_name("no name", 80, CONNECT), 1, "invalid-request"),
            (by_name("", 80, CONNECT), 1, "invalid-request"),
            (by_name("api.example", 0, CONNECT), 1, "invalid-request"),
            (by_name("api.example", 80, UDP_ASSOCIATE), 7, "invalid-request"),
            (by_name("api.example", 80, BIND), 7, "invalid-request"),
            (by_name("api.example", 80, 9), 7, "invalid-request"),
            (vec![5, 1, 0, 5, 1, 0, 2, 0], 8, "invalid-request"),
            (vec![5, 1, 0, 4, 1, 0, 1], 1, "invalid-request"),
        ] {
            let (mut stream, answer) = exchange(&world, &request, 12).await;
            assert_eq!(answer[3], reply, "{request:?}");
            assert_eq!(rest(&mut stream).await.unwrap(), "", "{request:?}");
            assert_eq!(world.refusal().await, reason, "{request:?}");
        }
        let (_, answer) = exchange(&world, &[5, 1, 2], 2).await;
        assert_eq!(answer, [5, NO_METHOD]);
        assert_eq!(world.refusal().await, "invalid-request");
        let (_, answer) = exchange(&world, b"\x04\x01\0\x50\x7f\0\0\x01\0", 8).await;
        assert_eq!(answer[1], 0x5b);
        assert_eq!(world.refusal().await, "invalid-request");
    }

    #[tokio::test]
    async fn what_is_sent_must_be_for_the_host() {
        let server = echo(b"").await;
        let mut world = world().await;
        let request = by_name("api.example", server.port(), CONNECT);
        let (mut stream, _) = exchange(&world, &request, 12).await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap();
        assert!(rest(&mut stream).await.unwrap().starts_with("HTTP/1.1 403 "));
        assert_eq!(world.refusal().await, "name-mismatch");
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut world = world().await;
        let (_, answer) = exchange(&world, &by_name("api.example", port, CONNECT), 12).await;
        assert_eq!(answer[3], 5);
        assert_eq!(world.refusal().await, "unreachable");
    }
}
