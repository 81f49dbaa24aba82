//! A server that is killed in the middle of what it does: the next one has nothing half, and nothing is
//! left.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Address, Response, Server, key};
use crate::harness::World;
use crate::registry::interrupted::{SlowRegistry, large};

/// How long a test waits for something to begin.
const DEADLINE: Duration = Duration::from_secs(60);

fn kill(server: Server) {
    server.running.signal(Signal::KILL);
    server.running.finish();
}

/// Sends a request whose response may never come.
fn send(address: Address, line: &str, headers: &[&str], body: &Value) -> std::net::TcpStream {
    use std::io::Write as _;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut head = format!("{line} HTTP/1.1\r\nhost: {}\r\n", address.host());
    for header in headers {
        head += &format!("{header}\r\n");
    }
    head += "content-type: application/json\r\n";
    head += &format!("content-length: {}\r\n\r\n{body}", body.len());
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", address.port)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_there() {
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn downloads(world: &World) -> usize {
    std::fs::read_dir(world.data().join("downloads")).into_iter().flatten().count()
}

/// The download itself is a process of its own, which continues.
fn in_the_middle_of_a_pull(world: &World) {
    let registry = SlowRegistry::start(&large(world));
    let settings = [("STOCKADE_REGISTRIES", registry.host.as_str())];
    let start = || Server::start_with(world, &[], &settings);
    let server = start();
    let (key, _) = key(world, &["--owner", "me"]);
    let key = format!("x-api-key: {key}");
    let name = format!("{}/team/large:1", registry.host);
    let request = json!({ "image": { "uri": name }, "timeout": 600, "entrypoint": [] });
    let waiting = send(*server, "POST /v1/sandboxes", &[&key], &request);
    until("download", || downloads(world) > 0);
    kill(server);
    drop(waiting);
    let server = start();
    let all = server.request("GET /v1/sandboxes", &[&key], b"").value();
    assert_eq!(all["pagination"]["totalItems"], 0, "{all}");
    registry.release();
    let pulled = world.stockade(&["image", "pull", &name]).finish();
    pulled.succeeds();
    let listed = world.stockade(&["image", "ls", "--json"]).finish().json();
    assert_eq!(listed["images"].as_array().unwrap().len(), 1, "{listed}");
    until("end of downloads", || downloads(world) == 0);
}

struct Isolated<'a> {
    server: &'a Server,
    token: String,
    place: String,
}

impl<'a> Isolated<'a> {
    fn new(server: &'a Server, key: &str, id: &str) -> Self {
        let token = server.token(key, id, 44772);
        Self { server, token, place: format!("/v1/sandboxes/{id}/proxy/44772") }
    }

    fn ask(&self, line: &str, body: &Value) -> Response {
        let (method, path) = line.split_once(' ').unwrap();
        self.server.json(&format!("{method} {}{path}", self.place), &[&self.token], body)
    }

    fn sh(&self, script: &str) -> String {
        let ran = self.ask("POST /command", &json!({ "command": script }));
        let events = ran.events();
        let lines = events.iter().filter(|event| event["type"] == "stdout");
        lines.map(|event| event["text"].as_str().unwrap().to_owned() + "\n").collect()
    }
}

fn in_the_middle_of_a_commit(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let first = Isolated::new(&server, &key, &id);
    first.sh("mkdir /job; cd /job; echo old > changed; mkdir kind; echo x > kind/x; echo y > gone");
    let request = json!({ "workspace": { "path": "/job" } });
    let created = first.ask("POST /v1/isolated/session", &request);
    assert_eq!(created.status, 201, "{}", created.text());
    let session = created.value()["session_id"].as_str().unwrap().to_owned();
    let one = format!("/v1/isolated/session/{session}");
    let code = "cd /job; echo new > changed; rm -r kind gone; echo file > kind; \
        for i in $(seq 300); do echo $i > new-$i; done; mkdir z; echo z > z/z; ln -s z link";
    let ran = first.ask(&format!("POST {one}/run"), &json!({ "code": code }));
    assert_eq!(ran.status, 200, "{}", ran.text());
    let line = format!("POST {}{one}/commit", first.place);
    let waiting = send(*server, &line, &[&first.token], &Value::Null);
    until("begin of the commit", || !first.sh("ls /job | grep new- | head -n 1").is_empty());
    kill(server);
    drop(waiting);

    let server = Server::start(world, &[]);
    let second = Isolated::new(&server, &key, &id);
    let half: usize = second.sh("ls /job | grep -c new-").trim().parse().unwrap();
    assert!(half > 0 && half < 300, "{half}: the server was not killed in the middle");
    // Somebody changes another file than those of the session: a repeated commit leaves it.
    second.sh("echo mine > /job/other");
    let committed = second.ask(&format!("POST {one}/commit"), &Value::Null);
    assert_eq!(committed.status, 200, "{}", committed.text());
    let seen =
        "cd /job; ls | grep -c new-; cat changed kind z/z other new-300; ls gone; readlink link";
    assert_eq!(second.sh(seen), "300\nnew\nfile\nz\nmine\n300\nz\n");
    let nothing = second.ask(&format!("POST {one}/commit"), &Value::Null).value();
    assert_eq!((&nothing["changed"], &nothing["removed"]), (&json!(0), &json!(0)), "{nothing}");
    // A file that somebody has changed in what was committed half is still a conflict.
    let ran = second.ask(&format!("POST {one}/run"), &json!({ "code": "echo a > /job/changed" }));
    assert_eq!(ran.status, 200, "{}", ran.text());
    second.sh("echo b > /job/changed");
    assert_eq!(second.ask(&format!("POST {one}/commit"), &Value::Null).status, 409);
    second.sh("echo a > /job/changed");
    assert_eq!(second.ask(&format!("POST {one}/commit"), &Value::Null).status, 200);
    assert_eq!(second.ask(&format!("DELETE {one}"), &Value::Null).status, 200);
    nothing_is_left(world, &server, &key, &id);
}

/// The same at the beginning of a session: the snapshot for it is removed by the next one.
fn in_the_middle_of_a_new_session(world: &World) {
    let mut server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    // Something to copy.
    Isolated::new(&server, &key, &id)
        .sh("mkdir /job; for i in $(seq 500); do echo $i > /job/$i; done");
    let request = json!({ "workspace": { "path": "/job" } });
    for pause in [1, 3, 6, 10, 15, 25, 40] {
        let isolated = Isolated::new(&server, &key, &id);
        let line = format!("POST {}/v1/isolated/session", isolated.place);
        let waiting = send(*server, &line, &[&isolated.token], &request);
        std::thread::sleep(Duration::from_millis(pause));
        kill(server);
        drop(waiting);
        server = Server::start(world, &[]);
    }
    let isolated = Isolated::new(&server, &key, &id);
    // What the last server had begun may be completed first.
    until("removal of the snapshots", || {
        let created = isolated.ask("POST /v1/isolated/session", &request);
        assert_eq!(created.status, 201, "{}", created.text());
        let snapshots = server.request("GET /v1/snapshots", &[&format!("x-api-key: {key}")], b"");
        snapshots.value()["items"] == json!([])
    });
    nothing_is_left(world, &server, &key, &id);
}

/// Ends the sandbox: neither a sandbox of a session nor a snapshot nor a process is left.
fn nothing_is_left(world: &World, server: &Server, key: &str, id: &str) {
    let key = format!("x-api-key: {key}");
    let ended = server.request(&format!("DELETE /v1/sandboxes/{id}"), &[&key], b"");
    assert_eq!(ended.status, 204, "{}", ended.text());
    let all = server.request("GET /v1/sandboxes?state=Running", &[&key], b"").value();
    assert_eq!(all["items"], json!([]), "{all}");
    let snapshots = server.request("GET /v1/snapshots", &[&key], b"").value();
    assert_eq!(snapshots["items"], json!([]), "{snapshots}");
    let runtime = world.data().join("runtime");
    until("removal of the files", || {
        let all = crate::host::Tree::of(&runtime).entries;
        !all.keys().any(|path| path.to_string_lossy().contains("isolated-"))
    });
}

/// The session ends with its server; the command continues, and another session finds its sandbox.
fn in_the_middle_of_a_session_of_mcp(world: &World) {
    const ACCEPT: &str = "accept: application/json, text/event-stream";
    let (server, key) = (Server::start(world, &[]), key(world, &["--owner", "me"]).0);
    let auth = format!("x-api-key: {key}");
    let open = |server: &Server| {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        let opened = server.json("POST /mcp", &[ACCEPT, &auth], &hello);
        assert_eq!(opened.status, 200, "{}", opened.text());
        let line = opened.head.lines().find(|line| line.starts_with("mcp-session-id:"));
        let session = line.unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(server.json("POST /mcp", &[ACCEPT, &auth, &session], &ready).status, 202);
        session
    };
    let message = |tool: &str, arguments: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments}})
    };
    let session = open(&server);
    let headers = [ACCEPT, &auth, &session];
    let created = server.json("POST /mcp", &headers, &message("create", json!({})));
    let text = created.text();
    let (_, rest) = text.split_once("\"sandbox\":\"").unwrap_or_else(|| panic!("{text}"));
    let id = rest.split('"').next().unwrap().to_owned();
    let script = "touch /tmp/begun; while [ ! -e /tmp/end ]; do sleep 0.1; done; touch /tmp/done";
    let run = message("exec", json!({ "sandbox": id, "command": script }));
    let waiting = send(*server, "POST /mcp", &headers, &run);
    let exec = |server: &Server, script: &str| {
        let isolated = Isolated::new(server, &key, &id);
        isolated.sh(script)
    };
    until("command", || exec(&server, "ls /tmp/begun") == "/tmp/begun\n");
    kill(server);
    drop(waiting);

    let server = Server::start(world, &[]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    // The protocol wants a new session then.
    assert_eq!(server.json("POST /mcp", &[ACCEPT, &auth, &session], &list).status, 404);
    let session = open(&server);
    let headers = [ACCEPT, &auth, &session];
    let seen = server.json("POST /mcp", &headers, &message("sandboxes", json!({})));
    assert!(seen.text().contains(&id), "{}", seen.text());
    exec(&server, "touch /tmp/end");
    until("end of the command", || exec(&server, "ls /tmp/done 2>/dev/null") == "/tmp/done\n");
    let killed = message("kill", json!({ "sandbox": id }));
    assert_eq!(server.json("POST /mcp", &headers, &killed).status, 200);
    let all = server.request("GET /v1/sandboxes?state=Running", &[&auth], b"").value();
    assert_eq!(all["items"], json!([]), "{all}");
}

/// A client that follows the events loses none, and sees none twice.
fn in_the_middle_of_a_stream_of_events(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let listen = format!("127.0.0.1:{}", server.port);
    let url = format!("http://localhost:{}", server.port);
    let client = |words: &[&str]| {
        let all: Vec<_> = ["--server", &url].into_iter().chain(words.iter().copied()).collect();
        let data = world.path("elsewhere");
        world.stockade(&all).env("STOCKADE_API_KEY", &key).env("STOCKADE_DATA_DIR", data)
    };
    client(&["create", "--id", "box"]).finish().succeeds();
    let mut following = client(&["events", "box", "--follow", "--json"]).start();
    client(&["exec", "box", "--", "true"]).finish().succeeds();
    following.wait_for_output("COMMAND_COMPLETED");
    let script = "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 4";
    client(&["exec", "--detach", "box", "--", "sh", "-c", script]).finish().succeeds();
    kill(server);
    let server = Server::start_at(world, &listen, &[]);
    client(&["exec", "box", "--", "touch", "/tmp/end"]).finish().succeeds();
    // The command has survived, and its end is an event.
    following.wait_for_output("\"exitCode\":4");
    client(&["kill", "box"]).finish().succeeds();
    // The client has found the next server by itself.
    following.wait_for_output("SANDBOX_KILLED");
    let listed = client(&["events", "box", "--json"]).finish();
    let numbers = |text: &str| -> Vec<u64> {
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| event["seq"].as_u64().unwrap()).collect()
    };
    let all = numbers(&listed.succeeds().stdout);
    let mut sorted = all.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(all, sorted, "an event came twice or out of order: {listed}");
    following.signal(Signal::INT);
    let followed = following.finish();
    let seen = numbers(&followed.stdout);
    assert_eq!(seen, all, "{followed}");
    let of_kind = |kind: &str| listed.stdout.matches(&format!("\"type\":\"{kind}\"")).count();
    let counts = ["SANDBOX_CREATED", "COMMAND_COMPLETED", "SANDBOX_KILLED"].map(of_kind);
    assert_eq!(counts, [1, 3, 1], "{listed}");
    drop(server);
}

as_root_and_as_user!(
    in_the_middle_of_a_pull,
    in_the_middle_of_a_commit,
    in_the_middle_of_a_new_session,
    in_the_middle_of_a_session_of_mcp,
    in_the_middle_of_a_stream_of_events,
);
