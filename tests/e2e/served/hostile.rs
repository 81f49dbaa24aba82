//! Requests that no client sends: smuggled, oversized and slow ones, malformed multipart, odd paths. Each is
//! refused, and the server serves the next one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{Address, PATIENCE, Response, Server, head, key};
use crate::harness::World;

/// Sends bytes, and returns the statuses of all responses until the server closes the connection. The
/// client closes its side, so that nothing waits for more.
fn statuses(address: Address, bytes: &[u8]) -> Vec<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", address.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses the head may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let heads = text.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].parse().unwrap()).collect()
}

#[track_caller]
fn is_healthy(server: &Server) {
    assert_eq!(server.request("GET /health", &[], b"").status, 200);
}

fn a_request_is_never_read_as_two(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let host = server.host();
    let smuggled = format!("GET /health HTTP/1.1\r\nhost: {host}\r\nx-smuggled: 1\r\n\r\n");
    let request = |headers: &str, body: &str| {
        format!(
            "POST /v1/sandboxes HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\n{headers}\r\n{body}"
        )
    };
    let length = smuggled.len();
    for (what, bytes) in [
        (
            "two lengths",
            request(&format!("content-length: 0\r\ncontent-length: {length}\r\n"), &smuggled),
        ),
        ("a list of lengths", request(&format!("content-length: 0, {length}\r\n"), &smuggled)),
        ("a signed length", request(&format!("content-length: +{length}\r\n"), &smuggled)),
        ("a negative length", request("content-length: -1\r\n", &smuggled)),
        ("an unknown coding", request("transfer-encoding: x\r\n", &smuggled)),
        (
            "a coding after chunked",
            request("transfer-encoding: chunked, identity\r\n", &format!("0\r\n\r\n{smuggled}")),
        ),
        ("a space before the colon", request("content-length : 5\r\n", &smuggled)),
        ("a folded header", request("x-a: b\r\n content-length: 5\r\n", &smuggled)),
        ("a control character", request("x-a: b\u{0}c\r\n", &smuggled)),
        ("a bare carriage return", request("x-a: b\rc\r\n", &smuggled)),
    ] {
        let found = statuses(server.address, bytes.as_bytes());
        assert!(found.iter().all(|status| *status != 200), "{what}: {found:?}");
        assert!(found.len() <= 1, "{what}: {found:?}");
        is_healthy(&server);
    }
    // A length beside a coding is what a proxy in front could read in the other way.
    let both = request(
        &format!("content-length: {}\r\ntransfer-encoding: chunked\r\n", 5 + length),
        &format!("0\r\n\r\n{smuggled}"),
    );
    let found = statuses(server.address, both.as_bytes());
    assert!(found.iter().all(|status| *status != 200), "a length beside a coding: {found:?}");
    assert!(found.len() <= 1, "a length beside a coding: {found:?}");
    let other = request(
        &format!("transfer-encoding: chunked\r\ncontent-length: {}\r\n", 5 + length),
        &format!("0\r\n\r\n{smuggled}"),
    );
    let found = statuses(server.address, other.as_bytes());
    assert!(found.iter().all(|status| *status != 200), "a coding beside a length: {found:?}");
    assert!(found.len() <= 1, "a coding beside a length: {found:?}");
    is_healthy(&server);
}

fn oversized_requests_are_refused(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let own = format!("x-api-key: {key}");
    let large = "a".repeat(200 << 10);
    let header = format!("x-large: {large}");
    assert_eq!(server.request("GET /health", &[&header], b"").status, 431);
    let many: Vec<_> = (0..500).map(|number| format!("x-{number}: 1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(server.request("GET /health", &many, b"").status, 431);
    let long = server.request(&format!("GET /{large}"), &[], b"");
    assert!(matches!(long.status, 414 | 431), "{}", long.status);
    // A body above the limit, also one that announces no length.
    let body = vec![b' '; (16 << 20) + 100];
    let all = [own.as_str(), "content-type: application/json"];
    let refused = server.request("POST /v1/sandboxes", &all, &body);
    assert!(matches!(refused.status, 400 | 413), "{}", refused.status);
    let deep = "[".repeat(100_000);
    let refused = server.request("POST /v1/sandboxes", &all, deep.as_bytes());
    assert_eq!(refused.status, 400, "{}", refused.text());
    is_healthy(&server);
}

fn slow_requests_do_not_block_others(world: &World) {
    let server = Server::start(world, &[]);
    let half = format!("GET /health HTTP/1.1\r\nhost: {}\r\nx-slow: ", server.host());
    let slow: Vec<_> = (0..256)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    is_healthy(&server);
    drop(slow);
    is_healthy(&server);
}

fn malformed_multipart_is_refused(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/files/upload");
    let part = |name: &str, content: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n{content}\r\n"
        )
    };
    let metadata = part("metadata", "{\"path\":\"/tmp/written\"}");
    let large = format!("{{\"path\":\"/tmp/{}\"}}", "x".repeat(128 << 10));
    let kind = "content-type: multipart/form-data; boundary=b";
    for (what, kind, body) in [
        ("no boundary", "content-type: multipart/form-data", metadata.clone()),
        ("another type", "content-type: application/json", "{}".to_owned()),
        (
            "a long boundary",
            &*format!("content-type: multipart/form-data; boundary={}", "b".repeat(10_000)),
            metadata.clone(),
        ),
        ("no content", kind, metadata.clone() + "--b--\r\n"),
        ("no end", kind, metadata.clone() + &part("file", "content")),
        ("a content first", kind, part("file", "content") + &metadata + "--b--\r\n"),
        ("two metadata", kind, metadata.clone() + &metadata + "--b--\r\n"),
        ("another part", kind, part("other", "x") + "--b--\r\n"),
        ("no JSON", kind, part("metadata", "path=/tmp/x") + &part("file", "x") + "--b--\r\n"),
        (
            "an unknown member",
            kind,
            part("metadata", "{\"path\":\"/tmp/x\",\"y\":1}") + &part("file", "x") + "--b--\r\n",
        ),
        ("large metadata", kind, part("metadata", &large) + &part("file", "x") + "--b--\r\n"),
        ("no header of a part", kind, "--b\r\n\r\nx\r\n--b--\r\n".to_owned()),
        ("no part", kind, "--b--\r\n".to_owned()),
        ("garbage", kind, "\u{0}\u{1}--b--b--b".to_owned()),
    ] {
        let refused = server.request(&line, &[&token, kind], body.as_bytes());
        assert!(
            (400..502).contains(&refused.status) && refused.status != 500,
            "{what}: {} {}",
            refused.status,
            refused.text()
        );
    }
    let good = metadata + &part("file", "content") + "--b--\r\n";
    assert_eq!(server.request(&line, &[&token, kind], good.as_bytes()).status, 200);
}

/// A file cannot be written through links that lead in a circle, or to a device: each is refused as a fault of
/// the request, and nothing waits for a reader of a pipe.
fn links_and_devices_are_not_written(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let place = format!("/v1/sandboxes/{id}/proxy/44772");
    let sh = |script: &str| {
        let line = format!("POST {place}/command");
        let ran = server.json(&line, &[&token], &serde_json::json!({ "command": script }));
        ran.text()
    };
    let made = sh("cd /tmp; ln -s loop loop; ln -s /tmp/b a; ln -s /tmp/a b; mkfifo pipe; \
                   ln -s /dev/full full; ln -s /dev/null null; mkdir directory; echo made");
    assert!(made.contains("made"), "{made}");
    let kind = "content-type: multipart/form-data; boundary=b";
    let long = format!("/tmp/{}", "x".repeat(300));
    for path in [
        "/tmp/loop",
        "/tmp/loop/x",
        "/tmp/a",
        "/tmp/a/x",
        "/dev/null",
        "/dev/full",
        "/dev/tty",
        "/dev/zero",
        "/tmp/full",
        "/tmp/null",
        "/tmp/directory",
        "/proc/1/mem",
        "/proc/self/mem",
        "/proc/self/attr/current",
        "/dev/null/x",
        "/dev/fd/1",
        &long,
    ] {
        let metadata = serde_json::json!({ "path": path });
        let body = format!(
            "--b\r\ncontent-disposition: form-data; name=\"metadata\"; filename=\"m\"\r\n\r\n{metadata}\r\n\
             --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\ncontent\r\n--b--\r\n"
        );
        let line = format!("POST {place}/files/upload");
        let refused = server.request(&line, &[&token, kind], body.as_bytes());
        assert!(
            (400..500).contains(&refused.status),
            "{path}: {} {}",
            refused.status,
            refused.text()
        );
        assert!(refused.value()["code"].is_string(), "{path}: {}", refused.text());
        let line = format!("GET {place}/files/download?path={path}");
        let read = server.request(&line, &[&token], b"");
        assert!(read.status < 500, "{path}: {} {}", read.status, read.text());
    }
    let seen = sh("stat -c %F /dev/null /dev/full /tmp/loop /tmp/a /tmp/pipe");
    assert!(seen.contains("character special file") && seen.contains("symbolic link"), "{seen}");
    is_healthy(&server);
}

fn odd_paths_lead_nowhere(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let id = server.create(&mine);
    let theirs = format!("x-api-key: {other}");
    for path in [
        "/v1/sandboxes/..",
        "/v1/sandboxes/%2e%2e",
        "/v1/../health",
        "/v1/sandboxes/%2e%2e/%2e%2e/health",
        "//v1/sandboxes",
        "/v1//sandboxes",
        "/v1/sandboxes//",
        "/V1/sandboxes",
        "/v1/sandboxes/%00",
        "/v1/sandboxes/%ff%fe",
        "/v1/sandboxes/a%2fb",
        "/v1/sandboxes/;",
        "/.git/config",
        "/etc/passwd",
        "/v1/sandboxes/{id}%00",
        "/v1/sandboxes/{id}/../{id}",
        "/v1/sandboxes/{id}%2fproxy%2f44772%2fping",
        "/v1/sandboxes/x/../{id}",
        "/v1/sandboxes/{id}/proxy/44772/../../../{id}",
        "/v1/sandboxes/{id}/proxy/0/",
        "/v1/sandboxes/{id}/proxy/65536/",
        "/v1/sandboxes/{id}/proxy/-1/",
        "/v1/sandboxes/{id}/proxy/044772/ping",
        "/v1/sandboxes/{id}/proxy/+44772/ping",
        "/v1/sandboxes/{id}/proxy/44772%2fping",
    ] {
        let path = path.replace("{id}", &id);
        for method in ["GET", "DELETE", "POST"] {
            let refused = server.request(&format!("{method} {path}"), &[&theirs], b"");
            assert!(
                (400..502).contains(&refused.status) && refused.status != 500,
                "{method} {path}: {} {}",
                refused.status,
                refused.text()
            );
        }
    }
    let host = server.host();
    for line in [
        "GET http://evil.example/health",
        "GET http://evil.example:80/v1/sandboxes",
        "CONNECT evil.example:80",
        "OPTIONS *",
        "TRACE /health",
        "GET health",
        "GET  /health",
        "get /health",
    ] {
        let sent = head(line, &host, &[], b"");
        let found = statuses(server.address, sent.as_bytes());
        assert!(found.iter().all(|status| *status >= 400), "{line}: {found:?}");
    }
    let found: Response =
        server.request(&format!("GET /v1/sandboxes/{id}"), &[&format!("x-api-key: {mine}")], b"");
    assert_eq!(found.status, 200, "{}", found.text());
}

as_root_and_as_user!(
    a_request_is_never_read_as_two,
    oversized_requests_are_refused,
    slow_requests_do_not_block_others,
    malformed_multipart_is_refused,
    links_and_devices_are_not_written,
    odd_paths_lead_nowhere
);
