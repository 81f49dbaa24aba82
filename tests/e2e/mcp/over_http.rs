//! The same tools over HTTP, for API keys.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::World;
use crate::served::{Address, Response, Server, key};

const ACCEPT: &str = "accept: application/json, text/event-stream";

/// Sends a message with more headers.
fn post(server: Address, headers: &[&str], message: &Value) -> Response {
    let mut all = vec![ACCEPT];
    all.extend(headers);
    server.json("POST /mcp", &all, message)
}

fn hello() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}})
}

/// The header with a key for what the user of the server owns.
fn own_key(world: &World) -> String {
    format!("x-api-key: {}", key(world, &[]).0)
}

/// Opens a session; returns its header.
pub(crate) fn open(server: Address, auth: &str) -> String {
    let opened = post(server, &[auth], &hello());
    assert_eq!(opened.status, 200, "{}", opened.text());
    let session = header(&opened, "mcp-session-id");
    let headers = [auth, &session];
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(server, &headers, &ready).status, 202);
    session
}

fn header(response: &Response, name: &str) -> String {
    let line = response.head.lines().find(|line| line.starts_with(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{}", response.head)).to_owned()
}

/// The result of a request in a stream of events.
#[track_caller]
fn result(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages =
        data.rev().filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
    let found = messages.find(|message| message.get("id").is_some());
    let message = found.unwrap_or_else(|| panic!("{text}"));
    message.get("result").unwrap_or(&message).clone()
}

pub(crate) fn call(server: Address, headers: &[&str], tool: &str, arguments: &Value) -> Value {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    result(&post(server, headers, &message))
}

fn owners_are_separate(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, theirs) = (key(world, &["--owner", "me"]).0, key(world, &["--owner", "them"]).0);
    let (mine, theirs) =
        (format!("authorization: Bearer {mine}"), format!("authorization: Bearer {theirs}"));
    let session = open(*server, &mine);
    let own = [mine.as_str(), session.as_str()];
    let created = call(*server, &own, "create", &json!({}));
    let id = created["structuredContent"]["sandbox"].as_str().unwrap().to_owned();
    let run = json!({"sandbox": id, "command": "echo hello > f; cat f"});
    let ran = call(*server, &own, "exec", &run);
    assert_eq!(ran["structuredContent"]["stdout"], "hello\n", "{ran}");
    let log = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read",
        "params": {"uri": ran["structuredContent"]["log"]}});
    assert!(result(&post(*server, &own, &log)).to_string().contains("hello"));

    // The session of another owner looks like none at all.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    let foreign = post(*server, &[&theirs, &session], &list);
    let unknown = post(*server, &[&theirs, "mcp-session-id: nothing"], &list);
    assert_eq!((foreign.status, unknown.status), (404, 404));
    assert_eq!(foreign.text(), unknown.text());
    for line in ["GET /mcp", "DELETE /mcp"] {
        let refused = server.request(line, &[&theirs, &session, ACCEPT], b"");
        assert_eq!(refused.status, 404, "{line}: {}", refused.text());
    }
    let their_session = open(*server, &theirs);
    let other = [theirs.as_str(), their_session.as_str()];
    for (tool, arguments) in [
        ("exec", json!({"sandbox": id, "command": "true"})),
        ("read", json!({"sandbox": id, "path": "f"})),
        ("write", json!({"sandbox": id, "path": "f", "content": ""})),
        ("patch", json!({"sandbox": id, "diff": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-hello\n+x\n"})),
        ("list", json!({"sandbox": id})),
        ("search", json!({"sandbox": id, "pattern": "*"})),
        ("ports", json!({"sandbox": id})),
        ("snapshot", json!({"sandbox": id})),
        ("collect", json!({"sandbox": id})),
        ("diff", json!({"sandbox": id})),
        ("kill", json!({"sandbox": id})),
    ] {
        let refused = call(*server, &other, tool, &arguments);
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("{tool} failed — NOT_FOUND")), "{refused}");
    }
    assert!(result(&post(*server, &other, &log)).get("error").is_some());
    let listed = call(*server, &other, "sandboxes", &json!({}));
    assert_eq!(listed["structuredContent"]["sandboxes"], json!([]));
    assert_eq!(call(*server, &own, "kill", &json!({"sandbox": id}))["isError"], json!(false));
    assert_eq!(server.request("DELETE /mcp", &[&mine, &session, ACCEPT], b"").status / 100, 2);
    assert_eq!(post(*server, &own, &list).status, 404, "the session has ended");
}

fn requests_are_authenticated(world: &World) {
    let server = Server::start(world, &[]);
    let (good, id) = key(world, &["--owner", "me"]);
    let good = format!("x-api-key: {good}");
    for bad in ["accept-language: en", "x-api-key: e2b_0000000000000000000000000000000000000000"] {
        let refused = post(*server, &[bad], &hello());
        assert_eq!(refused.status, 401, "{bad}: {}", refused.text());
        assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
    }
    for bad in ["origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site"] {
        assert_eq!(post(*server, &[&good, bad], &hello()).status, 403, "{bad}");
    }
    // A proxy in front could read the other one of two.
    let same = format!("origin: http://{}", server.host());
    for pair in [[same.as_str(), "origin: http://evil.example"], [&same, &same]] {
        let [one, two] = pair;
        for headers in [[good.as_str(), one, two], [&good, two, one]] {
            assert_eq!(post(*server, &headers, &hello()).status, 403, "{headers:?}");
        }
    }
    assert_eq!(post(*server, &[&good, &same], &hello()).status, 200);
    let host = server.raw(
        &format!("POST /mcp HTTP/1.1\r\nhost: evil.example\r\n{good}\r\nconnection: close\r\n\r\n"),
        b"",
    );
    assert_eq!(host.status, 403);
    let kind = server.request("POST /mcp", &[&good, ACCEPT, "content-type: text/plain"], b"{}");
    assert_eq!(kind.status, 415, "{}", kind.text());
    // The response may be lost, as the server closes the connection before it has read everything.
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = 17 << 20;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\n{good}\r\n{ACCEPT}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n",
        server.host()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(&vec![b' '; length]);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    let nonsense =
        server.request("POST /mcp", &[&good, ACCEPT, "content-type: application/json"], b"{");
    assert!((400..500).contains(&nonsense.status), "{}", nonsense.text());
    let session = open(*server, &good);
    let twice = post(*server, &[&good, &session, "mcp-session-id: x"], &hello());
    assert_eq!(twice.status, 400, "{}", twice.text());
    world.stockade(&["keys", "revoke", &id]).finish().succeeds();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    assert_eq!(post(*server, &[&good, &session], &list).status, 401);
}

fn decisions_are_the_users(world: &World) {
    let server = Server::start(world, &[]);
    let auth = own_key(world);
    let session = open(*server, &auth);
    let own = [auth.as_str(), session.as_str()];
    world.write("f", "one\n");
    world.stockade(&["run", "--", "sh", "-c", "echo two > f"]).finish().succeeds();
    let bundle = world.bundles()[0]["id"].clone();
    let refused = call(*server, &own, "apply", &json!({"bundle": bundle}));
    assert!(refused.to_string().contains("FORBIDDEN"), "{refused}");
    let project = world.project.to_str().unwrap();
    let refused = call(*server, &own, "create", &json!({"workspace": project}));
    assert!(refused.to_string().contains("FORBIDDEN"), "{refused}");
    assert_eq!(world.read("f"), "one\n");
}

/// The protocol of 2026 has no sessions: a question is a response, and its answer comes with the same
/// call again.
fn a_question_can_be_a_response(world: &World) {
    // The server says which projects an API key may change.
    let server = Server::start(world, &["--host-paths", world.project.to_str().unwrap()]);
    world.write("f", "one\n");
    world.stockade(&["run", "--", "sh", "-c", "echo two > f"]).finish().succeeds();
    let bundle = world.bundles()[0]["id"].clone();
    let version = "mcp-protocol-version: 2026-07-28";
    let auth = own_key(world);
    let send = |bundle: &Value, more: Value| {
        let mut params = json!({"name": "apply", "arguments": {"bundle": bundle}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers = [auth.as_str(), version, "mcp-method: tools/call", "mcp-name: apply"];
        let response = post(*server, &headers, &message);
        match response.head.contains("application/json") {
            true => response.value()["result"].clone(),
            false => result(&response),
        }
    };
    let asked = send(&bundle, json!({}));
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let state = asked["requestState"].clone();
    let yes = json!({"decision": {"action": "accept", "content": {"confirm": true}}});
    let forged = send(&bundle, json!({"requestState": "forged", "inputResponses": yes}));
    assert_eq!(forged["resultType"], "input_required", "{forged}");
    assert_eq!(world.read("f"), "one\n");
    let applied = send(&bundle, json!({"requestState": state, "inputResponses": yes}));
    assert_eq!(applied["structuredContent"]["applied"], json!(["f"]), "{applied}");
    assert_eq!(world.read("f"), "two\n");
    let again = send(&bundle, json!({"requestState": state, "inputResponses": yes}));
    assert!(again["structuredContent"].is_null(), "an answer is used once: {again}");
}

/// Sends a request and reads its response until this text.
fn read_until(server: Address, head: &str, body: &str, wanted: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    let host = server.host();
    let head = format!(
        "{head}\r\nhost: {host}\r\n{ACCEPT}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = Vec::new();
    let mut block = [0; 4096];
    while !String::from_utf8_lossy(&text).contains(wanted) {
        let read = stream.read(&mut block);
        let shown = String::from_utf8_lossy(&text);
        let length = read.unwrap_or_else(|error| panic!("{error} before {wanted:?}: {shown}"));
        assert!(length > 0, "it ends before {wanted:?}: {shown}");
        text.extend_from_slice(&block[..length]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Sessions of one owner at the same time: each receives what is about its own requests, and can end no
/// request of another one.
fn sessions_do_not_see_each_other(world: &World) {
    let server = Server::start(world, &[]);
    let auth = own_key(world);
    let (one, two) = (open(*server, &auth), open(*server, &auth));
    assert_ne!(one, two);
    let created = call(*server, &[&auth, &one], "create", &json!({}));
    let id = created["structuredContent"]["sandbox"].clone();
    let command =
        "echo of-the-first; while ! [ -e go ]; do sleep 0.1; done; echo done-by-the-first";
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": id, "command": command},
        "_meta": {"progressToken": "same"}}});
    let head = |session: &str| format!("POST /mcp HTTP/1.1\r\n{auth}\r\n{session}");
    let (address, of_one, text) = (*server, head(&one), request.to_string());
    let first =
        std::thread::spawn(move || read_until(address, &of_one, &text, "done-by-the-first"));
    // The other session listens, uses the same numbers, and cancels the request of that number.
    let listen = format!("GET /mcp HTTP/1.1\r\n{auth}\r\n{two}");
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let listen = format!("{listen}\r\nhost: {}\r\n{ACCEPT}\r\n\r\n", server.host());
    stream.write_all(listen.as_bytes()).unwrap();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "not mine"}});
    assert_eq!(post(*server, &[&auth, &two], &cancel).status, 202);
    let own = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": id, "command": "echo of-the-second"},
        "_meta": {"progressToken": "same"}}});
    let own = post(*server, &[&auth, &two], &own).text();
    assert!(own.contains("of-the-second") && !own.contains("of-the-first"), "{own}");
    let go = json!({"sandbox": id, "path": "go", "content": ""});
    assert_eq!(call(*server, &[&auth, &two], "write", &go)["isError"], json!(false));
    let first = first.join().unwrap();
    assert!(!first.contains("of-the-second"), "{first}");
    let mut heard = Vec::new();
    let mut block = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut block) {
        heard.extend_from_slice(&block[..length]);
    }
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    assert!(!heard.contains("of-the-first") && !heard.contains("by-the-first"), "{heard}");
    // The end of one session is not that of the other.
    assert!(server.request("DELETE /mcp", &[&auth, &two], b"").status < 300);
    assert_eq!(
        call(*server, &[&auth, &one], "ports", &json!({"sandbox": id}))["isError"],
        json!(false)
    );
}

fn a_stream_can_be_resumed(world: &World) {
    let server = Server::start(world, &[]);
    let auth = own_key(world);
    let session = open(*server, &auth);
    let created = call(*server, &[&auth, &session], "create", &json!({}));
    let id = created["structuredContent"]["sandbox"].clone();
    let command = "while ! [ -e go ]; do sleep 0.1; done; echo resumed";
    let message = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
        "params": {"name": "exec", "arguments": {"sandbox": id, "command": command}}});
    let head = format!("POST /mcp HTTP/1.1\r\n{auth}\r\n{session}");
    let begin = read_until(*server, &head, &message.to_string(), "\nid:");
    let event = begin.split("\nid:").nth(1).unwrap().lines().next().unwrap().trim().to_owned();
    let go = json!({"sandbox": id, "path": "go", "content": ""});
    assert_eq!(call(*server, &[&auth, &session], "write", &go)["isError"], json!(false));
    let head = format!("GET /mcp HTTP/1.1\r\n{auth}\r\n{session}\r\nlast-event-id: {event}");
    let rest = read_until(*server, &head, "", "resumed");
    assert!(rest.contains("\"id\":9"), "{rest}");
}

as_root_and_as_user![
    a_stream_can_be_resumed,
    owners_are_separate,
    sessions_do_not_see_each_other,
    requests_are_authenticated,
    decisions_are_the_users,
    a_question_can_be_a_response,
];
