//! Attacks on what a server keeps beside sandboxes: requests that no client sends, and a server that attacks
//! its clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use super::remote::{Client, url};
use super::{Response, Server, key};
use crate::harness::World;

/// Sends an operation as a client of the server's own dialect does.
fn call(server: &Server, key: &str, operation: &str, request: &Value) -> Response {
    let key = format!("x-api-key: {key}");
    let version = format!("stockade-version: {}", env!("CARGO_PKG_VERSION"));
    let line = format!("POST /stockade/v0/call/{operation}");
    server.json(&line, &[&key, &version, "idempotency-key: hostile"], request)
}

/// Names that would be paths, options or other texts than names are refused as such, and nothing is made
/// or removed.
fn no_name_leads_out_of_the_store(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (admin, _) = key(world, &["--owner", "boss", "--admin"]);
    assert_eq!(call(&server, &mine, "volumes", &json!({})).value(), json!({"volumes": []}));
    let before = world.files_with(&world.data().join("volumes"), "");
    let long = "a".repeat(300);
    for name in
        ["..", "../../etc", "/etc", "a/../b", ".new-1", "", "a\0b", "-f", "A\u{1b}[31m", &long]
    {
        for operation in ["create_volume", "remove_volume"] {
            let refused = call(&server, &mine, operation, &json!({ "name": name }));
            assert_eq!(refused.status, 400, "{operation} {name:?}: {}", refused.text());
        }
    }
    for labels in [
        json!({"stockade.cache": "npm"}),
        json!({"stockade.project": "/"}),
        json!({"a": "x".repeat(40_000)}),
    ] {
        let request = json!({"name": "labelled", "labels": labels});
        let refused = call(&server, &mine, "create_volume", &request);
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    let member = json!({"name": "other", "owner": "boss", "mountpoint": "/etc"});
    assert_eq!(call(&server, &mine, "create_volume", &member).status, 400);
    assert_eq!(world.files_with(&world.data().join("volumes"), ""), before);

    for (operation, key) in [("pull_image", &mine), ("remove_image", &admin)] {
        for name in [
            "",
            "a\0b",
            "--force",
            "../../etc/passwd",
            "/etc",
            "dir:/etc",
            "a b",
            &"a/".repeat(90_000),
        ] {
            let refused = call(&server, key, operation, &json!({ "image": name }));
            let is_refused = matches!(refused.status, 400 | 404);
            assert!(is_refused, "{operation} {name:?}: {} {}", refused.status, refused.text());
            assert!(!refused.text().contains(world.data().to_str().unwrap()), "{}", refused.text());
        }
    }
    let platform = json!({"image": "debian:12", "platform": "linux/amd64 --max-size=1"});
    assert!(matches!(call(&server, &mine, "pull_image", &platform).status, 400 | 403));
    // Another owner's volume is as unknown as none, whatever asks for it.
    let (other, _) = key(world, &["--owner", "other"]);
    assert_eq!(call(&server, &mine, "create_volume", &json!({"name": "data"})).status, 200);
    let theirs = call(&server, &other, "remove_volume", &json!({"name": "data"}));
    let none = call(&server, &other, "remove_volume", &json!({"name": "none"}));
    assert_eq!((theirs.status, none.status), (404, 404));
    assert_eq!(theirs.text().replace("data", "none"), none.text());
    assert_eq!(call(&server, &other, "volumes", &json!({})).value(), json!({"volumes": []}));
    assert_eq!(call(&server, "", "volumes", &json!({})).status, 401);
}

/// A server that answers every operation with hidden characters.
fn hostile_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(stream));
        }
    });
    url
}

/// Clears a screen and sets the title of a terminal.
const CONTROL: &str = "\u{1b}[2J\u{1b}]0;false\u{7}";

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut operation, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(path) = line.strip_prefix("POST ") {
            let path = path.split(' ').next().unwrap();
            operation = path.rsplit('/').next().unwrap().to_owned();
        } else if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        } else if line == "\r\n" {
            break;
        }
    }
    let _ = reader.read_exact(&mut vec![0; length]);
    let text = |before: &str| format!("{before}{CONTROL}");
    let volume = |name: &str| {
        json!({
            "name": name, "labels": {"stockade.cache": text("npm"), text("a"): text("b")},
            "createdAt": "2026-01-01T00:00:00.000Z", "anonymous": true, "mountpoint": text("/m"),
            "sizeBytes": u64::MAX, "usedBy": [text("sandbox x")],
        })
    };
    let (status, body) = match operation.as_str() {
        "volumes" => (200, json!({"volumes": [volume("data")]})),
        "create_volume" => (200, volume("../../data")),
        "pull_image" => (
            200,
            json!({
                "reference": text("r"), "platform": text("p"), "digest": text("d"),
                "repositoryDigest": text("x"), "id": text("i"), "isNew": true,
            }),
        ),
        "remove_image" => (200, json!({"removed": [text("x")], "freedBytes": u64::MAX})),
        _ => {
            let error = json!({
                "code": "BUSY", "message": text("m"), "cause": text("c"),
                "remediation": text("r"), "retryable": false,
            });
            (409, json!({ "error": error }))
        }
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n");
    let rest = format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let _ = stream.write_all((head + &rest).as_bytes());
}

/// What a server answers is text for its client: it neither controls the terminal nor names a file.
fn a_server_does_not_control_its_client(world: &World) {
    let client = Client::new(world, hostile_server(), "e2b_0000");
    for (words, code) in [
        (&["volume", "ls"][..], 0),
        (&["volume", "ls", "--all"], 0),
        (&["volume", "ls", "-q"], 0),
        (&["volume", "inspect", "data"], 0),
        (&["volume", "create", "data"], 1),
        (&["volume", "rm", "data"], 1),
        (&["volume", "prune", "--all", "--force"], 0),
        (&["cache", "ls", "--all"], 0),
        (&["cache", "rm", "data"], 1),
        (&["image", "pull", "debian:12"], 0),
        (&["image", "pull", "debian:12", "--json"], 0),
        (&["image", "rm", "debian:12", "debian:11"], 0),
    ] {
        let outcome = client.run(words);
        assert_eq!(outcome.code() == 0, code == 0, "{words:?}: {outcome}");
        let all = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!all.contains(['\u{1b}', '\u{7}']), "{words:?}: {outcome}");
    }
    client.nothing_happened_here();
}

/// A key that is revoked while a client is at work opens nothing from then on, and what it has made stays its
/// owner's.
fn a_revoked_key_ends_in_the_middle(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, id) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    me.run(&["volume", "create", "data"]).succeeds();
    world.stockade(&["keys", "revoke", &id]).finish().succeeds();
    for words in [
        &["volume", "ls", "--json"][..],
        &["volume", "rm", "data", "--json"],
        &["cache", "ls", "--json"],
        &["image", "pull", "debian:12", "--json"],
        &["image", "rm", "debian:12", "--json"],
    ] {
        let refused = me.run(words);
        assert!(refused.stdout.contains("UNAUTHENTICATED"), "{words:?}: {refused}");
    }
    let (again, _) = key(world, &["--owner", "me"]);
    let again = Client::new(world, url(&server), &again);
    assert_eq!(again.run(&["volume", "ls", "-q"]).succeeds().stdout, "data\n");
}

as_root_and_as_user![
    no_name_leads_out_of_the_store,
    a_server_does_not_control_its_client,
    a_revoked_key_ends_in_the_middle,
];
