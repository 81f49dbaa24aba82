//! Two servers behind a balancer that knows nothing: each connection, or each request, reaches the next server.
//! What was made on one of them is used on the other one, through every interface.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::cluster::{Cluster, until};
use super::every_route::{E2B_TOKENS, routes};
use super::web_socket::{Message, WebSocket};
use super::{Address, Response, Server, key};
use crate::harness::World;
use crate::mcp::over_http;

/// What a balancer gives to the next server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Each connection.
    Connection,
    /// Each request: it makes the server close the connection after the response.
    Request,
}

/// A balancer in front of servers. It ends with the test.
pub(super) fn balancer(servers: &[Address], turn: Turn) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ports: Vec<_> = servers.iter().map(|server| server.port).collect();
    let next = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let port = ports[next.fetch_add(1, Ordering::Relaxed) % ports.len()];
            std::thread::spawn(move || relay(client, port, turn));
        }
    });
    Address { port }
}

/// Copies the bytes of a connection in both directions.
fn relay(mut client: TcpStream, port: u16, turn: Turn) -> Option<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    if turn == Turn::Request {
        server.write_all(&closing(&head_of(&mut client)?)).ok()?;
    }
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    let upload = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    upload.join().ok()
}

/// The bytes of a connection up to the end of the first head, and what came with it.
fn head_of(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = client.read(&mut part).ok().filter(|length| *length > 0)?;
        head.extend(&part[..length]);
    }
    Some(head)
}

/// The same head of a request after which the server closes the connection, unless it upgrades it.
fn closing(sent: &[u8]) -> Vec<u8> {
    let end = sent.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&sent[..end]).into_owned();
    let named = |line: &str, name: &str| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    if head.lines().any(|line| named(line, "upgrade:")) {
        return sent.to_vec();
    }
    let lines: Vec<_> = head.lines().filter(|line| !named(line, "connection:")).collect();
    let mut changed = format!("{}\r\nconnection: close", lines.join("\r\n")).into_bytes();
    changed.extend(&sent[end..]);
    changed
}

/// Two servers, and a key for what the user of both owns.
pub(super) struct Pair<'w> {
    cluster: Cluster<'w>,
    pub(super) a: Server,
    pub(super) b: Server,
    key: String,
}

impl<'w> Pair<'w> {
    pub(super) fn new(world: &'w World) -> Option<Self> {
        let cluster = Cluster::new(world)?;
        let (a, b) = (cluster.start("a", &[]), cluster.start("b", &[]));
        let key = format!("x-api-key: {}", key(world, &[]).0);
        Some(Self { cluster, a, b, key })
    }

    /// An operation of Stockade's own dialect.
    fn call(&self, server: Address, operation: &str, request: &Value) -> Response {
        let version = format!("stockade-version: {}", env!("CARGO_PKG_VERSION"));
        let line = format!("POST /stockade/v0/call/{operation}");
        let body = request.to_string();
        let headers = [self.key.as_str(), &version, "content-type: application/json"];
        server.request(&line, &headers, body.as_bytes())
    }

    #[track_caller]
    fn done(&self, server: Address, operation: &str, request: &Value) -> Value {
        let answer = self.call(server, operation, request);
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text());
        answer.value()
    }

    fn bare_key(&self) -> &str {
        self.key.split_once(": ").unwrap().1
    }
}

/// Volumes, workspaces, bundles, snapshots and runs are found from each server, lists are complete, and a sandbox
/// is created where its volume is.
fn what_one_server_has_is_used_on_the_other(world: &World) {
    let Some(pair) = Pair::new(world) else { return };
    let (a, b) = (*pair.a, *pair.b);
    pair.done(a, "create_volume", &json!({ "name": "data" }));
    pair.done(b, "create_volume", &json!({ "name": "other" }));
    pair.done(a, "create_workspace", &json!({ "name": "notes" }));
    // A bundle that a command has made without a server.
    world.review("echo changed > new");
    let bundle = world.bundles()[0]["id"].as_str().unwrap().to_owned();

    for server in [a, b] {
        let listed = pair.done(server, "volumes", &json!({}));
        let names: Vec<_> =
            listed["volumes"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["data", "other"], "{listed}");
        let listed = pair.done(server, "workspaces", &json!({}));
        assert_eq!(listed["workspaces"][0]["name"], "notes", "{listed}");
        let listed = pair.done(server, "bundles", &json!({}));
        assert_eq!(listed["bundles"][0]["id"], json!(bundle), "{listed}");
        pair.done(server, "show_bundle", &json!({ "id": &bundle[..8] }));
        pair.done(server, "show_bundle", &json!({ "id": "latest" }));
    }
    // The same volume, not another one on the other server.
    let again = pair.done(b, "create_volume", &json!({ "name": "data" }));
    assert_eq!(
        pair.done(a, "find_volume", &json!({ "name": "data" }))["createdAt"],
        again["createdAt"]
    );
    let write = json!({ "change": "writeFile", "path": "a.txt", "content": "text" });
    let stage = json!({ "name": "notes", "changes": [write] });
    pair.done(b, "change_workspace", &stage);
    pair.done(b, "commit_workspace", &json!({ "name": "notes", "message": "first" }));
    let read = pair.done(a, "read_workspace", &json!({ "name": "notes", "path": "a.txt" }));
    assert_eq!(read["content"], "text", "{read}");

    let with_volume = json!({ "id": "box", "volumes": [{ "name": "data", "inside": "/data" }] });
    pair.done(b, "create", &with_volume);
    let command = json!({ "sandboxId": "box", "command": "echo kept > /data/file" });
    let ran = pair.done(b, "execute", &command);
    assert_eq!(ran["exitCode"], 0, "{ran}");
    let two = json!({ "volumes": [
        { "name": "data", "inside": "/data" }, { "name": "other", "inside": "/other" }
    ] });
    let refused = pair.call(a, "create", &two);
    assert_eq!(refused.value()["error"]["code"], "UNSUPPORTED", "{}", refused.text());
    // Of two servers with a part each, none can synchronize them.
    pair.done(b, "create", &json!({ "id": "there" }));
    let sync = |id: &str| {
        let vfs = json!({ "workspace": "notes" });
        json!({ "sandboxId": id, "path": "/tmp/copy", "vfs": vfs })
    };
    let refused = pair.call(a, "sync_from_vfs", &sync("there"));
    assert_eq!(refused.value()["error"]["code"], "UNSUPPORTED", "{}", refused.text());
    pair.done(b, "create", &json!({ "id": "near", "workspaceId": "notes" }));
    let started = pair.done(b, "sync_from_vfs", &sync("near"));
    let ended = pair.done(a, "wait_operation", &started["workflowId"]);
    assert_eq!(ended["status"], "succeeded", "{ended}");

    pair.done(b, "snapshot", &json!({ "sandboxId": "near", "id": "kept" }));
    pair.done(b, "restore", &json!({ "snapshotId": "kept", "sandbox": { "id": "copy" } }));
    pair.done(b, "remove_snapshot", &json!("kept"));
    // The commands with the server of either data directory.
    let diff = pair.cluster.call("a", &["diff", &bundle[..8]]);
    assert!(diff.stdout.contains("+changed"), "{diff:?}");
    pair.done(b, "reject_bundle", &json!({ "id": bundle }));
    assert!(world.bundles().is_empty());
    for id in ["near", "copy", "there", "box"] {
        let other = if id == "there" { a } else { b };
        pair.done(other, "kill", &json!({ "id": id, "discard": true }));
    }
    pair.done(b, "remove_volume", &json!({ "name": "data" }));
    pair.done(b, "remove_workspace", &json!({ "name": "notes" }));
    let gone = pair.call(a, "find_volume", &json!({ "name": "data" }));
    assert_eq!(gone.value()["error"]["code"], "NOT_FOUND", "{}", gone.text());
}

/// Processes, terminals and sessions that one server has in memory are reached through the other one, with the
/// next request and over a WebSocket; and nobody else hands a request over.
fn state_in_memory_is_reached_through_any_server(world: &World) {
    let Some(pair) = Pair::new(world) else { return };
    let (a, b) = (*pair.a, *pair.b);
    let id = a.create(pair.bare_key());
    until("created", || {
        let found = b.request(&format!("GET /v1/sandboxes/{id}"), &[&pair.key], b"").value();
        found["status"]["state"] == json!("Running")
    });
    // A terminal.
    let token = b.token(pair.bare_key(), &id, 44772);
    let place = format!("/v1/sandboxes/{id}/proxy/44772");
    let created = b.json(&format!("POST {place}/pty"), &[&token], &json!({ "cwd": "/tmp" }));
    assert_eq!(created.status, 201, "{}", created.text());
    let pty = created.value()["session_id"].as_str().unwrap().to_owned();
    for server in [b, a, b] {
        let path = format!("{place}/pty/{pty}/ws?takeover=1");
        let mut socket = WebSocket::connect(server, &path, &[&token]).ok().unwrap();
        while !matches!(socket.receive(), Message::Text(text) if text["type"] == "connected") {}
        socket.send_binary(b"\0echo $((6*7))-done\n");
        socket.output_until("42-done");
    }
    let found = a.request(&format!("GET {place}/pty/{pty}"), &[&token], b"");
    assert_eq!(found.value()["running"], json!(true), "{}", found.text());
    let refused = b.request(&format!("GET {place}/pty/{pty}"), &["X-EXECD-ACCESS-TOKEN: x"], b"");
    assert_eq!(refused.status, 401);

    // A session of MCP, whose server is in its name.
    let session = over_http::open(a, &pair.key);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let accept = "accept: application/json, text/event-stream";
    for server in [b, a] {
        let listed = server.json("POST /mcp", &[&pair.key, &session, accept], &list);
        assert_eq!(listed.status, 200, "{}", listed.text());
        assert!(listed.text().contains("\"tools\""), "{}", listed.text());
    }
    let unknown = format!("{session}x");
    assert_eq!(b.json("POST /mcp", &[&pair.key, &unknown, accept], &list).status, 404);

    // A link to a port that one server has signed, opened on the other one.
    let listens = "import http.server as h; h.HTTPServer(('127.0.0.1', 3000), \
                   h.SimpleHTTPRequestHandler).serve_forever()";
    pair.cluster.call("b", &["exec", "-d", &id, "--", "python3", "-c", listens]).succeeds();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let line = format!("GET /v1/sandboxes/{id}/endpoints/3000?expires={}", now.as_secs() + 3600);
    let signed = b.request(&line, &[&pair.key], b"");
    assert_eq!(signed.status, 200, "{}", signed.text());
    let signed = signed.value();
    let path = signed["endpoint"].as_str().unwrap().split_once('/').unwrap().1.to_owned();
    for server in [a, b] {
        until("a port that answers", || {
            server.request(&format!("GET /{path}/"), &[], b"").status == 200
        });
    }

    // Nobody without the secret hands a request over: it would choose the address that limits see.
    for forged in ["x", "e30.00", ""] {
        let header = format!("stockade-handed-over: {forged}");
        let refused = b.request("GET /v1/sandboxes", &[&pair.key, &header], b"");
        assert_eq!(refused.status, 401, "{}", refused.text());
    }
}

/// Every route of the OpenAPI document that names something answers on the other server as on its own.
fn every_route_with_an_id_is_served_on_the_other_server(world: &World) {
    let Some(pair) = Pair::new(world) else { return };
    let (a, b) = (*pair.a, *pair.b);
    let mut wrong = Vec::new();
    let (mut tried, mut is_gone) = (0, false);
    let mut things = Things::new(&pair);
    for route in routes() {
        if !route.path.contains('{')
            || route.path.ends_with("/ws")
            || route.path.ends_with("/metrics/watch")
            || route.path == "/{path}"
            || route.path == "/stockade/v0/call/{operation}"
        {
            continue;
        }
        if is_gone {
            things.renew(&pair);
        }
        is_gone = route.method != "GET";
        let line = format!("{} {}", route.method, things.named(&route.path));
        let headers = things.headers(&pair, &route.path);
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        let there = b.json(&line, &headers, &route.body);
        let here = a.json(&line, &headers, &route.body);
        tried += 1;
        let is_lost = matches!(there.status, 401 | 404 | 500 | 502 | 503);
        if is_lost && there.status != here.status {
            wrong.push(format!(
                "{line}: {} {} and not {}",
                there.status,
                there.text(),
                here.status
            ));
        }
    }
    assert!(tried > 100, "{tried}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What was made on the first server.
#[derive(Default)]
struct Things {
    sandbox: String,
    names: Vec<(&'static str, String)>,
    /// How often they were made.
    made: u32,
    execd: String,
    egress: String,
    envd: String,
}

impl Things {
    fn new(pair: &Pair<'_>) -> Self {
        let mut things = Self::default();
        things.renew(pair);
        things
    }

    /// Makes again what the last request has ended.
    fn renew(&mut self, pair: &Pair<'_>) {
        let a = *pair.a;
        let line = format!("GET /sandboxes/{}", self.sandbox);
        let found = a.request(&line, &[&pair.key], b"");
        if found.status != 200 || found.value()["state"] != "running" {
            let request = json!({ "templateID": "base", "timeout": 600 });
            let created = a.json("POST /sandboxes", &[&pair.key], &request);
            assert_eq!(created.status, 201, "{}", created.text());
            let created = created.value();
            let text = |name: &str| created[name].as_str().unwrap().to_owned();
            self.sandbox = text("sandboxID");
            self.envd = format!("{}: {}", E2B_TOKENS[0], text("envdAccessToken"));
            self.execd = a.token(pair.bare_key(), &self.sandbox, 44772);
            self.egress = a.token(pair.bare_key(), &self.sandbox, 18080);
            self.names.clear();
        }
        let place = format!("/v1/sandboxes/{}/proxy/44772", self.sandbox);
        let made = |line: &str, headers: &[&str], body: &Value, name: &str| {
            let made = a.json(line, headers, body);
            assert!(made.status < 300, "{line}: {} {}", made.status, made.text());
            made.value()[name].as_str().unwrap().to_owned()
        };
        let pty = made(&format!("POST {place}/pty"), &[&self.execd], &json!({}), "session_id");
        let session =
            made(&format!("POST {place}/session"), &[&self.execd], &json!({}), "session_id");
        self.made += 1;
        let volume = json!({ "name": format!("v{}", self.made) });
        let volume = made("POST /volumes", &[&pair.key], &volume, "volumeID");
        let snapshot = format!("POST /v1/sandboxes/{}/snapshots", self.sandbox);
        let snapshot = made(&snapshot, &[&pair.key], &json!({}), "id");
        self.names = vec![
            ("{pty}", pty),
            ("{session}", session),
            ("{volume}", volume),
            ("{snapshot}", snapshot.clone()),
            ("{template}", snapshot),
            ("{uid}/{gid}", "1000/1000".to_owned()),
            ("{port}", "8000".to_owned()),
        ];
    }

    fn named(&self, path: &str) -> String {
        let snapshot = &self.names.iter().find(|(name, _)| *name == "{snapshot}").unwrap().1;
        let id = if path.starts_with("/v1/snapshots/") { snapshot } else { &self.sandbox };
        let path = path.replace("{id}", id);
        let mut path =
            self.names.iter().fold(path, |path, (name, value)| path.replace(name, value));
        while let Some((before, rest)) = path.split_once('{') {
            let (_, after) = rest.split_once('}').unwrap();
            path = format!("{before}x{after}");
        }
        path
    }

    fn headers(&self, pair: &Pair<'_>, path: &str) -> Vec<String> {
        if path.contains("/proxy/44772") {
            vec![self.execd.clone()]
        } else if path.contains("/proxy/18080") {
            vec![self.egress.clone()]
        } else if path.starts_with("/contexts/") {
            let of = |name: &str, value: &str| format!("{name}: {value}");
            vec![
                of("e2b-sandbox-id", &self.sandbox),
                of("e2b-sandbox-port", "49999"),
                self.envd.clone(),
            ]
        } else {
            vec![pair.key.clone()]
        }
    }
}

as_root_and_as_user!(
    what_one_server_has_is_used_on_the_other,
    state_in_memory_is_reached_through_any_server,
    every_route_with_an_id_is_served_on_the_other_server,
);
