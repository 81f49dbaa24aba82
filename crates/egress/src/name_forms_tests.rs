//! Forms in which a program inside can write a name or an address, in each place where one arrives: only what is
//! exactly the allowed name leads anywhere, and then to that name.

use std::net::SocketAddr;

use stockade_core::network::{Host, Name};
use stockade_egress_control::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::testing::{PATIENCE, World, mirror};
use crate::traffic_tests::hello;

const NAME: &str = "api.example";

/// Other forms of the name: case, dots and letters that are the same (UTS 46).
const SAME: &[&str] = &[
    "api.example",
    "API.Example",
    "api.example.",
    "\u{ff41}\u{ff50}\u{ff49}.example",
    "api\u{3002}example",
    "api\u{ff0e}example",
    "api\u{ff61}example",
    "a\u{ad}pi.example",
    "api\u{200b}.example",
];

/// What resembles the name, and what is an address of this machine or of a network nearby.
const OTHERS: &[&str] = &[
    "",
    ".",
    ".api.example",
    "api.example..",
    "api..example",
    "api.example%2e",
    "api%2eexample",
    "api.example%00.evil.example",
    "api.example\0.evil.example",
    "api.example\t",
    "api.example@evil.example",
    "evil.example@api.example",
    "api.example#evil.example",
    "api.example\\evil.example",
    "api.example/evil.example",
    "api.example:443:80",
    "api.example.evil.example",
    "evil.api.example",
    "evilapi.example",
    "example",
    "*.example",
    "\u{430}pi.example",
    "ap\u{456}.example",
    "api.ex\u{430}mple",
    "ap\u{131}.example",
    "api\u{301}.example",
    "ap\u{ed}.example",
    "xn--api.example",
    "xn--api-.example",
    "xn--.example",
    "xn--a\u{308}.example",
    "xn--pi-7kc.example",
    "api\u{2024}example",
    "api\u{fe52}example",
    "api\u{202e}.example",
    "127.0.0.2",
    "127.2",
    "2130706434",
    "0x7f000002",
    "0x7f.2",
    "0177.0.0.2",
    "127.0.0.2.",
    "127.000.000.002",
    "\u{ff11}\u{ff12}\u{ff17}.0.0.2",
    "127\u{3002}0\u{3002}0\u{3002}2",
    "[::1]",
    "::1",
    "[::ffff:127.0.0.2]",
    "::ffff:127.0.0.2",
    "[::127.0.0.2]",
    "[64:ff9b::127.0.0.2]",
    "[2002:7f00:2::]",
    "[fe80::1%25lo]",
    "[::1%lo]",
    "[127.0.0.2]",
    "[::1",
    "localhost",
    "localhost.",
    "169.254.169.254",
    "10.0.0.5",
];

/// Where a name arrives.
#[derive(Debug, Clone, Copy)]
enum NameSource {
    Resolver,
    Socks,
    Connect,
    AbsoluteTarget,
    HostHeader,
    ServerName,
}

const NAME_SOURCES: [NameSource; 6] = [
    NameSource::Resolver,
    NameSource::Socks,
    NameSource::Connect,
    NameSource::AbsoluteTarget,
    NameSource::HostHeader,
    NameSource::ServerName,
];

/// All bytes that come back.
async fn answer(mut stream: TcpStream, sent: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(sent).await;
    let _ = stream.shutdown().await;
    let mut all = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap();
    all
}

/// Tries to get to a server by a form, at its port. Whether an answer came from there, or an address.
async fn leads_there(world: &World, source: NameSource, form: &str, server: SocketAddr) -> bool {
    let port = server.port();
    let proxy = async || TcpStream::connect(world.proxy).await.unwrap();
    let honest = format!("GET / HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n");
    match source {
        NameSource::Resolver => {
            let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in form.strip_suffix('.').unwrap_or(form).split('.') {
                query.push(u8::try_from(label.len()).unwrap());
                query.extend(label.as_bytes());
            }
            query.extend([0, 0, 1, 0, 1]);
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.connect(world.datagrams).await.unwrap();
            socket.send(&query).await.unwrap();
            let mut bytes = [0; 2048];
            timeout(PATIENCE, socket.recv(&mut bytes)).await.unwrap().unwrap();
            bytes[7] > 0
        }
        NameSource::Socks => {
            let length = u8::try_from(form.len()).unwrap();
            let port = port.to_be_bytes();
            let head = [&[5, 1, 0, 5, 1, 0, 3, length][..], form.as_bytes(), &port];
            let sent = [&head.concat(), honest.as_bytes()].concat();
            answer(proxy().await, &sent).await.ends_with(b"mirrored")
        }
        NameSource::Connect => {
            let connect = format!("CONNECT {form}:{port} HTTP/1.1\r\nHost: {form}:{port}\r\n\r\n");
            let sent = [connect.as_bytes(), honest.as_bytes()].concat();
            answer(proxy().await, &sent).await.ends_with(b"mirrored")
        }
        NameSource::AbsoluteTarget => {
            let sent = format!("GET http://{form}:{port}/ HTTP/1.1\r\nHost: {form}:{port}\r\n\r\n");
            answer(proxy().await, sent.as_bytes()).await.ends_with(b"mirrored")
        }
        NameSource::HostHeader => {
            let to = world.address_of(NAME).await;
            let stream = world.connect(to, port).await;
            let sent = format!("GET / HTTP/1.1\r\nHost: {form}:{port}\r\n\r\n");
            answer(stream, sent.as_bytes()).await.ends_with(b"mirrored")
        }
        NameSource::ServerName => {
            let to = world.address_of(NAME).await;
            let stream = world.connect(to, port).await;
            answer(stream, &hello(form)).await.ends_with(b"mirrored")
        }
    }
}

#[tokio::test]
async fn only_the_allowed_name_leads_anywhere() {
    let (server, _received) = mirror().await;
    let mut world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
    for name in [NAME, "evil.example", "evil.api.example", "evilapi.example", "example"] {
        world.resolver.set(name, &["127.0.0.1"], 60);
    }
    for source in NAME_SOURCES {
        for form in SAME {
            // A query, a target and a handshake have letters of ASCII only. The header is written anew.
            let is_written =
                form.is_ascii() || matches!(source, NameSource::Socks | NameSource::HostHeader);
            let leads = leads_there(&world, source, form, server).await;
            assert_eq!(leads, is_written, "{source:?} {form:?}");
        }
        for form in OTHERS {
            assert!(!leads_there(&world, source, form, server).await, "{source:?} {form:?}");
            while let Ok(event) = world.events.try_recv() {
                if let Outcome::Opened { address } = event.outcome {
                    let own = Host::Name(Name::parse(NAME).unwrap());
                    let is_own = event.host.as_ref() == Some(&own);
                    assert!(is_own && address == server.ip(), "{source:?} {form:?}: {event:?}");
                }
            }
        }
    }
}
