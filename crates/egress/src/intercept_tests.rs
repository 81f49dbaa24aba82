//! Credentials in traffic: a program inside that trusts the sandbox's authority, and outside hosts
//! with certificates of an authority of the test.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_core::network::binding::check_bindings;
use stockade_core::network::{Name, Policy, Transport};
use stockade_egress_control::{Credential, Installed, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::accept;
use crate::authority::{Authority, Protocol};
use crate::credentials;
use crate::intercept::Interception;
use crate::relay::FirstBytes;
use crate::testing::{PATIENCE, World, policy, rest};
use crate::trust::Trust;

#[path = "../../../tests/cases/support.rs"]
mod support;

use support::{drive, no_driver, same};

const PLACEHOLDER: &str = "sk-placeholder-000001";
pub(crate) const VALUE: &str = "sk-the-real-value-that-nobody-inside-has";

fn credential(host: &str, slot: Value) -> Credential {
    let binding = json!({"credential": "key", "hosts": [host], "place": slot});
    serde_json::from_value(json!({"binding": binding, "value": VALUE})).unwrap()
}

fn placeholder(host: &str) -> Credential {
    credential(host, json!({ "placeholder": PLACEHOLDER }))
}

fn header(host: &str) -> Credential {
    credential(host, json!({"header": {"name": "Authorization", "prefix": "Bearer "}}))
}

/// A TLS host with its own authority. It responds with the head of the request and a header and a
/// body that repeat its headers. Returns its address, and the authority.
pub(crate) async fn host(name: &str) -> (SocketAddr, String) {
    host_with(name, true, |text| {
        let echoed = text.trim_end().replace("\r\n", " | ");
        let seen = text.contains(VALUE);
        format!(
            "HTTP/1.1 103 Early\r\nX-Early: {echoed}\r\n\r\n\
             HTTP/1.1 200 OK\r\nX-Echo: {echoed}\r\nConnection: close\r\n\r\n\
             body: {echoed}; seen: {seen}"
        )
    })
    .await
}

/// The same with any response to the head of a request. Without `notifies` it closes the connection
/// without `close_notify`, and also if bytes of the request are unread.
pub(crate) async fn host_with(
    name: &str,
    notifies: bool,
    respond: impl Fn(&str) -> String + Send + 'static,
) -> (SocketAddr, String) {
    let authority = Authority::new().unwrap();
    let acceptor =
        TlsAcceptor::from(authority.server(&Name::parse(name).unwrap(), Protocol::Http1).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = Vec::new();
            while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                if stream.read_buf(&mut bytes).await.unwrap() == 0 {
                    break;
                }
            }
            let answer = respond(&String::from_utf8_lossy(&bytes));
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            if notifies {
                stream.shutdown().await.unwrap();
            }
        }
    });
    (address, authority.pem())
}

/// The response to a program inside, which trusts `authority`, when it sends a request over a
/// connection to api.example, port 443.
pub(crate) async fn send_request(
    world: &World,
    outside: SocketAddr,
    authority: &str,
    server_name: &str,
    request: &str,
) -> Result<String, String> {
    send_request_after(world, outside, authority, server_name, request, || ()).await
}

/// The same, with something to do between the handshake and the request.
pub(crate) async fn send_request_after(
    world: &World,
    outside: SocketAddr,
    authority: &str,
    server_name: &str,
    request: &str,
    act: impl FnOnce(),
) -> Result<String, String> {
    // The port outside is not 443, at which no test server listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (arrived, _) = listener.accept().await.unwrap();
    let outside = TcpStream::connect(outside).await.unwrap();
    let sandbox = Arc::clone(&world.sandbox);
    let name = Name::parse("api.example").unwrap();
    let carrying = tokio::spawn(async move {
        let host = stockade_core::network::Host::Name(name.clone());
        let first = FirstBytes::ForHost(name, Vec::new());
        let streams = (arrived, outside);
        accept::relay_connection(&sandbox, Transport::Direct, streams, (&host, 443), first).await;
    });
    let trust = Trust::from_pem(authority.as_bytes()).unwrap();
    let server_name = ServerName::try_from(server_name.to_owned()).unwrap();
    let connected = TlsConnector::from(trust.offering(&[])).connect(server_name, inside).await;
    let stream = connected.map_err(|error| error.to_string())?;
    act();
    let (mut from, mut to) = tokio::io::split(stream);
    let request = request.to_owned();
    // A response may come before the end of the request.
    let writing = tokio::spawn(async move {
        let _ = to.write_all(request.as_bytes()).await;
        to
    });
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, from.read_to_end(&mut bytes)).await.unwrap();
    writing.abort();
    drop((from, writing.await));
    timeout(PATIENCE, carrying).await.unwrap().unwrap();
    match read {
        Err(error) if bytes.is_empty() => Err(error.to_string()),
        // The end was not announced.
        Err(_) => Ok(format!("{} [cut]", String::from_utf8(bytes).unwrap())),
        Ok(_) => Ok(String::from_utf8(bytes).unwrap()),
    }
}

/// Replaces the credentials of the sandbox under its current policy.
fn install(
    world: &World,
    credentials: Vec<Credential>,
    trust: Trust,
) -> Result<Installed, credentials::Error> {
    let policy = Policy::clone(&world.sandbox.policy().borrow());
    world.sandbox.set_credentials(policy, credentials, trust)
}

async fn world(credentials: Vec<Credential>, outside: &str) -> (World, String) {
    let world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
    let trust = Trust::from_pem(outside.as_bytes()).unwrap();
    let authority = install(&world, credentials, trust).unwrap().authorities;
    (world, authority)
}

fn request(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: api.example\r\n{headers}\r\n")
}

#[test]
fn cases() {
    drive("crates/egress/src/intercept_tests.rs::cases", "egress_credentials.json", |case| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match case.name.as_str() {
            "swap on allowed host" => runtime.block_on(a_placeholder_is_the_value_outside_only()),
            "Host / :authority differs from SNI" => {
                runtime.block_on(a_request_for_somebody_else_gets_nothing());
            }
            "plain HTTP" => {
                runtime.block_on(plain_requests_and_other_hosts_are_left_as_they_are());
            }
            "existing header replaced" | "echoing upstream" => {
                runtime.block_on(a_header_of_the_programs_own_is_taken_away());
            }
            "policy change cannot orphan a binding" => {
                runtime.block_on(bindings_and_policy_hold_each_other());
            }
            "reserved headers" => {
                for name in case.given["header"].as_array().unwrap() {
                    refused("api.example", &json!({"header": {"name": name}}))?;
                }
            }
            "binding host forms" => {
                for host in case.given["host"].as_array().unwrap() {
                    refused(host.as_str().unwrap(), &json!({ "placeholder": PLACEHOLDER }))?;
                }
            }
            "binding needs explicit egress allow" => {
                refused("not.named.example", &json!({ "placeholder": PLACEHOLDER }))?;
            }
            _ => return no_driver(),
        }
        Ok(())
    });
}

/// The result of validating a binding, under a policy that allows everything, and one host by its
/// name.
fn refused(host: &str, slot: &Value) -> Result<(), String> {
    let rule = json!({"action": "allow", "target": "api.example"});
    let policy = json!({"default": "allow", "rules": [rule]});
    let policy: Policy = serde_json::from_value(policy).unwrap();
    let binding = json!({"credential": "key", "hosts": [host], "place": slot});
    let Ok(binding) = serde_json::from_value(binding) else { return Ok(()) };
    same(true, check_bindings(&[binding], &policy).is_err())
}

async fn a_placeholder_is_the_value_outside_only() {
    let (outside, trusted) = host("api.example").await;
    let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    let headers = format!("X-Key: a {PLACEHOLDER} b\r\nCookie: k={PLACEHOLDER}\r\n");
    let answer =
        send_request(&world, outside, &authority, "api.example", &request(&headers)).await.unwrap();
    assert!(answer.ends_with("seen: true"), "{answer}");
    assert!(!answer.contains(VALUE), "{answer}");
    assert_eq!(answer.matches(PLACEHOLDER).count(), 4, "repeated in two heads: {answer}");
    assert!(answer.contains(&"*".repeat(VALUE.len())), "repeated in the body: {answer}");
    assert!(answer.contains("Accept-Encoding: identity"), "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
    // Also if a program has encoded it.
    let basic = |password: &str| STANDARD.encode(format!("user:{password}"));
    let headers = format!("Authorization: basic {}\r\n", basic(PLACEHOLDER));
    let answer =
        send_request(&world, outside, &authority, "api.example", &request(&headers)).await.unwrap();
    assert!(answer.contains(&format!("Authorization: Basic {}", basic(PLACEHOLDER))), "{answer}");
    assert!(answer.contains(&"*".repeat(basic(VALUE).len())), "{answer}");
    assert!(!answer.contains(&basic(VALUE)), "{answer}");
    // Without the placeholder nothing is inserted.
    let answer =
        send_request(&world, outside, &authority, "api.example", &request("X-Key: other\r\n"))
            .await;
    assert!(answer.unwrap().ends_with("seen: false"));
}

#[tokio::test]
async fn a_request_with_a_credential_asks_for_a_whole_and_plain_response() {
    let (outside, trusted) = host("api.example").await;
    let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    let choices = "Range: bytes=3-9\r\nif-range: x\r\nTE: gzip\r\nAccept-Charset: utf-16\r\n\
                   Sec-WebSocket-Extensions: permessage-deflate\r\nAccept-Encoding: br\r\n";
    let with = request(&format!("{choices}X-Key: {PLACEHOLDER}\r\n"));
    let old = with.replace("HTTP/1.1\r\nHost: api.example", "HTTP/1.0");
    for request in [with, old] {
        let answer = send_request(&world, outside, &authority, "api.example", &request).await;
        let answer = answer.unwrap();
        assert!(answer.contains("body: GET / HTTP/1.1 | ") && answer.ends_with("seen: true"));
        assert!(answer.contains("Host: api.example"), "{answer}");
        assert!(answer.contains("Accept-Encoding: identity"), "{answer}");
        for name in ["Range:", "if-range", "TE:", "Charset", "Sec-WebSocket"] {
            assert!(!answer.contains(name), "{name}: {answer}");
        }
    }
    // Without the credential too: the host may send what it has received before.
    let without = request(choices);
    let answer = send_request(&world, outside, &authority, "api.example", &without).await.unwrap();
    assert!(!answer.contains("Range:") && answer.ends_with("seen: false"), "{answer}");
}

#[tokio::test]
async fn a_response_that_cannot_be_redacted_is_refused() {
    let coded = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nCODE";
    let (outside, trusted) = host_with("api.example", true, |_| coded.to_owned()).await;
    let (mut world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    let with = request(&format!("X-Key: {PLACEHOLDER}\r\n"));
    let answer = send_request(&world, outside, &authority, "api.example", &with).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    assert!(answer.contains("Stockade-Egress-Refused: unreadable\r\n"), "{answer}");
    assert!(answer.contains("EGRESS_UNREADABLE") && !answer.contains("CODE"), "{answer}");
    assert_eq!(world.refusal().await, "unreadable");
    // Also to a request without it, to which the host may send what it has received before.
    let answer = send_request(&world, outside, &authority, "api.example", &request("")).await;
    let answer = answer.unwrap();
    assert!(answer.contains("EGRESS_UNREADABLE") && !answer.contains("CODE"), "{answer}");
    assert_eq!(world.refusal().await, "unreadable");
}

/// A host that stores what it gets, and sends it in other forms.
#[tokio::test]
async fn a_value_that_a_host_has_stored_is_covered_in_each_form() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let rest = VALUE.strip_prefix("sk-").unwrap();
    for form in [
        VALUE.to_owned(),
        format!("%73k%2d{rest}"),
        format!("\\u0073k\\u002d{rest}"),
        format!("&#115;k&#x2d;{rest}"),
        STANDARD.encode(VALUE),
        STANDARD.encode(format!("user:{VALUE}")),
        VALUE.bytes().map(|byte| format!("{byte:02x}")).collect(),
    ] {
        let length = form.len();
        let text =
            format!("HTTP/1.1 200 OK\r\nX-Form: {form}\r\nContent-Length: {length}\r\n\r\n{form}");
        let (outside, trusted) = host_with("api.example", true, move |_| text.clone()).await;
        let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
        let answer = send_request(&world, outside, &authority, "api.example", &request("")).await;
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("***"), "{answer}");
        assert!(!answer.contains(&form) && answer.contains(PLACEHOLDER), "{answer}");
    }
}

#[tokio::test]
async fn all_of_a_response_arrives_however_the_host_ends() {
    for (body, cut) in [("task", ""), ("sk-the-", ""), ("a sk-the-real", " [cut]")] {
        let length = if cut.is_empty() { body.len() } else { 40 };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let (outside, trusted) = host_with("api.example", false, move |_| answer.clone()).await;
        let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
        let with = request(&format!("X-Key: {PLACEHOLDER}\r\n"));
        let answer = send_request(&world, outside, &authority, "api.example", &with).await.unwrap();
        assert!(answer.ends_with(&format!("\r\n\r\n{body}{cut}")), "{answer}");
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_arrives() {
    let early = "HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo long";
    let (outside, trusted) = host_with("api.example", true, |_| early.to_owned()).await;
    let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    let length = 8 << 20;
    let head = format!("X-Key: {PLACEHOLDER}\r\nContent-Length: {length}\r\n");
    let long = request(&head) + &"x".repeat(length);
    let answer = send_request(&world, outside, &authority, "api.example", &long).await.unwrap();
    assert!(answer.contains("413 Too Large") && answer.contains("\r\n\r\ntoo long"), "{answer}");
}

async fn a_header_of_the_programs_own_is_taken_away() {
    let (outside, trusted) = host("api.example").await;
    let (world, authority) = world(vec![header("api.example")], &trusted).await;
    let headers = "Authorization: Bearer stolen\r\nauthorization: Basic x\r\n";
    let answer =
        send_request(&world, outside, &authority, "api.example", &request(headers)).await.unwrap();
    assert!(answer.ends_with("seen: true"), "{answer}");
    assert!(!answer.contains("stolen") && !answer.contains("Basic x"), "{answer}");
    assert!(answer.contains("Authorization: Bearer [redacted]"), "{answer}");
}

async fn a_request_for_somebody_else_gets_nothing() {
    let (outside, trusted) = host("api.example").await;
    let (mut world, authority) = world(vec![header("api.example")], &trusted).await;
    let other = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let answer = send_request(&world, outside, &authority, "api.example", other).await.unwrap();
    assert!(answer.contains("Stockade-Egress-Refused: name-mismatch"), "{answer}");
    assert_eq!(world.refusal().await, "name-mismatch");
    let answer = send_request(&world, outside, &authority, "evil.example", other).await;
    assert!(answer.is_err_and(|error| error.contains("AccessDenied")));
    assert_eq!(world.refusal().await, "name-mismatch");
}

#[tokio::test]
async fn a_host_that_cannot_show_who_it_is_gets_nothing() {
    for (shown, believed) in [("evil.example", "evil.example"), ("api.example", "other.example")] {
        let (outside, own) = host(shown).await;
        let (_, other) = host(believed).await;
        let trusted = if shown == "api.example" { other } else { own };
        let (mut world, authority) = world(vec![header("api.example")], &trusted).await;
        let answer =
            send_request(&world, outside, &authority, "api.example", &request("")).await.unwrap();
        assert!(answer.contains("Stockade-Egress-Refused: unreachable"), "{answer}");
        assert_eq!(world.refusal().await, "unreachable");
    }
}

async fn plain_requests_and_other_hosts_are_left_as_they_are() {
    let (server, mut received) = crate::testing::mirror().await;
    let (_, trusted) = host("api.example").await;
    let (world, _) = world(vec![placeholder("api.example")], &trusted).await;
    world.resolver.set("api.example", &["127.0.0.1"], 60);
    let url = format!("http://api.example:{}/", server.port());
    let request = format!("GET {url} HTTP/1.1\r\nX-Key: {PLACEHOLDER}\r\n\r\n");
    let (mut stream, _) = world.ask_proxy(&request).await;
    rest(&mut stream).await.unwrap();
    let passed = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
    assert!(passed.contains(PLACEHOLDER) && !passed.contains(VALUE), "{passed}");
    let name = |text: &str| stockade_core::network::Host::parse(text).unwrap();
    assert!(Interception::of(&world.sandbox, &name("api.example"), 443).is_some());
    assert!(Interception::of(&world.sandbox, &name("api.example"), 80).is_none());
    assert!(Interception::of(&world.sandbox, &name("other.example"), 443).is_none());
    assert!(Interception::of(&world.sandbox, &name("127.0.0.1"), 443).is_none());
}

async fn bindings_and_policy_hold_each_other() {
    let (_, trusted) = host("api.example").await;
    let (world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    let trust = Trust::from_pem(trusted.as_bytes()).unwrap();
    let unbound = world.sandbox.set_policy(Policy::default()).unwrap_err();
    assert!(unbound.to_string().contains("api.example"), "{unbound}");
    let refused = install(&world, vec![placeholder("other.example")], trust.clone());
    assert!(refused.is_err());
    assert!(world.sandbox.policy().borrow().rules().len() == 2, "nothing is changed");
    // The authority that programs received first is kept.
    let again = install(&world, vec![header("api.example")], trust.clone());
    assert_eq!(again.unwrap().authorities, authority);
    let mut broken = header("api.example");
    broken.value = Some("two\r\nlines".to_owned().into());
    assert!(install(&world, vec![broken], trust.clone()).is_err());
    install(&world, vec![], trust).unwrap();
    world.sandbox.set_policy(policy(&[])).unwrap();
}

/// The host of a missing value receives no request with its placeholder, in whatever form.
#[tokio::test]
async fn a_request_whose_secret_is_missing_is_not_sent() {
    let (outside, trusted) = host("api.example").await;
    let without = |own: Credential| Credential { value: None, ..own };
    let (mut world, authority) = world(vec![without(placeholder("api.example"))], &trusted).await;
    let basic = STANDARD.encode(format!("user:{PLACEHOLDER}"));
    for headers in [
        format!("X-Key: {PLACEHOLDER}\r\n"),
        format!("Authorization: Bearer {PLACEHOLDER}\r\n"),
        format!("Authorization: Basic {basic}\r\n"),
    ] {
        let answer =
            send_request(&world, outside, &authority, "api.example", &request(&headers)).await;
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.contains("\r\nStockade-Egress-Refused: secret-missing\r\n"), "{answer}");
        assert!(answer.contains("\"SECRET_MISSING\""), "{answer}");
        assert_eq!(world.refusal().await, "secret-missing");
    }
    let answer =
        send_request(&world, outside, &authority, "api.example", &request("X-Key: no\r\n")).await;
    assert!(answer.unwrap().ends_with("seen: false"), "requests without it go on");
    let trust = || Trust::from_pem(trusted.as_bytes()).unwrap();
    let installed = install(&world, vec![placeholder("api.example")], trust()).unwrap();
    assert_eq!((installed.authorities, installed.missing), (authority.clone(), vec![]));
    // The process keeps the value for those who do not repeat it.
    let kept = install(&world, vec![without(placeholder("api.example"))], trust()).unwrap();
    assert!(kept.missing.is_empty());
    let headers = format!("X-Key: {PLACEHOLDER}\r\n");
    let answer = send_request(&world, outside, &authority, "api.example", &request(&headers)).await;
    assert!(answer.unwrap().ends_with("seen: true"));
    // Bound to more hosts, or elsewhere, it is another secret.
    let wider: Credential = serde_json::from_value(json!({
        "binding": {
            "credential": "key",
            "hosts": ["api.example", "other.example"],
            "place": { "placeholder": PLACEHOLDER },
        },
    }))
    .unwrap();
    let policy = policy(&["allow api.example", "allow other.example", "allow 127.0.0.1"]);
    let installed = world.sandbox.set_credentials(policy, vec![wider], trust()).unwrap();
    assert_eq!(installed.missing, ["key"]);
    let lost = install(&world, vec![without(placeholder("api.example"))], trust()).unwrap();
    assert_eq!(lost.missing, ["key"], "a value that was dropped does not come back");
    install(&world, vec![], trust()).unwrap();
    let again = install(&world, vec![without(placeholder("api.example"))], trust()).unwrap();
    assert_eq!(again.missing, ["key"]);
    let header = install(&world, vec![without(header("api.example"))], trust()).unwrap();
    assert_eq!(header.missing.len(), 1);
    let answer = send_request(&world, outside, &authority, "api.example", &request("")).await;
    assert!(answer.unwrap().contains("SECRET_MISSING"), "it would go with every request");
}

/// A request with a secret whose length two servers could read differently does not leave.
#[tokio::test]
async fn a_request_with_a_secret_has_one_length() {
    let (outside, trusted) = host("api.example").await;
    let (mut world, authority) = world(vec![placeholder("api.example")], &trusted).await;
    for framing in [
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0;x\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\n\n",
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nHost: api.example\r\nX-Key: {PLACEHOLDER}\r\n{framing}");
        let answer = send_request(&world, outside, &authority, "api.example", &request).await;
        assert!(answer.unwrap().starts_with("HTTP/1.1 400 Bad Request\r\n"), "{framing}");
        assert_eq!(world.refusal().await, "invalid-request", "{framing}");
    }
}

/// A server that answers each request when its body has arrived, and reports what it received.
async fn patient() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let length = if text.contains("Content-Length") { PLACEHOLDER.len() } else { 0 };
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if body.is_some_and(|body| body >= length) {
                    break;
                }
                if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        }
    });
    (address, receiver)
}

/// The next event about a secret: its name, and whether its placeholder was not sent.
async fn misdirection(world: &mut World) -> (String, bool) {
    loop {
        if let Outcome::Misdirected { secret, blocked } = world.outcome().await {
            return (secret, blocked);
        }
    }
}

#[tokio::test]
async fn a_placeholder_that_is_sent_elsewhere_is_reported() {
    let basic = STANDARD.encode(format!("user:{PLACEHOLDER}"));
    let (one, two) = PLACEHOLDER.split_at(5);
    for strict in [false, true] {
        for (head, parts) in [
            (format!("GET /?k={PLACEHOLDER} HTTP/1.1\r\n"), ["", ""]),
            (format!("GET / HTTP/1.1\r\nX-Key: a{PLACEHOLDER}\r\n"), ["", ""]),
            (format!("GET / HTTP/1.1\r\nAuthorization: basic {basic}\r\n"), ["", ""]),
            ("POST / HTTP/1.1\r\nContent-Length: 21\r\n".to_owned(), [one, two]),
        ] {
            let (server, mut received) = patient().await;
            let (_, trusted) = host("api.example").await;
            let mut credential = placeholder("api.example");
            credential.binding.strict = strict;
            let (mut world, _) = world(vec![credential], &trusted).await;
            world
                .sandbox
                .set_policy(policy(&[
                    "allow api.example",
                    "allow third.example",
                    "allow 127.0.0.1",
                ]))
                .unwrap();
            world.resolver.set("third.example", &["127.0.0.1"], 60);
            let address = world.address_of("third.example").await;
            let mut stream = world.connect(address, server.port()).await;
            stream
                .write_all(format!("{head}Host: third.example\r\n\r\n").as_bytes())
                .await
                .unwrap();
            for part in parts {
                stream.write_all(part.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            let answer = rest(&mut stream).await.unwrap_or_default();
            assert_eq!(misdirection(&mut world).await, ("key".to_owned(), strict), "{head}");
            drop(stream);
            let received = timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
            let is_sent = received.contains(PLACEHOLDER) || received.contains(&basic);
            assert_eq!(is_sent, !strict, "{received}");
            if strict {
                assert_eq!(world.refusal().await, "secret-misdirected");
            }
            if strict {
                assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
                assert!(
                    answer.contains("secret-misdirected") && answer.contains("key"),
                    "{answer}"
                );
                assert_eq!(received.is_empty(), parts == ["", ""], "{received}");
            }
        }
    }
}

/// A secret of one intercepted host is not sent to another one either.
#[tokio::test]
async fn a_placeholder_in_a_request_with_another_secret_is_reported() {
    const OTHER: &str = "sk-placeholder-000002";
    for strict in [false, true] {
        let (outside, trusted) = host("api.example").await;
        let binding = json!({
            "credential": "other",
            "hosts": ["other.example"],
            "place": { "placeholder": OTHER },
            "strict": strict,
        });
        let other = json!({"binding": binding, "value": "sk-other-Zq83hTnw04LxvUe7"});
        let credentials = vec![placeholder("api.example"), serde_json::from_value(other).unwrap()];
        let mut world =
            World::new(&["allow api.example", "allow other.example", "allow 127.0.0.1"]).await;
        let trust = Trust::from_pem(trusted.as_bytes()).unwrap();
        let authority = install(&world, credentials, trust).unwrap().authorities;
        let headers = format!("X-Key: {PLACEHOLDER}\r\nX-Other: {OTHER}\r\n");
        let request = request(&headers);
        let answer = send_request(&world, outside, &authority, "api.example", &request).await;
        let answer = answer.unwrap();
        assert_eq!(misdirection(&mut world).await, ("other".to_owned(), strict));
        assert_eq!(answer.contains("secret-misdirected"), strict, "{answer}");
        assert_eq!(answer.ends_with("seen: true"), !strict, "{answer}");
    }
}

#[test]
fn a_credential_is_shown_without_its_value() {
    let shown = format!("{:?}", placeholder("api.example"));
    assert!(shown.contains("api.example") && !shown.contains(VALUE), "{shown}");
}
