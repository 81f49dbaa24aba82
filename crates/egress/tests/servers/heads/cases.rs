//! Heads of requests in HTTP/1.1 and HTTP/2, usual ones and such as no client library sends, and whether
//! they may pass to a host of which the policy says something about paths.

/// The host, and the path of all requests that say no other one.
pub(super) const NAME: &str = "api.example";
pub(super) const PATH: &str = "/open/x";
/// The header with the number of a case.
pub(super) const NUMBER: &str = "x-head";

/// What the egress process makes of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing of it reaches the host.
    Refused,
    /// The host receives it, as a request with this method and path.
    Sent(&'static str, &'static str),
    /// The host receives another head, which says the same in the usual form.
    Rewritten(&'static str, &'static str),
    /// The same, but the request ends early: its body is not that of its head.
    Cut,
}

/// Pseudo-headers and headers, with their values.
pub(super) type Fields = &'static [(&'static str, &'static str)];

/// A head.
pub(super) enum Head {
    /// The pseudo-headers and headers of a stream, of which those replace the usual ones, and its body.
    Stream(Fields, &'static str),
    /// The text of a request, of which `$` is the line end and the header with the number.
    Text(&'static str),
}

use Verdict::{Cut, Refused, Rewritten, Sent};

pub(super) fn all() -> Vec<(Head, Verdict)> {
    let streams = STREAMS.iter().map(|(headers, verdict)| (Head::Stream(headers, ""), *verdict));
    let bodies =
        BODIES.iter().map(|(length, body, verdict)| (Head::Stream(length, body), *verdict));
    let texts = TEXTS.iter().map(|(text, verdict)| (Head::Text(text), *verdict));
    streams.chain(bodies).chain(texts).collect()
}

const OPEN: Verdict = Sent("GET", PATH);
const REWRITTEN: Verdict = Rewritten("GET", PATH);

const STREAMS: &[(Fields, Verdict)] = &[
    (&[], OPEN),
    // Of another form.
    (&[(":path", "/open/x"), (":path", "/denied")], Refused),
    (&[(":path", "/denied"), (":path", "/open/x")], Refused),
    (&[(":authority", NAME), (":authority", "other.example")], Refused),
    (&[(":method", "GET"), (":method", "DELETE")], Refused),
    (&[(":scheme", "https"), (":scheme", "http")], Refused),
    (&[("after", ""), (":path", "/denied")], Refused),
    (&[("after", ""), (":authority", "other.example")], Refused),
    (&[(":other", "x")], Refused),
    (&[(":status", "200")], Refused),
    (&[(":protocol", "websocket"), (":method", "CONNECT")], Refused),
    (&[(":method", "CONNECT")], Refused),
    (&[(":method", "")], Refused),
    (&[(":method", "get")], Refused),
    (&[(":method", "GE T")], Refused),
    (&[(":method", "GET / HTTP/1.1\r\nHost: other.example\r\n\r\nGET")], Refused),
    (&[(":method", "PROPFIND")], Sent("PROPFIND", PATH)),
    (&[("X-Large", "1")], Refused),
    (&[("Host", "other.example")], Refused),
    (&[("", "1")], Refused),
    (&[("a b", "1")], Refused),
    (&[("a:b", "1")], Refused),
    (&[("a\r\nhost", "other.example")], Refused),
    (&[("x-value", "a\r\nHost: other.example")], Refused),
    (&[("x-value", "a\nHost: other.example")], Refused),
    (&[("x-value", "a\rHost: other.example")], Refused),
    (&[("x-value", "a\0b")], Refused),
    (&[("x-value", "a\u{7f}b")], Refused),
    (&[("x-value", " a ")], OPEN),
    (&[("x-value", "caf\u{e9}")], OPEN),
    (&[("connection", "x-plain")], Refused),
    (&[("connection", "close")], Refused),
    (&[("keep-alive", "5")], Refused),
    (&[("proxy-connection", "close")], Refused),
    (&[("upgrade", "h2c")], Refused),
    (&[("transfer-encoding", "chunked")], Refused),
    (&[("te", "gzip")], Refused),
    (&[("te", "trailers")], OPEN),
    (&[("content_length", "5")], Refused),
    (&[("expect", "200-ok")], Refused),
    (&[("x-http-method-override", "DELETE")], Refused),
    (&[("x_original_url", "/denied")], Refused),
    (&[("x-rewrite-url", "/denied")], Refused),
    // For another host.
    (&[("host", "other.example")], Refused),
    (&[("host", NAME)], OPEN),
    (&[("host", "API.example")], OPEN),
    (&[("host", "api.example:8443")], Refused),
    (&[("host", NAME), ("host", "other.example")], Refused),
    (&[("host", "")], Refused),
    (&[(":authority", "")], Refused),
    (&[(":authority", "other.example")], Refused),
    (&[(":authority", "API.EXAMPLE")], OPEN),
    (&[(":authority", "api.example.")], OPEN),
    (&[(":authority", "api.example..")], Refused),
    (&[(":authority", "user@api.example")], Refused),
    (&[(":authority", "api.example@other.example")], Refused),
    (&[(":authority", "api.example:443:80")], Refused),
    (&[(":authority", "api.example:8443")], Refused),
    (&[(":authority", "api.example:")], OPEN),
    (&[(":authority", "api.example:x")], Refused),
    (&[(":authority", "api.example/denied")], Refused),
    (&[(":authority", "api.example?x")], Refused),
    (&[(":authority", "api.example#")], Refused),
    (&[(":authority", "api.example\\other.example")], Refused),
    (&[(":authority", "api.example other.example")], Refused),
    (&[(":authority", "api.example,other.example")], Refused),
    (&[(":authority", "api%2eexample")], Refused),
    (&[(":authority", "api\u{ff0e}example")], Refused),
    (&[(":authority", "[::ffff:127.0.0.1]")], Refused),
    (&[(":authority", "127.1")], Refused),
    (&[(":scheme", "http")], Refused),
    (&[(":scheme", "")], Refused),
    (&[(":scheme", "file")], Refused),
    (&[(":scheme", "https://other.example/?")], Refused),
    // With another path.
    (&[(":path", "")], Refused),
    (&[(":path", "*")], Refused),
    (&[(":path", "*"), (":method", "OPTIONS")], Sent("OPTIONS", "*")),
    (&[(":path", "open/x")], Refused),
    (&[(":path", "//other.example/open/x")], Refused),
    (&[(":path", "/open//x")], Refused),
    (&[(":path", "/open/../denied")], Refused),
    (&[(":path", "/open/./x")], Refused),
    (&[(":path", "/open/%2e%2e/denied")], Refused),
    (&[(":path", "/open/x%2f..%2f..%2fdenied")], Refused),
    (&[(":path", "/%6fpen/x")], Refused),
    (&[(":path", "/open/%00x")], Refused),
    (&[(":path", "/open/..;/denied")], Refused),
    (&[(":path", "/open;a=b/x")], Refused),
    (&[(":path", "/open/x y")], Refused),
    (&[(":path", "/open/x\ty")], Refused),
    (&[(":path", "/open/x HTTP/1.1\r\nHost: other.example\r\n\r\n")], Refused),
    (&[(":path", "/open/x\\..\\..\\denied")], Refused),
    (&[(":path", "/open/x\0")], Refused),
    (&[(":path", "/open/caf\u{e9}")], Refused),
    (&[(":path", "/open/caf%C3%A9")], Sent("GET", "/open/caf\u{e9}")),
    (&[(":path", "/open/%ff")], Refused),
    (&[(":path", "http://api.example/open/x")], Refused),
    (&[(":path", "https://other.example/open/x")], Refused),
    (&[(":path", "/open/x?a=/../denied#b")], REWRITTEN),
    (&[(":path", "/open/x?_method=DELETE")], Refused),
    // A fragment is no part of a request, and is not sent.
    (&[(":path", "/open/x#/../../denied")], REWRITTEN),
    (&[(":path", "#/open/x")], Rewritten("GET", "/")),
];

/// Lengths, and bodies that have them or not.
const BODIES: &[(Fields, &str, Verdict)] = &[
    (&[(":method", "POST"), ("content-length", "5")], "12345", Sent("POST", PATH)),
    (&[(":method", "POST")], "12345", Sent("POST", PATH)),
    (&[(":method", "POST"), ("content-length", "5")], "123", Cut),
    (&[(":method", "POST"), ("content-length", "3")], "12345", Cut),
    (&[(":method", "POST"), ("content-length", "0")], "GET /denied HTTP/1.1\r\n\r\n", Cut),
    (&[(":method", "POST"), ("content-length", "5"), ("content-length", "5")], "12345", Refused),
    (&[(":method", "POST"), ("content-length", "5"), ("content-length", "6")], "12345", Refused),
    (&[(":method", "POST"), ("content-length", "+5")], "12345", Refused),
    (&[(":method", "POST"), ("content-length", "5, 5")], "12345", Refused),
    (&[(":method", "POST"), ("content-length", "0x5")], "12345", Refused),
    (&[("content-length", "5")], "", Refused),
];

const TEXTS: &[(&str, Verdict)] = &[
    ("GET /open/x HTTP/1.1$Host: api.example\r\n\r\n", OPEN),
    ("GET /open/x HTTP/1.0$\r\n", REWRITTEN),
    ("GET /open/x HTTP/1.1$Host: API.EXAMPLE.\r\n\r\n", OPEN),
    ("GET https://api.example/open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET http://api.example/open/x HTTP/1.1$Host: api.example\r\n\r\n", REWRITTEN),
    ("GET http://api.example HTTP/1.1$Host: api.example\r\n\r\n", Rewritten("GET", "/")),
    ("GET http://api.example?x HTTP/1.1$Host: api.example\r\n\r\n", Rewritten("GET", "/")),
    ("GET http://api.example//denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET http://other.example/open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET http://api.example/open/x HTTP/1.1$Host: other.example\r\n\r\n", Refused),
    ("GET http://user@api.example/open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET http:/open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET //other.example/open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open//x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/../denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/%2e%2e/denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open%2fx HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/..;/denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open\\..\\denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x#/denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x\0 HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/caf%C3%A9 HTTP/1.1$Host: api.example\r\n\r\n", Sent("GET", "/open/caf\u{e9}")),
    ("GET * HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("OPTIONS * HTTP/1.1$Host: api.example\r\n\r\n", Sent("OPTIONS", "*")),
    ("get /open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET  /open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET\t/open/x\tHTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x /denied HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.2$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/2.0$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x\r\n\r\n", Refused),
    ("\r\nGET /open/x HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("CONNECT api.example:443 HTTP/1.1$Host: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host:\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: other.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: api.example\r\nHost: other.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: api.example, other.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: user@api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: api.example:8443\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: api.example:x\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host: api.example/denied\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Host : other.example\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$ Host: other.example\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X-A: b\r\n\tHost: other.example\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X-A: b\nHost: other.example\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X-A: b\rHost: other.example\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X-A: b\0\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X A: b\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$: b\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$X-HTTP-Method-Override: PUT\r\nHost: api.example\r\n\r\n", Refused),
    ("GET /open/x HTTP/1.1$Connection: Host\r\nHost: api.example\r\n\r\n", OPEN),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: 5\r\n\r\n12345",
        Sent("POST", PATH),
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Sent("POST", PATH),
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: 0\r\n\r\nGET /denied HTTP/1.1\r\n\r\n",
        Rewritten("POST", PATH),
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
        Refused,
    ),
    ("POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: +5\r\n\r\n12345", Refused),
    ("POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: 5, 5\r\n\r\n12345", Refused),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    ("POST /open/x HTTP/1.1$Host: api.example\r\nTransfer_Encoding: chunked\r\n\r\n", Refused),
    (
        "POST /open/x HTTP/1.1$Host: api.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST /open/x HTTP/1.0$Host: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "GET /open/x HTTP/1.1$Host: api.example\r\n\r\nGET /denied HTTP/1.1\r\nHost: api.example\r\n\r\n",
        REWRITTEN,
    ),
];
