//! The first bytes of honest programs and of programs that address another host.

use proptest::prelude::*;

use super::*;

fn admit(name: &Name, bytes: &[u8]) -> Admission {
    super::admit(name, bytes, false)
}

fn name() -> Name {
    Name::parse("api.example").unwrap()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&length[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(content)].concat()
}

fn server_name(host: &str) -> Vec<u8> {
    let entry = [&[0][..], &vector16(host.as_bytes())].concat();
    extension(0, &vector16(&entry))
}

fn two_names(one: &str, other: &str) -> Vec<u8> {
    let entry = |host: &str| [&[0][..], &vector16(host.as_bytes())].concat();
    extension(0, &vector16(&[entry(one), entry(other)].concat()))
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = [&[3, 3][..], &[7; 32], &[0], &vector16(&[0x13, 1]), &[1, 0]].concat();
    body.extend(vector16(&extensions.concat()));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[1..], &body[..]].concat()
}

/// A message in records of so many bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &vector16(part)].concat();
    message.chunks(size).flat_map(record).collect()
}

fn reason(admission: &Admission) -> &'static str {
    match admission {
        Admission::More => "more",
        Admission::Forward { .. } => "forward",
        Admission::Version2 => "version-2",
        Admission::Refuse(refusal) => refusal.reason().as_str(),
    }
}

fn text_of(admission: Admission) -> String {
    match admission {
        Admission::Forward { bytes, .. } => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handshake_is_for_the_host_of_its_connection() {
    let other = extension(16, &vector16(b"\x02h2"));
    for (extensions, expected) in [
        (vec![server_name("api.example")], "forward"),
        (vec![other.clone(), server_name("API.Example.")], "forward"),
        (vec![extension(0x0a0a, b""), server_name("api.example"), other.clone()], "forward"),
        // Encrypted client hello, or bytes that pretend it: what it hides is not seen.
        (vec![extension(0xfe0d, &[7; 90]), server_name("api.example")], "forward"),
        (vec![extension(0xfe0d, &[7; 90])], "name-hidden"),
        (vec![other], "name-hidden"),
        (vec![], "name-hidden"),
        (vec![server_name("93.184.216.34")], "name-mismatch"),
        (vec![two_names("api.example", "evil.example")], "invalid-request"),
        (vec![server_name("evil.example")], "name-mismatch"),
        (vec![server_name("api.example.evil.example")], "name-mismatch"),
        (vec![server_name("")], "name-mismatch"),
        (vec![server_name("api.example\0.evil")], "name-mismatch"),
        (vec![server_name("api.example"), server_name("evil.example")], "invalid-request"),
        (vec![extension(0, b"")], "invalid-request"),
    ] {
        let message = hello(&extensions);
        for size in [1, 3, 40, 16_384] {
            let bytes = records(&message, size);
            assert_eq!(reason(&admit(&name(), &bytes)), expected, "{extensions:?} by {size}");
            for end in 1..bytes.len() {
                assert_eq!(admit(&name(), &bytes[..end]), Admission::More, "{end} of {size}");
            }
        }
    }
}

#[test]
fn what_is_no_whole_handshake_is_refused() {
    let whole = records(&hello(&[server_name("api.example")]), 16_384);
    let mut long = whole.clone();
    long[6..9].copy_from_slice(&[1, 0, 0]);
    let mut not_hello = whole.clone();
    not_hello[5] = 2;
    let mut lying = whole;
    // The extension list claims to be shorter than the data that follows.
    lying[51] -= 1;
    let empty = [22, 3, 1, 0, 0].to_vec();
    let broken = [&records(&[1, 0, 0, 9, 9], 2)[..], &[23, 3, 3]].concat();
    for bytes in [long, not_hello, lying, empty, broken] {
        assert_eq!(reason(&admit(&name(), &bytes)), "invalid-request", "{bytes:?}");
    }
}

#[test]
fn a_connection_of_tls_begins_with_a_name() {
    let hello = records(&hello(&[server_name("evil.example")]), 16_384);
    let mut odd_version = records(&self::hello(&[server_name("api.example")]), 16_384);
    odd_version[1] = 2;
    let padding = self::hello(&[server_name("api.example"), extension(21, &[0; 40_000])]);
    let ssl2 = [&[0x80, 46, 1, 3, 1, 0, 3, 0, 0, 0, 32, 0, 0, 47][..], &[7; 34]].concat();
    for (bytes, expected) in [
        // After an alert that is only a warning, or another record, some servers go on.
        ([&[21, 3, 1, 0, 2, 1, 0][..], &hello].concat(), "name-hidden"),
        ([&[21, 0, 0, 0, 2, 1, 0][..], &hello].concat(), "name-hidden"),
        ([&[20, 3, 1, 0, 1, 1][..], &hello].concat(), "name-hidden"),
        ([&[23, 3, 3, 0, 0][..], &hello].concat(), "name-hidden"),
        (odd_version, "invalid-request"),
        (records(&padding, 16_384), "invalid-request"),
        (ssl2.clone(), "name-hidden"),
        ([&[0x80, 46, 1, 0, 2][..], &ssl2[5..]].concat(), "name-hidden"),
        // A length of other protocols.
        (vec![0x80, 46, 1, 7, 0], "forward"),
        (vec![21, 0x20, 0, 0], "forward"),
        (vec![0x80, 1, 0, 1], "forward"),
    ] {
        assert_eq!(reason(&admit(&name(), &bytes)), expected, "{:?}", &bytes[..5.min(bytes.len())]);
    }
    for start in [&[0x80][..], &[0x80, 46], &[0x80, 46, 1], &[21], &[22, 2]] {
        assert_eq!(admit(&name(), start), Admission::More, "{start:?}");
    }
}

#[test]
fn a_request_is_for_the_host_of_its_connection() {
    for (text, expected) in [
        ("GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", "forward"),
        ("GET / HTTP/1.1\r\nhOST:  API.example.:8080 \r\n\r\n", "forward"),
        ("GET / HTTP/1.0\r\n\r\n", "forward"),
        ("GET http://api.example/x HTTP/1.1\r\nHost: api.example\r\n\r\n", "forward"),
        ("OPTIONS * HTTP/1.1\r\nHost: api.example\r\n\r\n", "forward"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "name-mismatch"),
        ("GET / HTTP/1.1\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", "invalid-request"),
        ("\r\nGET / HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /\r\n", "invalid-request"),
        ("FROBNICATE /x\r\n", "invalid-request"),
        ("GET\t/\tHTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /\u{b}HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /\u{1c}HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET  / HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /# HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET /\u{e9} HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET * HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\nHost: api.example\n\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nX: a\rHost: api.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nX: a\0\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nTransfer_Encoding: x\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET / RTSP/1.0\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("SOURCE / ICE/1.0\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("EHLO me\r\nHost: evil.example\r\n\r\n", "invalid-request"),
        ("CONNECT api.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n", "name-mismatch"),
        ("FROBNICATE / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "name-mismatch"),
        ("GET / HTTP/1.1\r\nHost: api.example@evil.example\r\n\r\n", "name-mismatch"),
        ("GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n", "name-mismatch"),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n", "name-mismatch"),
        ("CONNECT evil.example:443 HTTP/1.1\r\nHost: api.example\r\n\r\n", "name-mismatch"),
        ("GET https://api.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nHost: api.example\r\nHost: evil.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nHost: api.example\r\n folded\r\n\r\n", "invalid-request"),
        ("GET / HTTP/1.1\r\nHost : evil.example\r\n\r\n", "invalid-request"),
        ("GET / http/1.1\r\nHost: evil.example\r\n\r\n", "invalid-request"),
        ("GET / HTTP/9.9 \r\nHost: evil.example\r\n\r\n", "invalid-request"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version-2"),
        ("", "more"),
        ("GE", "more"),
        ("GET / HTTP/1.1\r\nHost: evil", "more"),
    ] {
        assert_eq!(reason(&admit(&name(), text.as_bytes())), expected, "{text:?}");
    }
}

#[test]
fn a_body_has_one_length() {
    let admitted = |headers: &str, rest: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: api.example\r\n{headers}\r\n");
        admit(&name(), format!("{head}{rest}").as_bytes())
    };
    for (headers, rest) in [
        ("Content-Length: 3\r\n", "abc"),
        ("Content-Length: 003\r\n", "abc"),
        ("transfer-encoding: CHUNKED\r\n", "3\r\nabc\r\n0\r\n\r\n"),
        ("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"),
    ] {
        let Admission::Forward { bytes, body } = admitted(headers, &format!("{rest}GET / ")) else {
            panic!("{headers:?}")
        };
        assert!(bytes.ends_with(format!("\r\n\r\n{rest}").as_bytes()), "{headers:?}");
        assert!(body.is_complete(), "{headers:?}");
    }
    for headers in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Expect: 200-ok\r\n",
    ] {
        assert_eq!(reason(&admitted(headers, "0\r\n\r\n")), "invalid-request", "{headers:?}");
    }
    for chunks in ["3;x\r\nabc", "03\r\nabc", "3\nabc", "0x3\r\nabc", " 3\r\nabc"] {
        let admission = admitted("Transfer-Encoding: chunked\r\n", chunks);
        assert_eq!(reason(&admission), "invalid-request", "{chunks:?}");
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(reason(&admit(&name(), old)), "invalid-request");
}

#[test]
fn a_host_is_written_in_one_form() {
    for (request, forwarded) in [
        ("GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: api.example\r\n"),
        (
            "GET /?x HTTP/1.1\r\nA: b\r\nhOsT: \tAPI.example.:080\r\n\r\n",
            "GET /?x HTTP/1.1\r\nA: b\r\nhOsT: api.example:80\r\n",
        ),
        (
            "GET HTTP:\u{2f}/api.EXAMPLE:81?x HTTP/1.1\r\nHost: api.example\r\n\r\n",
            "GET /?x HTTP/1.1\r\nHost: api.example:81\r\n",
        ),
    ] {
        let text = text_of(admit(&name(), request.as_bytes()));
        assert_eq!(text, format!("{forwarded}Connection: close\r\n\r\n"), "{request:?}");
    }
}

#[test]
fn what_is_neither_passes_unchanged() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"*1\r\n$4\r\nPING\r\n",
        b"PING\r\n",
        b"EHLO me\r\n",
        b"get key\r\n",
        b"AMQP\0\0\x09\x01",
    ] {
        let Admission::Forward { bytes: forwarded, body } = admit(&name(), bytes) else {
            panic!("{bytes:?}")
        };
        assert_eq!(forwarded, bytes);
        assert!(matches!(body, Body::Other(_)), "{bytes:?}: {body:?}");
    }
    // A host that speaks first reads no request in text.
    for bytes in [&b"CONNECT {}\r\n"[..], b"GET /\r\n", b"EHLO", b"\x15\x03\x01"] {
        let expected = Admission::Forward { bytes: bytes.to_vec(), body: Body::Open };
        assert_eq!(super::admit(&name(), bytes, true), expected, "{bytes:?}");
        assert_ne!(admit(&name(), bytes), expected, "{bytes:?}");
    }
    let evil = b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(reason(&super::admit(&name(), evil, true)), "name-mismatch");
    for line in [vec![b'a'; MAX_BYTES], [&b"GET "[..], &vec![b'a'; MAX_BYTES]].concat()] {
        assert_eq!(reason(&admit(&name(), &line)), "invalid-request");
    }
}

#[test]
fn a_request_is_the_last_of_its_connection() {
    let request = "POST /a HTTP/1.1\r\nHost: api.example\r\nConnection: keep-alive, X-Own, Content-Length\r\n\
                   X-Own: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nAccept: */*\r\n\
                   Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let forwarded = "POST /a HTTP/1.1\r\nHost: api.example\r\nAccept: */*\r\nContent-Length: 3\r\n\
                     Connection: close\r\n\r\nabc";
    assert_eq!(
        admit(&name(), request.as_bytes()),
        Admission::Forward { bytes: forwarded.into(), body: Body::Bytes(0) }
    );
    let socket = "GET /ws HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\n\
                  Connection: Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n";
    assert_eq!(
        text_of(admit(&name(), socket.as_bytes())),
        "GET /ws HTTP/1.1\r\nHost: api.example\r\nSec-WebSocket-Key: k\r\nUpgrade: websocket\r\n\
         Connection: Upgrade, close\r\n\r\n"
    );
}

#[test]
fn an_authority_has_a_host_and_a_port() {
    for (text, host, port) in [
        ("a.example:443", "a.example", Some(443)),
        ("A.example.", "a.example", None),
        ("a.example:", "a.example", None),
        ("[2606:4700::1111]:853", "2606:4700::1111", Some(853)),
        ("[::ffff:1.2.3.4]", "1.2.3.4", None),
        ("1.2.3.4:1", "1.2.3.4", Some(1)),
    ] {
        let (read, at) = http::authority(text).unwrap();
        assert_eq!((read.to_string().as_str(), at), (host, port), "{text}");
    }
    for text in [
        "",
        ":1",
        "a:0",
        "a:65536",
        "a:+1",
        "a:1:2",
        "::1",
        "::1:80",
        "[::1",
        "[::1]x",
        "[a]:1",
        "user@a:1",
        "a%2e:1",
        "a/b:1",
        "0x7f.1:80",
        "[::1]]:80",
    ] {
        assert!(http::authority(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics_or_grows(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for prefix in [&b""[..], b"\x16\x03\x01", b"GET http://", b"\x16\x03\x01\0\x30\x01\0\0\x2c"] {
            let bytes = [prefix, &bytes].concat();
            if let Admission::Forward { bytes: forwarded, .. } = admit(&name(), &bytes) {
                prop_assert!(forwarded.len() <= bytes.len() + 300);
            }
        }
    }
}
