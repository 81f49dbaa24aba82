//! An id that another owner uses again: nothing that opened the first sandbox opens the second one, and
//! nothing of the first one is found in it. A client that never stops sending sees the second one not even for
//! a moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::remote::{Client, url};
use super::{Address, Server, key};
use crate::harness::World;

/// The id of both sandboxes.
const ID: &str = "reused";
/// Where the interface for commands is.
const EXECD: &str = "/v1/sandboxes/reused/proxy/44772";
/// How often the sandbox changes its owner.
const ROUNDS: usize = 4;

/// What a request for a session, terminal, command or context of the first owner is answered.
#[track_caller]
fn are_unknown(server: Address, token: &str, paths: &[(&str, String)]) {
    for (method, path) in paths {
        let answer = server.json(&format!("{method} {EXECD}{path}"), &[token], &json!({}));
        assert!(matches!(answer.status, 400 | 404), "{method} {path}: {}", answer.text());
    }
}

fn an_id_of_another_owner_opens_nothing(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (theirs, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let other = Client::new(world, url(&server), &theirs);
    me.run(&["create", "--id", ID]).succeeds();
    let ports = [44772_u16, 18080, 3000];
    let tokens = ports.map(|port| server.token(&mine, ID, port));
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let line = format!("GET /v1/sandboxes/{ID}/endpoints/3000?expires={}", soon.as_secs() + 3600);
    let link = server.request(&line, &[&format!("x-api-key: {mine}")], b"").value();
    let link = link["endpoint"].as_str().unwrap().strip_prefix(&server.host()).unwrap().to_owned();
    let ask = |line: &str, body: &Value| {
        let (method, path) = line.split_once(' ').unwrap();
        let answer = server.json(&format!("{method} {EXECD}{path}"), &[&tokens[0]], body);
        assert!(answer.status < 300, "{line}: {}", answer.text());
        answer
    };
    let id = |line: &str, body: &Value, name: &str| {
        ask(line, body).value()[name].as_str().unwrap().to_owned()
    };
    let session = id("POST /session", &json!({ "cwd": "/tmp" }), "session_id");
    let pty = id("POST /pty", &json!({}), "session_id");
    let isolated = json!({ "workspace": { "path": "/tmp" } });
    let isolated = id("POST /v1/isolated/session", &isolated, "session_id");
    let started = ask("POST /command", &json!({ "command": "sleep 600", "background": true }));
    let command = started.events()[0]["text"].as_str().unwrap().to_owned();
    me.run(&["snapshot", ID, "--as", "of-me"]).succeeds();

    me.run(&["kill", ID]).succeeds();
    for (port, token) in ports.iter().zip(&tokens) {
        let line = format!("GET /v1/sandboxes/{ID}/proxy/{port}/ping");
        let refused = server.request(&line, &[token], b"").status;
        assert!(matches!(refused, 401 | 404 | 409 | 410), "{line}: {refused}");
    }
    let refused = server.request(&format!("GET {link}/"), &[], b"").status;
    assert!(matches!(refused, 401 | 404 | 409 | 410), "{link}: {refused}");

    other.run(&["create", "--id", ID]).succeeds();
    for (port, token) in ports.iter().zip(&tokens) {
        let line = format!("GET /v1/sandboxes/{ID}/proxy/{port}/ping");
        assert_eq!(server.request(&line, &[token], b"").status, 401, "{line}");
    }
    assert_eq!(server.request(&format!("GET {link}/"), &[], b"").status, 401);
    let theirs = server.token(&theirs, ID, 44772);
    are_unknown(
        *server,
        &theirs,
        &[
            ("DELETE", format!("/session/{session}")),
            ("GET", format!("/pty/{pty}")),
            ("DELETE", format!("/pty/{pty}")),
            ("GET", format!("/command/status/{command}")),
            ("GET", format!("/command/{command}/logs")),
            ("GET", format!("/v1/isolated/session/{isolated}")),
            ("GET", format!("/v1/isolated/session/{isolated}/diff")),
            ("POST", format!("/v1/isolated/session/{isolated}/commit")),
        ],
    );
    let sessions = format!("GET {EXECD}/v1/isolated/sessions");
    assert_eq!(server.request(&sessions, &[&theirs], b"").value()["sessions"], json!([]));
    let restored = other.run(&["restore", "of-me", "--json"]);
    assert_eq!(restored.json()["error"]["code"], "NOT_FOUND", "{restored}");
    // The events of the first one are not those of the second one.
    let events = other.run(&["events", ID]).succeeds().stdout.clone();
    assert!(!events.contains("\"me\"") && !events.contains(&command), "{events}");
}

fn no_request_falls_into_the_sandbox_of_another_owner(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (theirs, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let other = Client::new(world, url(&server), &theirs);
    let ends = AtomicBool::new(false);
    let address = *server;
    thread::scope(|scope| {
        let attackers: Vec<_> = (0..2)
            .map(|_| {
                let (mine, ends) = (&mine, &ends);
                scope.spawn(move || {
                    let key = format!("x-api-key: {mine}");
                    let mut count = 0;
                    while !ends.load(Ordering::Relaxed) {
                        let line = format!("GET /v1/sandboxes/{ID}/endpoints/44772");
                        let found = address.request(&line, &[&key], b"");
                        let headers = &found.value()["headers"];
                        let Some(token) = headers["X-EXECD-ACCESS-TOKEN"].as_str() else {
                            continue;
                        };
                        let token = format!("X-EXECD-ACCESS-TOKEN: {token}");
                        for _ in 0..3 {
                            let request = json!({ "command": "cat /tmp/secret; id" });
                            let line = format!("POST {EXECD}/command");
                            let seen = address.json(&line, &[&token], &request).text();
                            assert!(!seen.contains("of-the-other"), "{seen}");
                            count += 1;
                        }
                    }
                    count
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            me.run(&["create", "--id", ID]).succeeds();
            me.run(&["kill", ID]).succeeds();
            other.run(&["create", "--id", ID]).succeeds();
            let write = ["exec", ID, "--", "sh", "-c", "echo of-the-other > /tmp/secret"];
            other.run(&write).succeeds();
            other.run(&["kill", ID]).succeeds();
        }
        ends.store(true, Ordering::Relaxed);
        let sent: usize = attackers.into_iter().map(|attacker| attacker.join().unwrap()).sum();
        assert!(sent > 0, "no request was sent while the sandbox existed");
    });
}

as_root_and_as_user![
    an_id_of_another_owner_opens_nothing,
    no_request_falls_into_the_sandbox_of_another_owner,
];
