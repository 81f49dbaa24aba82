//! Requests that no client library sends: pseudo-headers that are missing, repeated, late or unknown, and
//! values that servers could read as another host or path. The frames are written here.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{NAME, Seen, bearer, connect, host2, paths, policy, rules, world};
use crate::authority::Protocol;
use crate::testing::PATIENCE;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// `END_STREAM` and `END_HEADERS`.
const WHOLE: u8 = 5;

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Headers as literals without an index (RFC 7541, section 6.2.2).
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    headers.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The usual headers, of which those with these names are replaced.
fn usual(replaced: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let usual = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", NAME),
        (":path", "/open/x"),
        ("x-own", "1"),
    ];
    let is_usual = |(name, _): &&(&str, &str)| !replaced.iter().any(|(own, _)| own == name);
    replaced.iter().chain(usual.iter().filter(is_usual)).copied().collect()
}

/// Which requests reach a host of which only `/open/*` may be asked, when a connection begins with these
/// headers.
async fn reached(headers: &[(&str, &str)]) -> Vec<Seen> {
    let (outside, authority, mut seen) = host2(NAME).await;
    let policy = policy(rules(&[paths("allow", &["/open/*"])]));
    let (world, trusted) = world(policy, &[bearer()], &authority).await;
    let mut stream = connect(&world, outside, &trusted, &[Protocol::Http2]).await.unwrap();
    let first = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, b""),
        frame(HEADERS, WHOLE, 1, &block(headers)),
    ];
    stream.write_all(&first.concat()).await.unwrap();
    // Until the stream or the connection has an answer.
    let answered = async {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut content = vec![0; usize::try_from(length).unwrap()];
            if stream.read_exact(&mut content).await.is_err() || matches!(head[3], 1 | 3 | 7) {
                return;
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("an answer");
    let mut all = Vec::new();
    while let Ok(one) = seen.try_recv() {
        all.push(one);
    }
    all
}

#[tokio::test]
async fn only_the_request_that_was_checked_reaches_the_host() {
    let open = || vec![Seen::Request(format!("GET https://{NAME}/open/x"))];
    assert_eq!(reached(&usual(&[])).await, open());
    for headers in [
        // Of another form.
        &[(":path", "/open/x"), (":path", "/denied")][..],
        &[(":authority", NAME), (":authority", "other.example")],
        &[(":method", "GET"), (":method", "DELETE")],
        &[(":scheme", "https"), (":scheme", "http")],
        &[("x-first", "1")],
        &[(":other", "x")],
        &[(":status", "200")],
        &[(":protocol", "websocket"), (":method", "CONNECT")],
        &[("X-Large", "1")],
        &[("a b", "1")],
        &[("a:b", "1")],
        &[("x-value", "a\r\nHost: other.example")],
        &[("x-value", "a\0b")],
        &[("connection", "x-own")],
        &[("transfer-encoding", "chunked")],
        &[("content-length", "5")],
        &[("content_length", "5")],
        &[("te", "gzip")],
        // For another host.
        &[("host", "other.example")],
        &[("host", NAME), ("host", "other.example")],
        &[(":authority", "")],
        &[(":authority", "other.example")],
        &[(":authority", "user@api.example")],
        &[(":authority", "api.example@other.example")],
        &[(":authority", "api.example:443:80")],
        &[(":authority", "api.example:8443")],
        &[(":authority", "api.example/denied")],
        &[(":authority", "api.example?x")],
        &[(":authority", "api.example#")],
        &[(":authority", "api.example other.example")],
        &[(":authority", "[::ffff:127.0.0.1]")],
        &[(":authority", "127.1")],
        &[(":scheme", "http")],
        &[(":scheme", "")],
        &[(":scheme", "file")],
        // With another path.
        &[(":path", "")],
        &[(":path", "*")],
        &[(":path", "open/x")],
        &[(":path", "//other.example/open/x")],
        &[(":path", "/open//x")],
        &[(":path", "/open/../denied")],
        &[(":path", "/open/%2e%2e/denied")],
        &[(":path", "/open/x%2f..%2f..%2fdenied")],
        &[(":path", "/open/..;/denied")],
        &[(":path", "/open/x y")],
        &[(":path", "/open/x\\..\\..\\denied")],
        &[(":path", "http://api.example/open/x")],
        &[(":path", "https://other.example/open/x")],
        &[(":path", "#/open/x")],
    ] {
        let mut headers = usual(headers);
        if headers[0].0 == "x-first" {
            headers.sort_by_key(|(name, _)| name.starts_with(':'));
        }
        assert_eq!(reached(&headers).await, [], "{headers:?}");
    }
    // A fragment is no part of a request, and is not sent.
    let fragment = usual(&[(":path", "/open/x#/../../denied")]);
    assert_eq!(reached(&fragment).await, open());
}
