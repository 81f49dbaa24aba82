//! HTTP/2 through the interception: a client inside, and hosts that the tests start.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use stockade_core::network::{Host, Name, Policy, Transport};
use stockade_egress_control::{Credential, Outcome};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use crate::accept;
use crate::authority::{Authority, Protocol};
use crate::http2::body;
use crate::intercept_tests::{VALUE, host};
use crate::relay::FirstBytes;
use crate::testing::{PATIENCE, World};
use crate::trust::Trust;

const NAME: &str = "api.example";

/// What a host has seen: a request, or that a stream was reset.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Request(String),
    Reset(Reason),
}

/// Answers a request by its path; each part of the body, and the trailers, come back at once.
async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: mpsc::UnboundedSender<Seen>,
) -> Result<(), h2::Error> {
    let (parts, mut from) = request.into_parts();
    let uri = &parts.uri;
    let _ = seen.send(Seen::Request(format!("{} {uri}", parts.method)));
    if uri.path() == "/early" {
        let early = Response::builder().status(103).header("x-early", "yes").body(()).unwrap();
        respond.send_informational(early)?;
    }
    let mut head = Response::new(());
    for (name, value) in &parts.headers {
        let name = format!("x-{name}");
        head.headers_mut()
            .append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.clone());
    }
    if let Some(kind) = parts.headers.get("content-type") {
        head.headers_mut().insert("content-type", kind.clone());
    }
    if uri.path() == "/compressed" {
        head.headers_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    }
    let mut to = respond.send_response(head, false)?;
    while let Some(bytes) = from.data().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                let _ = seen.send(Seen::Reset(error.reason().unwrap_or(Reason::NO_ERROR)));
                return Err(error);
            }
        };
        from.flow_control().release_capacity(bytes.len())?;
        body::send(&mut to, bytes).await?;
    }
    let mut trailers = from.trailers().await?.unwrap_or_default();
    trailers.insert("x-seen", VALUE.parse().unwrap());
    to.send_trailers(trailers)
}

async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, seen: mpsc::UnboundedSender<Seen>) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond, seen.clone()));
    }
}

/// A host that speaks HTTP/2 over TLS, with its authority and what it sees.
async fn host2(name: &str) -> (SocketAddr, String, mpsc::UnboundedReceiver<Seen>) {
    let authority = Authority::new().unwrap();
    let server = authority.server(&Name::parse(name).unwrap(), Protocol::Http2).unwrap();
    let acceptor = TlsAcceptor::from(server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, sender).await;
                }
            });
        }
    });
    (address, authority.pem(), seen)
}

fn policy(rules: Value) -> Policy {
    serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap()
}

fn rules(more: &[Value]) -> Value {
    let mut rules = vec![json!({"action": "allow", "target": "127.0.0.1"})];
    rules.extend(more.iter().cloned());
    Value::Array(rules)
}

fn paths(action: &str, paths: &[&str]) -> Value {
    json!({"action": action, "target": NAME, "requests": {"paths": paths}})
}

fn everything() -> Value {
    json!({"action": "allow", "target": NAME})
}

fn bearer() -> Value {
    let place = json!({"header": {"name": "Authorization", "prefix": "Bearer "}});
    let binding = json!({"credential": "key", "hosts": [NAME], "place": place});
    json!({"binding": binding, "value": VALUE})
}

/// A sandbox with this policy and these credentials, and the authority that programs inside trust.
async fn world(policy: Policy, credentials: &[Value], outside: &str) -> (World, String) {
    let world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
    let credential =
        |value: &Value| -> Credential { serde_json::from_value(value.clone()).unwrap() };
    let credentials = credentials.iter().map(credential).collect();
    let trust = Trust::from_pem(outside.as_bytes()).unwrap();
    let installed = world.sandbox.set_credentials(policy, credentials, trust).unwrap();
    (world, installed.authorities)
}

/// A TLS connection of a program inside to api.example, port 443, that offers these protocols.
async fn connect(
    world: &World,
    outside: SocketAddr,
    authority: &str,
    protocols: &[Protocol],
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (arrived, _) = listener.accept().await.unwrap();
    let outside = TcpStream::connect(outside).await.unwrap();
    let sandbox = Arc::clone(&world.sandbox);
    let name = Name::parse(NAME).unwrap();
    tokio::spawn(async move {
        let host = Host::Name(name.clone());
        let first = FirstBytes::ForHost(name, Vec::new());
        let streams = (arrived, outside);
        accept::relay_connection(&sandbox, Transport::Direct, streams, (&host, 443), first).await;
    });
    let trust = Trust::from_pem(authority.as_bytes()).unwrap();
    let server_name = ServerName::try_from(NAME).unwrap();
    let connecting = TlsConnector::from(trust.offering(protocols)).connect(server_name, inside);
    timeout(PATIENCE, connecting).await.unwrap()
}

async fn client(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(io).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn client2(world: &World, outside: SocketAddr, authority: &str) -> SendRequest<Bytes> {
    let protocols = [Protocol::Http2, Protocol::Http1];
    let stream = connect(world, outside, authority, &protocols).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    client(stream).await
}

/// The response to a request with this body, and its body and trailers.
async fn ask(
    client: &SendRequest<Bytes>,
    request: Request<()>,
    content: &[u8],
) -> Result<(Response<()>, Vec<u8>, HeaderMap), h2::Error> {
    let asking = async {
        let (response, mut to) = client.clone().ready().await?.send_request(request, false)?;
        let sending = async {
            let sent = body::send(&mut to, Bytes::copy_from_slice(content)).await;
            // A refusal may come before the end of the request.
            let _ = sent.and_then(|()| to.send_data(Bytes::new(), true));
        };
        let receiving = async {
            let (head, mut from) = response.await?.into_parts();
            let mut all = Vec::new();
            while let Some(bytes) = from.data().await {
                let bytes = bytes?;
                from.flow_control().release_capacity(bytes.len())?;
                all.extend_from_slice(&bytes);
            }
            let trailers = from.trailers().await?.unwrap_or_default();
            Ok((Response::from_parts(head, ()), all, trailers))
        };
        tokio::join!(sending, receiving).1
    };
    timeout(PATIENCE, asking).await.unwrap()
}

fn get(path: &str) -> Request<()> {
    Request::builder().uri(format!("https://{NAME}{path}")).body(()).unwrap()
}

fn grpc(path: &str) -> Request<()> {
    let uri = format!("https://{NAME}{path}");
    let request = Request::builder().method("POST").uri(uri).header("te", "trailers");
    request.header("content-type", "application/grpc+proto").body(()).unwrap()
}

fn message(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0][..], &length, text.as_bytes()].concat()
}

#[tokio::test]
async fn each_stream_is_checked_by_itself() {
    let (outside, authority, mut seen) = host2(NAME).await;
    let policy = policy(rules(&[
        paths("allow", &["/v1/*", "/pkg.Service/*"]),
        paths("deny", &["/v1/admin/*"]),
    ]));
    let (mut world, trusted) = world(policy, &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    assert!(matches!(world.outcome().await, Outcome::Opened { .. }));
    for (path, status, reason) in [
        ("/v1/items?x=1", 200, None),
        ("/v2", 403, Some("request-not-allowed")),
        ("/v1/admin/users", 403, Some("denied")),
        ("/v1/Admin/users", 403, Some("denied")),
        ("/v1/x/../admin", 400, Some("invalid-request")),
        ("/v1//admin/users", 400, Some("invalid-request")),
        ("/v1/%61dmin/users", 400, Some("invalid-request")),
        ("/v1/x?_method=DELETE", 400, Some("invalid-request")),
        ("/v1/other", 200, None),
    ] {
        let (head, body, _) = ask(&client, get(path), b"hello").await.unwrap();
        assert_eq!(head.status().as_u16(), status, "{path}");
        let told =
            head.headers().get("stockade-egress-refused").map(|value| value.to_str().unwrap());
        assert_eq!(told, reason, "{path}");
        match reason {
            None => {
                assert_eq!(body, b"hello");
                let expected = format!("GET https://{NAME}{path}");
                assert_eq!(seen.recv().await.unwrap(), Seen::Request(expected));
            }
            Some(reason) => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert!(body["error"]["code"].is_string(), "{body}");
                assert_eq!(world.refusal().await, reason);
            }
        }
    }
    let (head, _, _) = ask(&client, grpc("/other.Service/Get"), &message("x")).await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["grpc-status"], "7");
    assert!(head.headers()["grpc-message"].to_str().unwrap().contains("does not allow POST"));
    assert_eq!(world.refusal().await, "request-not-allowed");
    let (head, body, _) = ask(&client, grpc("/pkg.Service/Get"), &message("x")).await.unwrap();
    assert_eq!((head.status().as_u16(), body), (200, message("x")));
    assert_eq!(head.headers()["x-te"], "trailers");
    let expected = format!("POST https://{NAME}/pkg.Service/Get");
    assert_eq!(seen.recv().await.unwrap(), Seen::Request(expected));
    assert!(seen.try_recv().is_err(), "nothing else has reached the host");
}

#[tokio::test]
async fn a_stream_is_for_the_host_of_its_connection() {
    let (outside, authority, mut seen) = host2(NAME).await;
    let (mut world, trusted) =
        world(policy(rules(&[paths("allow", &["/*"])])), &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    let with_host =
        |uri: &str, host: &str| Request::builder().uri(uri).header("host", host).body(()).unwrap();
    for (request, status) in [
        (Request::builder().uri("https://other.example/").body(()).unwrap(), 421),
        (Request::builder().uri("https://sub.api.example/").body(()).unwrap(), 421),
        (with_host("https://api.example/", "other.example"), 403),
        (with_host("https://api.example/", "api.example:444"), 400),
        (Request::builder().uri("http://api.example/").body(()).unwrap(), 400),
        (Request::builder().method("CONNECT").uri("api.example:443").body(()).unwrap(), 400),
    ] {
        let told = format!("{request:?}");
        let (head, _, _) = ask(&client, request, b"").await.unwrap();
        assert_eq!(head.status().as_u16(), status, "{told}");
        assert!(["name-mismatch", "invalid-request"].contains(&world.refusal().await), "{told}");
    }
    let same = with_host("https://API.example.:443/", "api.example:443");
    let (head, _, _) = ask(&client, same, b"").await.unwrap();
    assert_eq!(head.status(), 200);
    let expected = "GET https://api.example:443/".to_owned();
    assert_eq!(seen.recv().await.unwrap(), Seen::Request(expected));
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn bodies_stream_both_ways_and_trailers_arrive() {
    let (outside, authority, _seen) = host2(NAME).await;
    let (world, trusted) = world(policy(rules(&[paths("allow", &["/*"])])), &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    let (mut response, mut to) =
        client.clone().ready().await.unwrap().send_request(get("/early"), false).unwrap();
    let early = std::future::poll_fn(|context| response.poll_informational(context));
    let early = timeout(PATIENCE, early).await.unwrap().unwrap().unwrap();
    assert_eq!(
        (early.status().as_u16(), &early.headers()["x-early"]),
        (103, &"yes".parse().unwrap())
    );
    let mut from = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
    for part in ["one", "two", "three"] {
        body::send(&mut to, Bytes::from(part)).await.unwrap();
        let bytes = timeout(PATIENCE, from.data()).await.unwrap().unwrap().unwrap();
        from.flow_control().release_capacity(bytes.len()).unwrap();
        assert_eq!(bytes, part);
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "5".parse().unwrap());
    to.send_trailers(trailers).unwrap();
    assert!(from.data().await.is_none());
    let trailers = from.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["x-checksum"], "5");
    // A body that is larger than all windows.
    let large = vec![7; 3 << 20];
    let (head, body, _) = ask(&client, get("/large"), &large).await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(body == large);
}

#[tokio::test]
async fn trailers_of_a_request_change_nothing() {
    let (outside, authority, _seen) = host2(NAME).await;
    let (mut world, trusted) =
        world(policy(rules(&[paths("allow", &["/*"])])), &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    for name in
        ["authorization", "content_length", "cookie", "x-http-method-override", "x_original_url"]
    {
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut to) = client.send_request(get("/"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers
            .insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), "x".parse().unwrap());
        to.send_trailers(trailers).unwrap();
        // The response may have begun.
        drop(timeout(PATIENCE, response).await.unwrap());
        assert_eq!(world.refusal().await, "invalid-request", "{name}");
    }
}

#[tokio::test]
async fn a_credential_goes_with_each_stream_and_does_not_come_back() {
    let (outside, authority, _seen) = host2(NAME).await;
    let (mut world, trusted) = world(policy(rules(&[everything()])), &[bearer()], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    for request in [get("/"), grpc("/pkg.Service/Get")] {
        // The host repeats what it has received, and knows the value.
        let content = message(&format!("a {VALUE} b"));
        let (head, body, trailers) = ask(&client, request, &content).await.unwrap();
        assert_eq!(head.headers()["x-authorization"], "Bearer [redacted]");
        assert_eq!(body, message(&format!("a {} b", "*".repeat(VALUE.len()))));
        assert_eq!(trailers["x-seen"], "[redacted]");
    }
    let (head, _, _) = ask(&client, grpc("/compressed"), &message("x")).await.unwrap();
    assert_eq!(head.headers()["grpc-status"], "14");
    assert_eq!(world.refusal().await, "unreadable");
    let compressed = [&[1, 0, 0, 0, 1][..], b"x"].concat();
    assert!(ask(&client, grpc("/pkg.Service/Get"), &compressed).await.is_err());
    assert_eq!(world.refusal().await, "unreadable");
}

#[tokio::test]
async fn a_client_gets_the_protocol_of_its_host() {
    let (outside, authority) = host(NAME).await;
    let (mut world, trusted) =
        world(policy(rules(&[paths("allow", &["/*"])])), &[], &authority).await;
    let both = [Protocol::Http2, Protocol::Http1];
    let stream = connect(&world, outside, &trusted, &both).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (mut from, mut to) = tokio::io::split(stream);
    to.write_all(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, from.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    assert!(connect(&world, outside, &trusted, &[Protocol::Http2]).await.is_err());
    assert_eq!(world.refusal().await, "protocol-unsupported");
    // The error about a host that cannot be verified is in the protocol of the client.
    let (stranger, _, mut seen) = host2(NAME).await;
    let stream = connect(&world, stranger, &trusted, &[Protocol::Http2]).await.unwrap();
    let client = client(stream).await;
    let (head, _, _) = ask(&client, get("/"), b"").await.unwrap();
    assert_eq!(head.status(), 502);
    assert_eq!(world.refusal().await, "unreachable");
    let (head, _, _) = ask(&client, grpc("/pkg.Service/Get"), b"").await.unwrap();
    assert_eq!(head.headers()["grpc-status"], "14");
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_new_policy_ends_the_streams_that_it_does_not_allow() {
    let (outside, authority, mut seen) = host2(NAME).await;
    let before = policy(rules(&[paths("allow", &["/a", "/b"])]));
    let (mut world, trusted) = world(before, &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    let open = async |path: &str| {
        let mut client = client.clone().ready().await.unwrap();
        let (response, mut to) = client.send_request(get(path), false).unwrap();
        body::send(&mut to, Bytes::from("x")).await.unwrap();
        let mut from = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
        assert_eq!(timeout(PATIENCE, from.data()).await.unwrap().unwrap().unwrap(), "x");
        (to, from)
    };
    let (_to_a, mut from_a) = open("/a").await;
    let (mut to_b, mut from_b) = open("/b").await;
    seen.recv().await.unwrap();
    seen.recv().await.unwrap();
    world.sandbox.set_policy(policy(rules(&[paths("allow", &["/b"])]))).unwrap();
    let ended = timeout(PATIENCE, from_a.data()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(ended.reason(), Some(Reason::CANCEL));
    assert_eq!(world.refusal().await, "request-not-allowed");
    assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap(), Some(Seen::Reset(Reason::CANCEL)));
    body::send(&mut to_b, Bytes::from("y")).await.unwrap();
    assert_eq!(timeout(PATIENCE, from_b.data()).await.unwrap().unwrap().unwrap(), "y");
    // A host that is not allowed any more has no connection.
    world.sandbox.set_policy(policy(rules(&[]))).unwrap();
    assert!(timeout(PATIENCE, from_b.data()).await.unwrap().is_none_or(|read| read.is_err()));
    assert_eq!(world.refusal().await, "not-allowed");
}

#[tokio::test]
async fn a_stream_that_is_cancelled_ends_at_the_host() {
    let (outside, authority, mut seen) = host2(NAME).await;
    let (world, trusted) = world(policy(rules(&[paths("allow", &["/*"])])), &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    let mut ready = client.clone().ready().await.unwrap();
    let (response, mut to) = ready.send_request(get("/"), false).unwrap();
    timeout(PATIENCE, response).await.unwrap().unwrap();
    seen.recv().await.unwrap();
    to.send_reset(Reason::CANCEL);
    assert_eq!(timeout(PATIENCE, seen.recv()).await.unwrap(), Some(Seen::Reset(Reason::CANCEL)));
}

/// A host without TLS. `speaks_first` sends its settings before it has read anything, as many servers
/// of gRPC do.
async fn plain_host(speaks_first: bool) -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if !speaks_first {
                stream.readable().await.unwrap();
            }
            tokio::spawn(serve(stream, sender.clone()));
        }
    });
    (address, seen)
}

#[tokio::test]
async fn without_tls_each_stream_is_for_the_host_too() {
    for speaks_first in [false, true] {
        let (outside, mut seen) = plain_host(speaks_first).await;
        let mut world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
        world.resolver.set(NAME, &["127.0.0.1"], 60);
        let stands_for = world.address_of(NAME).await;
        let stream = world.connect(stands_for, outside.port()).await;
        assert!(matches!(world.outcome().await, Outcome::Opened { .. }));
        if speaks_first {
            // The host has been heard before the client speaks.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let client = client(stream).await;
        let uri = |host: &str| Request::builder().uri(format!("http://{host}/x")).body(()).unwrap();
        let (head, body, _) = ask(&client, uri(NAME), b"hello").await.unwrap();
        assert_eq!((head.status().as_u16(), body.as_slice()), (200, &b"hello"[..]));
        let expected = format!("GET http://{NAME}/x");
        assert_eq!(seen.recv().await.unwrap(), Seen::Request(expected));
        let (head, _, _) = ask(&client, uri("other.example"), b"").await.unwrap();
        assert_eq!(head.status(), 421);
        assert_eq!(world.refusal().await, "name-mismatch");
        assert!(seen.try_recv().is_err());
    }
}

#[tokio::test]
async fn traffic_above_the_limit_ends_the_connection() {
    let (outside, authority, _seen) = host2(NAME).await;
    let limits = json!({"bytes": 100_000});
    let rules = rules(&[paths("allow", &["/*"])]);
    let limited = json!({"default": "deny", "rules": rules, "limits": limits});
    let limited = serde_json::from_value(limited).unwrap();
    let (mut world, trusted) = world(limited, &[], &authority).await;
    let client = client2(&world, outside, &trusted).await;
    let (head, _, _) = ask(&client, get("/"), &[7; 1000]).await.unwrap();
    assert_eq!(head.status(), 200);
    assert!(ask(&client, get("/"), &[7; 100_000]).await.is_err());
    assert_eq!(world.refusal().await, "too-many");
    assert!(world.sandbox.admit_connection().is_err());
}
