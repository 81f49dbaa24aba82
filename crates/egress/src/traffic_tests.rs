//! Traffic of honest programs and of programs that try to escape, from the listeners to servers
//! that the tests start.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;
use stockade_core::network::{Policy, TrafficLimits, Transport};
use stockade_egress_control::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::limits::Limits;
use crate::resolve::NotFound;
use crate::testing::{PATIENCE, World, echo, mirror, policy, rest, sandbox};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The first message of a TLS handshake for a host.
pub(crate) fn hello(host: &str) -> Vec<u8> {
    let sized = |content: &[u8]| {
        [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    };
    let name = sized(&[&[0][..], &sized(host.as_bytes())].concat());
    let extensions = sized(&[&[0, 0][..], &sized(&name)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

/// `access_denied`.
const ALERT: &str = "\u{15}\u{3}\u{3}\0\u{2}\u{2}1";

async fn world(rules: &[&str]) -> World {
    let rules = [rules, &["allow 127.0.0.1"]].concat();
    let world = World::new(&rules).await;
    for name in ["api.example", "evil.example", "sub.api.example"] {
        world.resolver.set(name, &["127.0.0.1"], 60);
    }
    world
}

async fn read(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_tunnel_leads_to_the_host_that_is_allowed() {
    let server = echo(b"hi").await;
    let mut world = world(&["allow api.example"]).await;
    let request = format!("CONNECT API.example.:{} HTTP/1.1\r\n\r\n\x01abc", server.port());
    let (mut stream, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut text = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    stream.write_all(b"def").await.unwrap();
    // One direction closes, and the other one continues.
    stream.shutdown().await.unwrap();
    text += &rest(&mut stream).await.unwrap();
    assert_eq!(text, "hi\u{1}abcdef.");
    assert_eq!(world.outcome().await, Outcome::Opened { address: LOOPBACK });
    let closed = timeout(PATIENCE, world.events.recv()).await.unwrap().unwrap();
    let expected = Outcome::Closed { address: LOOPBACK, sent_bytes: 7, received_bytes: 10 };
    assert_eq!(closed.outcome, expected);
    assert_eq!((closed.way, closed.port), (Transport::Proxy, Some(server.port())));
    assert_eq!(closed.host.unwrap().to_string(), "api.example");
}

#[tokio::test]
async fn the_proxy_tells_why_it_refuses() {
    let mut world = world(&[
        "allow api.example",
        "allow *.inner.example",
        "allow gone.example",
        "allow lost.example",
    ])
    .await;
    world.resolver.set("a.inner.example", &["127.0.0.1", "169.254.169.254"], 60);
    world.resolver.fail("lost.example", NotFound::Failed("no answer".to_owned()));
    for (target, status, code, reason) in [
        ("evil.example:443", 403, "EGRESS_DENIED", "not-allowed"),
        ("sub.api.example:443", 403, "EGRESS_DENIED", "not-allowed"),
        ("a.inner.example:80", 403, "EGRESS_INTERNAL", "internal-address"),
        ("93.184.216.34:443", 403, "EGRESS_DENIED", "address-not-allowed"),
        ("[::1]:443", 403, "EGRESS_DENIED", "address-not-allowed"),
        ("198.18.0.99:443", 403, "EGRESS_DENIED", "address-not-allowed"),
        ("0x7f.1:443", 400, "INVALID_INPUT", "invalid-request"),
        ("2130706433:443", 400, "INVALID_INPUT", "invalid-request"),
        ("u@api.example:443", 400, "INVALID_INPUT", "invalid-request"),
        ("api%2eexample:443", 400, "INVALID_INPUT", "invalid-request"),
        ("api.example", 400, "INVALID_INPUT", "invalid-request"),
        ("api.example:0", 400, "INVALID_INPUT", "invalid-request"),
        ("gone.example:443", 502, "EGRESS_UNREACHABLE", "unresolved"),
        ("lost.example:443", 502, "EGRESS_UNREACHABLE", "unresolved"),
        ("api.example:1", 502, "EGRESS_UNREACHABLE", "unreachable"),
    ] {
        let (mut stream, mut answer) =
            world.ask_proxy(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).await;
        answer += &rest(&mut stream).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
        assert!(answer.contains(&format!("Stockade-Egress-Refused: {reason}\r\n")), "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&body["error"]["code"], &body["error"]["cause"]),
            (&code.into(), &reason.into())
        );
        assert_eq!(
            body["error"]["retryable"],
            matches!(target, "lost.example:443" | "api.example:1")
        );
        assert_eq!(world.refusal().await, reason);
    }
}

#[tokio::test]
async fn a_request_with_an_absolute_target_goes_to_that_host_alone() {
    let (server, mut received) = mirror().await;
    let mut world = world(&["allow api.example"]).await;
    let port = server.port();
    let request = format!(
        "GET http://API.example:{port}/a?b HTTP/1.1\r\nHost: api.example:{port}\r\nAccept: */*\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\n\r\n\
         GET http://evil.example:{port}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    );
    let (mut stream, mut answer) = world.ask_proxy(&request).await;
    answer += &rest(&mut stream).await.unwrap_or_default();
    assert!(answer.ends_with("mirrored"), "{answer}");
    assert_eq!(
        timeout(PATIENCE, received.recv()).await.unwrap().unwrap(),
        format!(
            "GET /a?b HTTP/1.1\r\nHost: api.example:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        )
    );
    for (request, reason) in [
        (
            format!("GET http://api.example:{port}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
            "name-mismatch",
        ),
        ("GET / HTTP/1.1\r\nHost: api.example\r\n\r\n".to_owned(), "invalid-request"),
        ("GET ftp://api.example/ HTTP/1.1\r\n\r\n".to_owned(), "invalid-request"),
        ("GET http://api.example@evil.example/ HTTP/1.1\r\n\r\n".to_owned(), "invalid-request"),
        ("GET http://api.example\\@evil.example/ HTTP/1.1\r\n\r\n".to_owned(), "invalid-request"),
        ("GET http://evil.example/ HTTP/1.1\r\n\r\n".to_owned(), "not-allowed"),
        ("\x16\x03\x01 what is this\r\n\r\n".to_owned(), "invalid-request"),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(40_000)), "invalid-request"),
    ] {
        let (_stream, answer) = world.ask_proxy(&request).await;
        assert!(
            answer.contains(&format!("Stockade-Egress-Refused: {reason}\r\n")),
            "{request}: {answer}"
        );
        assert_eq!(world.refusal().await, reason, "{request}");
    }
    assert!(received.try_recv().is_err(), "nothing else went out");
}

#[tokio::test]
async fn an_address_that_stands_for_a_name_leads_to_it() {
    let server = echo(b"220 ready\r\n").await;
    let world = world(&["allow api.example"]).await;
    let address = world.address_of("api.example").await;
    // A server that sends first.
    let mut stream = world.connect(address, server.port()).await;
    assert_eq!(read(&mut stream, 11).await, "220 ready\r\n");
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    assert_eq!(read(&mut stream, 9).await, "EHLO me\r\n");
    // The same name through the proxy.
    let request = format!("CONNECT {address}:{} HTTP/1.1\r\n\r\n", server.port());
    assert!(world.ask_proxy(&request).await.1.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn what_is_sent_must_be_for_the_host_of_the_connection() {
    let (server, mut received) = mirror().await;
    let mut world = world(&["allow api.example"]).await;
    let address = world.address_of("api.example").await;
    let mut refused = async |first: &[u8]| {
        let mut stream = world.connect(address, server.port()).await;
        stream.write_all(first).await.unwrap();
        let answer = rest(&mut stream).await;
        (answer, world.refusal().await)
    };
    let (answer, reason) = refused(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    assert!(
        answer
            .unwrap()
            .starts_with("HTTP/1.1 403 Forbidden\r\nStockade-Egress-Refused: name-mismatch")
    );
    assert_eq!(reason, "name-mismatch");
    let (answer, reason) = refused(&hello("evil.example")).await;
    assert_eq!((answer.as_deref(), reason), (Ok(ALERT), "name-mismatch"));
    // A tunnel is checked as well.
    let request = format!("CONNECT api.example:{} HTTP/1.1\r\n\r\n", server.port());
    let (mut stream, _) = world.ask_proxy(&request).await;
    stream.write_all(&hello("evil.example")).await.unwrap();
    assert_eq!(rest(&mut stream).await.as_deref(), Ok(ALERT));
    for _ in 0..3 {
        assert_eq!(
            timeout(PATIENCE, received.recv()).await.unwrap().unwrap(),
            "",
            "nothing went out"
        );
    }
    let mut stream = world.connect(address, server.port()).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.unwrap().ends_with("mirrored"));
    let passed = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
    assert_eq!(passed, "GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n");
}

/// A server that sends an answer after the first request, and then reports all that it receives.
async fn answering(
    answer: &'static str,
    is_last: bool,
) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 4096];
                let length = stream.read(&mut bytes).await.unwrap_or(0);
                bytes.truncate(length);
                let _ = stream.write_all(answer.as_bytes()).await;
                if is_last {
                    let _ = stream.shutdown().await;
                }
                let _ = stream.read_to_end(&mut bytes).await;
                let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            });
        }
    });
    (address, receiver)
}

const EVIL: &str = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";

#[tokio::test]
async fn nothing_follows_a_request_before_the_host_has_switched() {
    let web_socket = "GET / HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\n\r\n";
    let tunnel = "CONNECT api.example:80 HTTP/1.1\r\nHost: api.example\r\n\r\n";
    let switch = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let post = |framing: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: api.example\r\n{framing}\r\n\r\n{body}")
    };
    for (request, answer, passes) in [
        (web_socket.to_owned(), switch, true),
        (web_socket.to_owned(), ok, false),
        (web_socket.to_owned(), "HTTP/1.1 426 No\r\n\r\n", false),
        (web_socket.replace("websocket", "h2c"), switch, false),
        (tunnel.to_owned(), ok, true),
        (tunnel.to_owned(), "HTTP/1.1 403 No\r\n\r\n", false),
        (tunnel.to_owned(), switch, false),
        (post("Content-Length: 3", "abc"), ok, false),
        (post("Content-Length: 3\r\nExpect: 100-continue", "abc"), ok, false),
        (post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), ok, false),
    ] {
        let (server, mut received) = answering(answer, !passes).await;
        let world = world(&["allow api.example"]).await;
        let address = world.address_of("api.example").await;
        for at_once in [true, false] {
            let mut stream = world.connect(address, server.port()).await;
            if at_once {
                stream.write_all(format!("{request}{EVIL}").as_bytes()).await.unwrap();
            } else {
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut byte = [0];
                timeout(PATIENCE, stream.read_exact(&mut byte)).await.unwrap().unwrap();
                stream.write_all(EVIL.as_bytes()).await.unwrap();
            }
            stream.shutdown().await.unwrap();
            let _ = rest(&mut stream).await;
            drop(stream);
            let received = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
            assert_eq!(received.contains("evil.example"), passes, "{request}{answer}: {received}");
            assert!(received.starts_with(request.split("\r\n").next().unwrap()), "{received}");
        }
    }
}

#[tokio::test]
async fn invalid_chunks_end_a_request() {
    let (server, mut received) = answering("", false).await;
    let mut world = world(&["allow api.example"]).await;
    let address = world.address_of("api.example").await;
    let head = "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut stream = world.connect(address, server.port()).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"3\r\nab").await.unwrap();
    stream.write_all(b"c\r\n0;x\r\n\r\n").await.unwrap();
    let answer = rest(&mut stream).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert_eq!(world.refusal().await, "invalid-request");
    let received = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
    assert!(!received.contains(";x") && !received.ends_with("0\r\n\r\n"), "{received}");
}

#[tokio::test]
async fn other_protocols_pass_until_they_become_a_request() {
    let world = world(&["allow api.example"]).await;
    let address = world.address_of("api.example").await;
    // The host answers in HTTP to what is no request.
    let (server, _received) = answering("HTTP/1.1 400 Bad Request\r\n\r\n", true).await;
    let mut stream = world.connect(address, server.port()).await;
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    assert_eq!(rest(&mut stream).await, Err(std::io::ErrorKind::ConnectionReset));
    // It does not answer, and the headers of a request follow.
    let (server, mut received) = answering("", false).await;
    let mut stream = world.connect(address, server.port()).await;
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    stream.write_all(b"Host: evil.example\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.unwrap().starts_with("HTTP/1.1 400 "));
    let received = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
    assert!(!received.contains("evil"), "{received}");
    // It answers in its own protocol.
    let server = echo(b"").await;
    let mut stream = world.connect(address, server.port()).await;
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    assert_eq!(read(&mut stream, 9).await, "EHLO me\r\n");
    stream.write_all(b"Host: any\r\n\r\n").await.unwrap();
    assert_eq!(read(&mut stream, 13).await, "Host: any\r\n\r\n");
}

#[tokio::test]
async fn an_address_that_nobody_was_given_leads_nowhere() {
    let server = echo(b"").await;
    let mut world = world(&["allow api.example", "allow 10.0.0.0/8"]).await;
    for (address, first, answer, reason) in [
        (
            "198.18.7.7",
            &b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"[..],
            "HTTP/1.1 403 ",
            "address-not-allowed",
        ),
        ("93.184.216.34", b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 403 ", "address-not-allowed"),
        ("2001:2::c612:63", &hello("api.example"), ALERT, "address-not-allowed"),
        (
            "169.254.169.254",
            b"GET /latest HTTP/1.1\r\n\r\n",
            "HTTP/1.1 403 ",
            "address-not-allowed",
        ),
        (
            "::ffff:169.254.169.254",
            b"GET / HTTP/1.1\r\n\r\n",
            "HTTP/1.1 403 ",
            "address-not-allowed",
        ),
        ("8.8.8.8", b"\0\x1d", "reset", "address-not-allowed"),
        // Allowed by a rule, but it still does not reach the loopback of the host.
        ("127.0.0.1", b"\0\x1d", "reset", "address-not-allowed"),
    ] {
        let mut stream = world.connect(address.parse().unwrap(), server.port()).await;
        stream.write_all(first).await.unwrap();
        let answered = rest(&mut stream).await.unwrap_or_else(|_| "reset".to_owned());
        assert!(answered.starts_with(answer), "{address}: {answered:?}");
        assert_eq!(world.refusal().await, reason, "{address}");
    }
}

#[tokio::test]
async fn a_policy_that_changes_ends_what_it_would_not_allow() {
    let server = echo(b"").await;
    let mut world = world(&["allow api.example", "allow evil.example"]).await;
    let open = async |name: &str| {
        let request = format!("CONNECT {name}:{} HTTP/1.1\r\n\r\n", server.port());
        world.ask_proxy(&request).await.0
    };
    let (mut kept, mut ended) = (open("api.example").await, open("evil.example").await);
    for stream in [&mut kept, &mut ended] {
        stream.write_all(b"\x01").await.unwrap();
        assert_eq!(read(stream, 1).await, "\u{1}");
    }
    world.sandbox.set_policy(policy(&["allow api.example", "allow 127.0.0.1"])).unwrap();
    assert_eq!(rest(&mut ended).await, Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(world.refusal().await, "not-allowed");
    kept.write_all(b"\x02").await.unwrap();
    assert_eq!(read(&mut kept, 1).await, "\u{2}");
    world.sandbox.set_policy(Policy::default()).unwrap();
    assert_eq!(rest(&mut kept).await, Err(std::io::ErrorKind::ConnectionReset));
}

/// A connection whose bytes are not read could carry any request.
#[tokio::test]
async fn a_policy_about_requests_ends_connections_that_are_not_read() {
    let server = echo(b"").await;
    let mut world = world(&["allow api.example", "allow sub.api.example"]).await;
    let open = async |name: &str| {
        let request = format!("CONNECT {name}:{} HTTP/1.1\r\n\r\n", server.port());
        world.ask_proxy(&request).await.0
    };
    let (mut ended, mut kept) = (open("api.example").await, open("sub.api.example").await);
    for stream in [&mut kept, &mut ended] {
        stream.write_all(b"\x01").await.unwrap();
        assert_eq!(read(stream, 1).await, "\u{1}");
    }
    let rules = json!([
        {"action": "allow", "target": "api.example", "requests": {"paths": ["/v1/*"]}},
        {"action": "allow", "target": "sub.api.example"},
        {"action": "allow", "target": "127.0.0.1"},
    ]);
    let policy = serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap();
    world.sandbox.set_policy(policy).unwrap();
    assert_eq!(rest(&mut ended).await, Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(world.refusal().await, "invalid-request");
    kept.write_all(b"\x02").await.unwrap();
    assert_eq!(read(&mut kept, 1).await, "\u{2}");
}

/// A request that is still being sent is decided on again.
#[tokio::test]
async fn a_policy_that_changes_ends_requests_that_it_would_not_allow() {
    let server = echo(b"").await;
    let mut world = world(&["allow api.example"]).await;
    let send = async |path: &str| {
        let port = server.port();
        let request = format!(
            "PUT http://api.example:{port}{path} HTTP/1.1\r\nHost: api.example:{port}\r\n\
             Content-Length: 1000\r\n\r\n"
        );
        world.ask_proxy(&request).await.0
    };
    let (mut kept, mut ended) = (send("/v1/a").await, send("/v2/a").await);
    let rules = json!([
        {"action": "allow", "target": "api.example", "requests": {"paths": ["/v1/*"]}},
        {"action": "allow", "target": "127.0.0.1"},
    ]);
    let policy = serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap();
    world.sandbox.set_policy(policy).unwrap();
    assert_eq!(rest(&mut ended).await, Err(std::io::ErrorKind::ConnectionReset));
    assert_eq!(world.refusal().await, "request-not-allowed");
    kept.write_all(b"\x02").await.unwrap();
    assert_eq!(read(&mut kept, 1).await, "\u{2}");
}

#[tokio::test]
async fn a_sandbox_has_so_many_connections() {
    let server = echo(b"").await;
    let limits = Limits { connections: 1, ..Limits::default() };
    let mut world = World::with(&["allow api.example", "allow 127.0.0.1"], limits).await;
    world.resolver.set("api.example", &["127.0.0.1"], 60);
    let request = format!("CONNECT api.example:{} HTTP/1.1\r\n\r\n", server.port());
    let (mut first, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "));
    let (_second, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert_eq!(world.refusal().await, "too-many");
    first.shutdown().await.unwrap();
    rest(&mut first).await.unwrap();
    // The close is recorded before the permit is released.
    loop {
        if world.ask_proxy(&request).await.1.starts_with("HTTP/1.1 200 ") {
            break;
        }
    }
}

/// The bound is generous for a machine under load; `cargo xtask bench egress` measures.
#[tokio::test]
async fn a_new_policy_is_in_force_for_all_connections_within_a_bound() {
    let server = echo(b"").await;
    let world = world(&["allow api.example"]).await;
    let request = format!("CONNECT api.example:{} HTTP/1.1\r\n\r\n\x01", server.port());
    let mut open = Vec::new();
    for _ in 0..100 {
        let (stream, answer) = world.ask_proxy(&request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        open.push(stream);
    }
    let start = std::time::Instant::now();
    world.sandbox.set_policy(policy(&["allow 127.0.0.1"])).unwrap();
    for stream in &mut open {
        // Whatever had arrived before, each connection ends.
        let _ = rest(stream).await;
    }
    let (_, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let took = start.elapsed();
    assert!(took.as_millis() < 2_000, "{took:?}");
}

#[tokio::test]
async fn a_sandbox_has_so_much_traffic() {
    let server = echo(b"").await;
    let mut world = world(&["allow api.example"]).await;
    let limits = |bytes| TrafficLimits { bytes: Some(bytes), ..TrafficLimits::default() };
    let rules = policy(&["allow api.example", "allow 127.0.0.1"]);
    world.sandbox.set_policy(rules.clone().with_limits(limits(1000)).unwrap()).unwrap();
    let request = format!("CONNECT api.example:{} HTTP/1.1\r\n\r\n", server.port());
    let (mut first, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    first.write_all(&[1; 400]).await.unwrap();
    read(&mut first, 400).await;
    // What is sent and what comes back count together.
    first.write_all(&[1; 400]).await.unwrap();
    assert!(rest(&mut first).await.is_err());
    assert_eq!(world.refusal().await, "too-many");
    let (_second, answer) = world.ask_proxy(&request).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("--max-traffic"), "{answer}");
    assert_eq!(world.refusal().await, "too-many");
    // A change is in force for the next connection.
    world.sandbox.set_policy(rules.with_limits(limits(10_000)).unwrap()).unwrap();
    assert!(world.ask_proxy(&request).await.1.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_sandbox_has_such_a_bandwidth() {
    let server = echo(b"").await;
    let world = world(&["allow api.example"]).await;
    let limits = TrafficLimits { bandwidth: Some(40_000), ..TrafficLimits::default() };
    let rules = policy(&["allow api.example", "allow 127.0.0.1"]);
    world.sandbox.set_policy(rules.with_limits(limits).unwrap()).unwrap();
    let request = format!("CONNECT api.example:{} HTTP/1.1\r\n\r\n", server.port());
    let (mut stream, _) = world.ask_proxy(&request).await;
    let start = std::time::Instant::now();
    stream.write_all(&[1; 20_000]).await.unwrap();
    read(&mut stream, 20_000).await;
    // 40000 bytes in both directions, less what may go at once.
    let took = start.elapsed();
    assert!((800..10_000).contains(&took.as_millis()), "{took:?}");
}

/// Queries a name like a program; returns the response code, the bytes of its address, and the
/// whole response as text.
async fn resolve(world: &World, name: &str, kind: u8, over_stream: bool) -> (u8, Vec<u8>, String) {
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, kind, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let mut answer = vec![0; 2048];
    let length = if over_stream {
        let mut stream = TcpStream::connect(world.streams).await.unwrap();
        let length = u16::try_from(question.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &question].concat()).await.unwrap();
        let length = usize::from(timeout(PATIENCE, stream.read_u16()).await.unwrap().unwrap());
        stream.read_exact(&mut answer[..length]).await.unwrap();
        length
    } else {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(world.datagrams).await.unwrap();
        socket.send(&question).await.unwrap();
        timeout(PATIENCE, socket.recv(&mut answer)).await.unwrap().unwrap()
    };
    answer.truncate(length);
    let start = question.len() - 11;
    let address = if answer[7] == 1 {
        let length = usize::from(answer[start + 11]);
        answer[start + 12..start + 12 + length].to_vec()
    } else {
        vec![]
    };
    (answer[3] & 15, address, String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn names_are_resolved_by_the_policy() {
    let mut world = world(&[
        "allow api.example",
        "allow inner.example",
        "allow gone.example",
        "allow lost.example",
    ])
    .await;
    world.resolver.set("inner.example", &["10.0.0.1"], 60);
    world.resolver.fail("lost.example", NotFound::Failed("no answer".to_owned()));
    for over_stream in [false, true] {
        let (code, address, _) = resolve(&world, "API.example", 1, over_stream).await;
        assert_eq!((code, address), (0, vec![198, 18, 0, 1]));
        let (code, address, _) = resolve(&world, "api.example", 28, over_stream).await;
        assert_eq!((code, address.len()), (0, 16));
        let (code, address, _) = resolve(&world, "api.example", 65, over_stream).await;
        assert_eq!((code, address), (0, vec![]));
        for (name, expected, reason) in [
            ("evil.example", 3, "not-allowed"),
            ("inner.example", 3, "internal-address"),
            ("lost.example", 2, "unresolved"),
        ] {
            let (code, address, text) = resolve(&world, name, 1, over_stream).await;
            assert_eq!((code, address), (expected, vec![]), "{name}");
            assert!(text.contains(&format!("{reason}: ")), "{text:?}");
            assert_eq!(world.refusal().await, reason);
        }
        assert_eq!(resolve(&world, "gone.example", 1, over_stream).await.0, 3);
        assert_eq!(world.refusal().await, "unresolved");
    }
    assert!(world.resolver.queries() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_bound_again_is_checked_again() {
    let (sandbox, book, _events) = sandbox(&["allow api.example"], Limits::default());
    let name = stockade_core::network::Name::parse("api.example").unwrap();
    let lookup = async || {
        let found = sandbox.lookup(&name, Some(443)).await;
        found.map_err(|refusal| refusal.reason().as_str())
    };
    let public: IpAddr = "93.184.216.34".parse().unwrap();
    book.set("api.example", &["93.184.216.34"], 30);
    assert_eq!(lookup().await, Ok(vec![public]));
    book.set("api.example", &["127.0.0.1"], 30);
    assert_eq!(lookup().await, Ok(vec![public]), "the address that was checked is the one in use");
    assert_eq!(book.queries(), 1);
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    assert_eq!(lookup().await, Err("internal-address"));
    book.set("api.example", &["93.184.216.34", "10.0.0.1"], 30);
    assert_eq!(lookup().await, Err("internal-address"));
    sandbox.set_policy(Policy::default()).unwrap();
    assert_eq!(lookup().await, Err("not-allowed"));
    assert_eq!(book.queries(), 3, "what is denied is not asked for outside");
}

/// A proxy that records the head of each request, and then answers this and sends back what it gets.
async fn upstream(answer: &'static str) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heads, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                heads.send(String::from_utf8(head).unwrap()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (port, received)
}

/// The policy decides by name, and the proxy of the host's network is asked by name; nothing is resolved
/// here, and an address of the sandbox's own network is no reason to end the connection.
#[tokio::test]
async fn hosts_are_reached_through_a_proxy_of_the_host() {
    let (port, mut heads) = upstream("HTTP/1.1 200 Connection established\r\n\r\n").await;
    let mut world = World::new(&["allow api.example"]).await;
    let proxy = format!("http://ann:secret@127.0.0.1:{port}").parse().unwrap();
    world.sandbox.use_upstream(proxy);
    let (mut stream, answer) = world.ask_proxy("CONNECT api.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stream.write_all(b"\x01abc").await.unwrap();
    assert_eq!(read(&mut stream, 4).await, "\u{1}abc");
    let head = heads.recv().await.unwrap();
    let expected = "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\
                    Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n";
    assert_eq!(head, expected);
    assert_eq!(world.resolver.queries(), 0);
    assert_eq!(world.outcome().await, Outcome::Opened { address: LOOPBACK });
    drop(stream);
    // What the policy does not allow is not asked for.
    for target in ["evil.example:443", "127.0.0.1:443", "10.0.0.1:443", "93.184.216.34:443"] {
        let (_, answer) = world.ask_proxy(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{target}: {answer}");
    }
    assert!(heads.try_recv().is_err());
}

#[tokio::test]
async fn what_the_proxy_of_the_host_refuses_is_told() {
    for answer in ["HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "\x1b[2Jnonsense\r\n\r\n"]
    {
        let (port, _heads) = upstream(answer).await;
        let world = World::new(&["allow api.example"]).await;
        world.sandbox.use_upstream(format!("127.0.0.1:{port}").parse().unwrap());
        let (mut stream, mut got) =
            world.ask_proxy("CONNECT api.example:443 HTTP/1.1\r\n\r\n").await;
        got += &rest(&mut stream).await.unwrap_or_default();
        assert!(
            got.starts_with("HTTP/1.1 502 ") && got.contains("upstream proxy answered"),
            "{got}"
        );
        assert!(!got.contains('\x1b'), "{got}");
    }
}
