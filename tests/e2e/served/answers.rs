//! Answers of a program inside that no server of HTTP gives: each is one answer for the client, whatever its
//! lengths and codings say, and the next request on the same connection is answered by the server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::{PATIENCE, Server, key};
use crate::harness::World;

/// Answers each path with the bytes of its query, as hexadecimal digits.
const PROGRAM: &str = r#"
import socket, threading, urllib.parse
listener = socket.create_server(("127.0.0.1", 3000))
def serve(client):
    head = b""
    while b"\r\n\r\n" not in head:
        more = client.recv(65536)
        if not more: return
        head += more
    line = head.split(b"\r\n")[0].decode()
    client.sendall(bytes.fromhex(line.split("?")[1].split(" ")[0]))
    client.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// What a program inside would like the client to take for an answer of the server.
const FALSE: &str = "HTTP/1.1 200 OK\r\nx-false: 1\r\ncontent-length: 5\r\n\r\nfalse";

/// An answer whose body is found to be none at once.
const BROKEN_BODY: &str = "a chunk of an odd size";

/// Sends two requests on one connection, and returns all that is answered.
fn exchange(server: &Server, token: &str, method: &str, path: &str) -> String {
    let host = server.host();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let both = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{token}\r\n\r\n\
         GET /version HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(both.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The heads of the answers, as a client reads them: by the lengths and codings that they state.
fn heads(method: &str, mut text: &str) -> Vec<String> {
    let mut heads = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        assert!(head.starts_with("HTTP/1.1 "), "no answer begins here: {text:?}");
        let lower = head.to_ascii_lowercase();
        let status = head[9..12].parse::<u16>().unwrap();
        let has_body =
            (method != "HEAD" || !heads.is_empty()) && !matches!(status, 100..200 | 204 | 304);
        let lengths: Vec<_> =
            lower.lines().filter_map(|line| line.strip_prefix("content-length:")).collect();
        assert!(lengths.len() <= 1, "{head}");
        let is_chunked = lower.contains("transfer-encoding: chunked");
        assert!(!is_chunked || lengths.is_empty(), "a length beside a coding: {head}");
        heads.push(head.to_owned());
        text = match (has_body, is_chunked, lengths.first()) {
            (false, ..) => rest,
            (true, true, _) => rest.split_once("0\r\n\r\n").map_or("", |(_, rest)| rest),
            (true, false, Some(length)) => {
                // One that is cut off ends the connection.
                let length: usize = length.trim().parse().unwrap();
                rest.get(length..).unwrap_or_default()
            }
            (true, false, None) => "",
        };
    }
    heads
}

fn a_program_inside_gives_one_answer(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let execd = server.token(&key, &id, 44772);
    let request = json!({ "argv": ["python3", "-c", PROGRAM], "background": true });
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    assert_eq!(server.json(&line, &[&execd], &request).status, 200);
    let token = server.token(&key, &id, 3000);
    let place = format!("/v1/sandboxes/{id}/proxy/3000/x");
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let ask = |method: &str, answer: &str| {
        exchange(&server, &token, method, &format!("{place}?{}", hex(answer)))
    };
    let plain = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    crate::daemons::wait_until("the program listens", || ask("GET", plain).contains("\r\n\r\nok"));

    let ok = "HTTP/1.1 200 OK\r\n";
    for (what, answer) in [
        ("more than its length", format!("{ok}content-length: 2\r\n\r\nok{FALSE}")),
        ("less than its length", format!("{ok}content-length: 5000\r\n\r\nok")),
        ("two lengths", format!("{ok}content-length: 2\r\ncontent-length: 99\r\n\r\nok{FALSE}")),
        ("a list of lengths", format!("{ok}content-length: 2, 99\r\n\r\nok{FALSE}")),
        ("a negative length", format!("{ok}content-length: -2\r\n\r\nok{FALSE}")),
        (
            "a coding beside a length",
            format!(
                "{ok}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{FALSE}"
            ),
        ),
        (
            "a length beside a longer coding",
            format!(
                "{ok}transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n{FALSE}"
            ),
        ),
        ("an unknown coding", format!("{ok}transfer-encoding: x\r\n\r\n{FALSE}")),
        (
            "chunked twice",
            format!("{ok}transfer-encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{FALSE}"),
        ),
        ("a chunk without an end", format!("{ok}transfer-encoding: chunked\r\n\r\nffff\r\nok")),
        (BROKEN_BODY, format!("{ok}transfer-encoding: chunked\r\n\r\n-1\r\nok\r\n0\r\n\r\n")),
        ("no body, with one", format!("HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\n{FALSE}")),
        (
            "not modified, with a body",
            format!("HTTP/1.1 304 No\r\ncontent-length: 9\r\n\r\n{FALSE}"),
        ),
        (
            "a length that is a hop's",
            format!("{ok}connection: content-length\r\ncontent-length: 2\r\n\r\nok"),
        ),
        (
            "another protocol",
            format!("HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n{FALSE}"),
        ),
        (
            "many interim answers",
            format!("{}{plain}", "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n".repeat(500)),
        ),
        ("a status of no kind", format!("HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n{FALSE}")),
        ("a folded header", format!("{ok}x-a: b\r\n content-length: 2\r\n\r\n{FALSE}")),
        ("a header with a line break", format!("{ok}x-a: b\rx-false: 1\r\n\r\n{FALSE}")),
        ("an old version", format!("HTTP/0.9 200 OK\r\n\r\n{FALSE}")),
        ("no answer", "nonsense\r\n\r\n".to_owned()),
    ] {
        for method in ["GET", "HEAD"] {
            let all = ask(method, &answer);
            let heads = heads(method, &all);
            // A body that breaks off may do so before its head was sent.
            let least = usize::from(what != BROKEN_BODY);
            assert!((least..=2).contains(&heads.len()), "{what} {method}: {all:?}");
            for head in &heads {
                assert!(!head.contains("x-false"), "{what} {method}: {all:?}");
            }
            // A connection that is not closed serves the next request itself.
            if let [_, second] = heads.as_slice() {
                assert!(second.starts_with("HTTP/1.1 200"), "{what} {method}: {all:?}");
                assert!(all.ends_with('}'), "{what} {method}: {all:?}");
            }
        }
        assert_eq!(server.request("GET /health", &[], b"").status, 200, "{what}");
    }
}

as_root_and_as_user!(a_program_inside_gives_one_answer);
