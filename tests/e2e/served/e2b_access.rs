//! The tokens of E2B: each is for one sandbox, and every route requires one.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::every_route::{E2B_TOKENS, assert_unauthenticated, routes};
use super::{Response, Server, head, key};
use crate::harness::World;

/// The ports on which the tokens are sent.
const ENVD: u16 = 49983;
const INTERPRETER: u16 = 49999;

/// A sandbox, and what its owner received for it.
struct Created {
    id: String,
    envd: String,
    traffic: String,
}

impl Created {
    fn header(&self, scheme: &str) -> String {
        let value = if scheme == E2B_TOKENS[0] { &self.envd } else { &self.traffic };
        format!("{scheme}: {value}")
    }
}

fn credentials(response: &Response) -> Created {
    let value = response.value();
    let text = |name: &str| value[name].as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    Created {
        id: text("sandboxID"),
        envd: text("envdAccessToken"),
        traffic: text("trafficAccessToken"),
    }
}

fn create(server: &Server, key: &str) -> Created {
    let key = format!("X-API-KEY: {key}");
    let request = json!({ "templateID": "base", "timeout": 600, "allow_internet_access": false });
    let created = server.json("POST /v2/sandboxes", &[&key], &request);
    assert_eq!(created.status, 201, "{}", created.text());
    credentials(&created)
}

/// The headers that address a sandbox.
fn address(id: &str, port: u16) -> [String; 2] {
    [format!("E2b-Sandbox-Id: {id}"), format!("E2b-Sandbox-Port: {port}")]
}

fn port_of(scheme: &str) -> u16 {
    if scheme == E2B_TOKENS[0] { ENVD } else { INTERPRETER }
}

/// A call of the Connect protocol.
fn call(server: &Server, of: (&str, &str), method: &str, message: &Value) -> Response {
    let (id, token) = of;
    let [id, port] = address(id, ENVD);
    let token = format!("X-Access-Token: {token}");
    server.json(&format!("POST /{method}"), &[&id, &port, &token], message)
}

fn a_token_opens_one_sandbox(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let (revoked, revoked_id) = key(world, &["--owner", "me"]);
    let own = create(&server, &mine);
    let elsewhere = create(&server, &mine);
    let of_other = create(&server, &other);
    let dead = create(&server, &mine);
    let connect = json!({ "timeout": 60 });
    let line = format!("POST /v2/sandboxes/{}/connect", own.id);
    let of_revoked = server.json(&line, &[&format!("X-API-KEY: {revoked}")], &connect);
    let of_revoked = credentials(&of_revoked);
    assert_ne!(of_revoked.envd, own.envd);
    let by_other = server.json(&line, &[&format!("X-API-KEY: {other}")], &connect);
    assert_eq!(by_other.status, 404, "{}", by_other.text());
    world.stockade(&["keys", "revoke", &revoked_id]).finish().succeeds();
    let kill = format!("DELETE /sandboxes/{}", dead.id);
    assert_eq!(server.request(&kill, &[&format!("X-API-KEY: {mine}")], b"").status, 204);
    let execd = server.token(&mine, &own.id, 44772);
    let execd = execd.split_once(": ").unwrap().1;
    // A program inside may listen on the same port.
    let of_port = |port: u16| server.token(&mine, &own.id, port);
    let of_ports = [of_port(ENVD), of_port(INTERPRETER)];
    let of_ports = of_ports.each_ref().map(|header| header.split_once(": ").unwrap().1);

    let mut tried = 0;
    for route in routes() {
        let Some(scheme) = route.security.as_deref().filter(|name| E2B_TOKENS.contains(name))
        else {
            continue;
        };
        tried += 1;
        let line = route.line(&own.id);
        let port = port_of(scheme);
        let [id_header, port_header] = address(&own.id, port);
        let attempt = |headers: &[&str], who: &str| {
            let mut all = vec![id_header.as_str(), port_header.as_str()];
            all.extend(headers);
            assert_unauthenticated(&server.json(&line, &all, &route.body), &route, who);
        };
        let key = format!("X-API-KEY: {mine}");
        let basic = "Authorization: Basic cm9vdDo=";
        attempt(&[], "no token");
        attempt(&[&key, basic], "an API key");
        let crossed = if scheme == E2B_TOKENS[0] { &own.traffic } else { &own.envd };
        for (who, value) in [
            ("an empty token", ""),
            ("an API key as a token", &mine),
            ("the token of another sandbox", elsewhere.header(scheme).split_once(": ").unwrap().1),
            ("the token of another owner", of_other.header(scheme).split_once(": ").unwrap().1),
            ("the token of a revoked key", of_revoked.header(scheme).split_once(": ").unwrap().1),
            ("the token for other ports", crossed),
            ("the token of OpenSandbox", execd),
            ("the token for a program on the port", of_ports[0]),
            ("the token for a program on the port", of_ports[1]),
            ("the token of nobody", &format!("local.{}", "0".repeat(64))),
        ] {
            let header = format!("{scheme}: {value}");
            attempt(&[&header], who);
            attempt(&[&header, &key], who);
        }
        let good = own.header(scheme);
        // The sandbox of a request is named once, and is that of the token.
        let again = format!("E2b-Sandbox-Id: {}", elsewhere.id);
        attempt(&[&good, &again], "two sandboxes");
        attempt(&[&good, &good], "two tokens");
        let [other_id, other_port] = address(&of_other.id, port);
        let answer = server.json(&line, &[&other_id, &other_port, &good], &route.body);
        assert_unauthenticated(&answer, &route, "the token at another sandbox");
        // A token names its sandbox; that for ports does so only at a port.
        let unnamed = server.json(&line, &[&good], &route.body);
        if scheme == E2B_TOKENS[0] {
            assert_ne!(unnamed.status, 401, "{route:?}: {}", unnamed.text());
        } else {
            assert_unauthenticated(&unnamed, &route, "no sandbox");
        }
        let wrong = format!("{scheme}: {}0", own.header(scheme).split_once(": ").unwrap().1);
        assert_unauthenticated(&server.json(&line, &[&wrong], &route.body), &route, "no sandbox");
        let [dead_id, dead_port] = address(&dead.id, port);
        let answer = server.json(&line, &[&dead_id, &dead_port, &dead.header(scheme)], &route.body);
        assert!(matches!(answer.status, 401 | 502), "{route:?}: {}", answer.text());
    }
    assert!(tried > 20, "{tried} routes");
    // Nothing has changed for the owner.
    let listed = call(&server, (&own.id, &own.envd), "process.Process/List", &json!({}));
    assert_eq!(listed.status, 200, "{}", listed.text());
    assert_eq!(listed.value(), json!({ "processes": [] }));
}

as_root_and_as_user!(a_token_opens_one_sandbox);

/// The id of a new sandbox with this network.
fn create_with(server: &Server, key: &str, network: &Value) -> String {
    let request = json!({ "templateID": "base", "timeout": 600, "network": network });
    let created = server.json("POST /v2/sandboxes", &[key], &request);
    assert_eq!(created.status, 201, "{}", created.text());
    credentials(&created).id
}

/// Only the ports of a sandbox that was created so, only those of its programs, and only as long as the key of
/// its owner is valid.
#[test]
fn ports_are_public_on_request() {
    let world = World::new(crate::harness::Identity::User);
    let mut server = Server::start(&world, &[]);
    let (key, key_id) = key(&world, &[]);
    let header = format!("X-API-KEY: {key}");
    let create = |network| create_with(&server, &header, &network);
    let open = create(json!({ "allowPublicTraffic": true, "denyOut": ["0.0.0.0/0"] }));
    let closed = create(json!({ "denyOut": ["0.0.0.0/0"] }));
    for id in [&open, &closed] {
        let serve = "echo here > index.html; exec python3 -m http.server 8000";
        let words = ["exec", "--detach", "--cwd", "/tmp", id, "--", "sh", "-c", serve];
        world.stockade(&words).finish().succeeds();
    }
    let get = |server: &Server, id: &str, port: u16, path: &str| {
        let [id_header, port_header] = address(id, port);
        let by_header = server.request(&format!("GET {path}"), &[&id_header, &port_header], b"");
        let host = format!("{port}-{id}.{}", server.host());
        let head = head(&format!("GET {path}"), &host, &[], b"");
        (by_header, server.raw(&head, b""))
    };
    crate::daemons::wait_until("the server inside listens", || {
        get(&server, &open, 8000, "/index.html").0.status == 200
    });
    let statuses = |server: &Server, id: &str, port: u16, path: &str| {
        let (by_header, by_name) = get(server, id, port, path);
        (by_header.status, by_name.status)
    };
    assert_eq!(get(&server, &open, 8000, "/index.html").1.text().trim(), "here");
    assert_eq!(statuses(&server, &closed, 8000, "/index.html"), (401, 401));
    assert_eq!(statuses(&server, &open, ENVD, "/files?path=/etc/passwd"), (401, 401));
    assert_eq!(statuses(&server, &open, INTERPRETER, "/contexts"), (401, 401));
    // Another server knows it as well.
    drop(server);
    server = Server::start(&world, &[]);
    assert_eq!(statuses(&server, &open, 8000, "/index.html"), (200, 200));
    assert_eq!(statuses(&server, &closed, 8000, "/index.html"), (401, 401));
    world.stockade(&["keys", "create"]).finish().succeeds();
    world.stockade(&["keys", "revoke", &key_id]).finish().succeeds();
    assert_eq!(statuses(&server, &open, 8000, "/index.html"), (401, 401));
}

/// With the default of E2B, and what people and programs then read at a port.
#[test]
fn an_option_makes_ports_public_as_at_e2b() {
    let world = World::new(crate::harness::Identity::User);
    let server = Server::start(&world, &["--public-ports"]);
    let (key, _) = key(&world, &[]);
    let header = format!("X-API-KEY: {key}");
    let create = |network| create_with(&server, &header, &network);
    let open = create(json!({ "denyOut": ["0.0.0.0/0"] }));
    let closed = create(json!({ "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": false }));
    let get = |id: &str, headers: &[&str]| {
        let host = format!("8000-{id}.{}", server.host());
        server.raw(&head("GET /", &host, headers, b""), b"")
    };
    assert_eq!(get(&closed, &[]).status, 401);
    // Nothing listens yet.
    let of_program = get(&open, &[]);
    assert_eq!((of_program.status, &of_program.value()["port"]), (502, &json!(8000)));
    let of_browser = get(&open, &["user-agent: Mozilla/5.0 (X11; Linux x86_64)"]);
    assert_eq!(of_browser.status, 502);
    assert!(
        of_browser.text().contains("<title>Closed Port Error</title>"),
        "{}",
        of_browser.text()
    );
    let serve = "import http.server as h\nclass H(h.BaseHTTPRequestHandler):\n def do_GET(self):\n  \
                 self.send_response(200); self.end_headers(); self.wfile.write(str(self.headers).encode())\n\
                 H.do_HEAD = lambda it: (it.send_response(200), it.end_headers())\n\
                 h.HTTPServer(('', 8000), H).serve_forever()";
    let words = ["exec", "--detach", &open, "--", "python3", "-c", serve];
    world.stockade(&words).finish().succeeds();
    crate::daemons::wait_until("the server inside listens", || get(&open, &[]).status == 200);
    // The application has its own keys, and may be used by pages of other origins.
    let own =
        ["Authorization: Bearer own", "Origin: https://app.example", "Sec-Fetch-Site: cross-site"];
    let seen = get(&open, &own);
    assert_eq!(seen.status, 200, "{}", seen.text());
    for line in ["Host: 8000-", "Authorization: Bearer own", "Origin: https://app.example"] {
        assert!(seen.text().contains(line), "{line} {}", seen.text());
    }
    // A program that does not say how long its answer would be.
    let host = format!("8000-{open}.{}", server.host());
    let length = server.raw(&head("HEAD /", &host, &[], b""), b"");
    assert_eq!(length.status, 200, "{}", length.head);
    assert!(!length.head.contains("content-length"), "{}", length.head);
    let of_server = format!("Authorization: Bearer {key}");
    assert!(!get(&open, &[&of_server]).text().contains(&key));
    let paused = server.json(&format!("POST /sandboxes/{open}/pause"), &[&header], &json!({}));
    assert_eq!(paused.status, 204, "{}", paused.text());
    let info = server.request(&format!("GET /sandboxes/{open}"), &[&header], b"").value();
    assert!(info["endAt"].as_str().unwrap().starts_with("9999-"), "{info}");
    for _ in 0..2 {
        let gone = get(&open, &[]);
        assert_eq!(gone.status, 502, "{}", gone.text());
        assert_eq!(gone.value()["message"], "The sandbox was not found");
        let line = format!("DELETE /sandboxes/{open}");
        server.request(&line, &[&header], b"");
    }
}

#[test]
fn what_belongs_to_a_sandbox_is_not_found_from_another() {
    let world = World::new(crate::harness::Identity::Root);
    let server = Server::start(&world, &[]);
    let (mine, _) = key(&world, &["--owner", "me"]);
    let (own, other) = (create(&server, &mine), create(&server, &mine));
    let watched = call(
        &server,
        (&own.id, &own.envd),
        "filesystem.Filesystem/CreateWatcher",
        &json!({ "path": "/tmp" }),
    );
    let watcher = watched.value();
    let events = "filesystem.Filesystem/GetWatcherEvents";
    let found = call(&server, (&own.id, &own.envd), events, &watcher);
    assert_eq!(found.status, 200, "{}", found.text());
    let hidden = call(&server, (&other.id, &other.envd), events, &watcher);
    assert_eq!((hidden.status, &hidden.value()["code"]), (404, &json!("not_found")));

    let context = |of: &Created, line: &str, body: &Value| {
        let [id, port] = address(&of.id, INTERPRETER);
        server.json(line, &[&id, &port, &of.header(E2B_TOKENS[1])], body)
    };
    let created = context(&own, "POST /contexts", &json!({ "language": "bash" }));
    assert_eq!(created.status, 200, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    // A directory that its user may not enter.
    let closed = json!({ "language": "bash", "cwd": "/root" });
    let closed = context(&own, "POST /contexts", &closed);
    assert!(closed.status >= 400 && closed.text().contains("/root"), "{}", closed.text());
    let shown = context(&other, "GET /contexts", &Value::Null).value();
    assert_eq!(languages(&shown), ["python", "javascript"]);
    assert!(!shown.to_string().contains(&id), "{shown}");
    for line in [format!("DELETE /contexts/{id}"), format!("POST /contexts/{id}/restart")] {
        assert_eq!(context(&other, &line, &Value::Null).status, 404, "{line}");
    }
    let run = json!({ "code": "echo x", "context_id": id });
    assert_eq!(context(&other, "POST /execute", &run).status, 404);
    let ran = context(&own, "POST /execute", &run);
    assert!(ran.text().contains(r#""text":"x\n""#), "{}", ran.text());
}

/// A signature of a file, as the clients make it.
fn signature(path: &str, operation: &str, token: &str, expiration: Option<u64>) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let mut text = format!("{path}:{operation}::{token}");
    if let Some(expiration) = expiration {
        text.push_str(&format!(":{expiration}"));
    }
    let hash = sha2::Sha256::digest(text);
    let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
    encoded.replace('+', "%2B").replace('/', "%2F")
}

#[test]
fn a_signature_is_for_one_file_of_one_sandbox() {
    let world = World::new(crate::harness::Identity::Root);
    let server = Server::start(&world, &[]);
    let (mine, _) = key(&world, &["--owner", "me"]);
    let (own, other) = (create(&server, &mine), create(&server, &mine));
    for (of, text) in [(&own, "own"), (&other, "other")] {
        let [id, port] = address(&of.id, ENVD);
        let token = of.header(E2B_TOKENS[0]);
        let kind = "content-type: application/octet-stream";
        let written = server.request(
            "POST /files?path=/tmp/file",
            &[&id, &port, &token, kind],
            text.as_bytes(),
        );
        assert_eq!(written.status, 200, "{}", written.text());
    }
    let read = |path: &str, signature: &str, more: &str, headers: &[&str]| {
        let line = format!("GET /files?path={path}&signature=v1_{signature}{more}");
        server.request(&line, headers, b"")
    };
    let good = signature("/tmp/file", "read", &own.envd, None);
    assert_eq!(read("/tmp/file", &good, "", &[]).text(), "own");
    let of_other = signature("/tmp/file", "read", &other.envd, None);
    assert_eq!(read("/tmp/file", &of_other, "", &[]).text(), "other");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let later = signature("/tmp/file", "read", &own.envd, Some(now + 60));
    let expires = format!("&signature_expiration={}", now + 60);
    assert_eq!(read("/tmp/file", &later, &expires, &[]).text(), "own");
    // Everything else is refused.
    let [at_other, _] = address(&other.id, ENVD);
    for answer in [
        read("/tmp/other", &good, "", &[]),
        read("/tmp/file", &good, "&username=root", &[]),
        read("/tmp/file", &good, &expires, &[]),
        read("/tmp/file", &good, "", &[&at_other]),
        read("/tmp/file", &good, "", &["X-Access-Token: x"]),
        read("/tmp/file", "x", "", &[]),
        read("/tmp/file", "", "", &[]),
        read("/tmp/file", &later, "", &[]),
        read("/tmp/file", &signature("/tmp/file", "write", &own.envd, None), "", &[]),
        server.request(
            &format!("POST /files?path=/tmp/file&signature=v1_{good}"),
            &["content-type: application/octet-stream"],
            b"x",
        ),
        server.request("GET /files?path=/tmp/file", &[], b""),
    ] {
        assert_eq!(answer.status, 401, "{}", answer.text());
    }
    let past = signature("/tmp/file", "read", &own.envd, Some(now - 60));
    let answer = read("/tmp/file", &past, &format!("&signature_expiration={}", now - 60), &[]);
    assert_eq!(answer.value()["message"], "signature is already expired");
    assert_eq!(answer.value()["code"], 401);
}

/// The languages of the contexts in a list, of which each sandbox has two from the start.
fn languages(contexts: &Value) -> Vec<&str> {
    contexts.as_array().into_iter().flatten().filter_map(|it| it["language"].as_str()).collect()
}

#[test]
fn a_port_has_a_host_name() {
    let world = World::new(crate::harness::Identity::Root);
    let server = Server::start(&world, &[]);
    let (mine, _) = key(&world, &["--owner", "me"]);
    let (own, other) = (create(&server, &mine), create(&server, &mine));
    let ask = |port: u16, line: &str, headers: &[&str]| {
        let host = format!("{port}-{}.localhost:{}", own.id, server.port);
        server.raw(&head(line, &host, headers, b""), b"")
    };
    let (envd, traffic) = (own.header(E2B_TOKENS[0]), own.header(E2B_TOKENS[1]));
    assert_eq!(ask(ENVD, "GET /health", &[&envd]).status, 204);
    let shown = ask(INTERPRETER, "GET /contexts", &[&traffic]).value();
    assert_eq!(languages(&shown), ["python", "javascript"]);
    for (port, line) in [(ENVD, "GET /envs"), (INTERPRETER, "GET /contexts"), (8000, "GET /")] {
        for headers in [
            vec![],
            vec![other.header(E2B_TOKENS[0])],
            vec![other.header(E2B_TOKENS[1])],
            vec![format!("X-API-KEY: {mine}")],
        ] {
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            let answer = ask(port, line, &headers);
            assert_eq!(answer.status, 401, "{port} {headers:?}: {}", answer.text());
        }
    }
    // No one listens on this port of the sandbox.
    let answer = ask(8000, "GET /", &[&traffic]);
    assert!(!matches!(answer.status, 401 | 404), "{}", answer.text());
}
