//! Every route with callers that must be refused: without a key, with a wrong one, of another owner,
//! and with a revoked one.

use serde_json::{Value, json};

use super::{Response, Server, key};
use crate::harness::World;

/// The routes of the lifecycle interface about one sandbox, with a valid body.
fn routes(id: &str) -> Vec<(String, Value)> {
    let route = |line: String| (line, Value::Null);
    let mut routes: Vec<_> = [
        "GET /v1/sandboxes/{id}",
        "POST /v1/sandboxes/{id}/pause",
        "POST /v1/sandboxes/{id}/resume",
        "GET /v1/sandboxes/{id}/endpoints/44772",
        "GET /v1/sandboxes/{id}/endpoints/18080",
        "GET /v1/sandboxes/{id}/endpoints/80",
        "POST /v1/sandboxes/{id}/snapshots",
        "GET /v1/sandboxes/{id}/diagnostics/logs",
        "GET /v1/sandboxes/{id}/diagnostics/events?scope=all",
        "GET /v1/sandboxes/{id}/diagnostics/inspect",
        "GET /v1/sandboxes/{id}/diagnostics/summary",
        "DELETE /v1/sandboxes/{id}",
    ]
    .map(|line| route(line.replace("{id}", id)))
    .into();
    let renew = json!({ "expiresAt": "2099-01-01T00:00:00+00:00" });
    routes.push((format!("POST /v1/sandboxes/{id}/renew-expiration"), renew));
    routes.push((format!("PATCH /v1/sandboxes/{id}/metadata"), json!({ "a": "b" })));
    routes
}

/// Routes that are about no sandbox of another owner.
const OWN: [&str; 5] = [
    "GET /v1/sandboxes",
    "GET /v1/snapshots",
    "GET /v1/pools",
    "GET /v1/templates",
    "GET /v1/nothing",
];

/// The routes on the ports of a sandbox.
fn ports(id: &str) -> Vec<String> {
    let paths = [
        "GET 44772/ping",
        "POST 44772/command",
        "DELETE 44772/command?id=x",
        "GET 44772/command/status/x",
        "GET 44772/command/x/logs",
        "POST 44772/session",
        "POST 44772/session/0/run",
        "DELETE 44772/session/0",
        "GET 44772/files/info?path=/",
        "DELETE 44772/files?path=/tmp/x",
        "POST 44772/files/permissions",
        "POST 44772/files/mv",
        "GET 44772/files/search?path=/",
        "POST 44772/files/replace",
        "POST 44772/files/upload",
        "GET 44772/files/download?path=/etc/passwd",
        "GET 44772/directories/list?path=/",
        "POST 44772/directories",
        "DELETE 44772/directories?path=/tmp/x",
        "GET 44772/metrics",
        "POST 44772/code",
        "POST 44772/pty",
        "GET 44772/pty/0",
        "GET 44772/pty/0/ws",
        "DELETE 44772/pty/0",
        "GET 44772/v1/isolated/sessions",
        "POST 44772/v1/isolated/session",
        "POST 44772/v1/isolated/session/x/run",
        "GET 44772/v1/isolated/session/x/diff",
        "POST 44772/v1/isolated/session/x/commit",
        "GET 44772/v1/isolated/session/x/files/download?path=/etc/passwd",
        "GET 44772/nothing",
        "GET 18080/policy",
        "PATCH 18080/policy",
        "DELETE 18080/policy",
        "GET 80/",
        "GET 80",
        "OPTIONS 80/x",
    ];
    let line = |path: &str| {
        let (method, rest) = path.split_once(' ').unwrap();
        format!("{method} /v1/sandboxes/{id}/proxy/{rest}")
    };
    paths.iter().map(|path| line(path)).collect()
}

fn strangers_are_refused_on_every_route(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let (revoked, revoked_id) = key(world, &["--owner", "me"]);
    let id = server.create(&mine);
    let elsewhere = server.create(&mine);
    let old_token = server.token(&revoked, &id, 44772);
    world.stockade(&["keys", "revoke", &revoked_id]).finish().succeeds();
    let wrong = format!("e2b_{}", "0".repeat(40));
    let ask = |line: &str, headers: &[&str], body: &Value| server.json(line, headers, body);
    for (line, body) in routes(&id) {
        for headers in [
            &[][..],
            &["x-api-key: "],
            &[&format!("x-api-key: {wrong}")],
            &[&format!("open-sandbox-api-key: {revoked}")],
            &[&format!("authorization: Bearer {revoked}")],
            &[&format!("authorization: Basic {mine}")],
            &[&format!("x-api-key: {mine}"), &format!("open-sandbox-api-key: {other}")],
            &[&old_token],
        ] {
            let refused = ask(&line, headers, &body);
            assert_eq!(refused.status, 401, "{line} {headers:?}: {}", refused.text());
            assert_eq!(refused.value()["code"], "UNAUTHENTICATED");
            assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
        }
        // Another owner gets the same response as for a sandbox that does not exist.
        let theirs = format!("x-api-key: {other}");
        let hidden = ask(&line, &[&theirs], &body);
        let absent = ask(&line.replace(&id, "absent"), &[&theirs], &body);
        assert_eq!((hidden.status, absent.status), (404, 404), "{line}: {}", hidden.text());
        assert_eq!(hidden.text().replace(&id, "absent"), absent.text(), "{line}");
    }
    for line in OWN {
        assert_eq!(ask(line, &[], &Value::Null).status, 401, "{line}");
    }
    let list = ask("GET /v1/sandboxes", &[&format!("x-api-key: {other}")], &Value::Null);
    assert_eq!(list.value()["items"], json!([]), "{}", list.text());

    let tokens = [
        server.token(&mine, &elsewhere, 44772),
        server.token(&mine, &id, 81),
        "X-EXECD-ACCESS-TOKEN: local.0".to_owned(),
        format!("X-EXECD-ACCESS-TOKEN: {wrong}"),
        old_token,
    ];
    let as_each = |value: &str| {
        let value = value.split_once(": ").unwrap().1.to_owned();
        ["X-EXECD-ACCESS-TOKEN", "OPENSANDBOX-EGRESS-AUTH", "OpenSandbox-Secure-Access"]
            .map(|name| format!("{name}: {value}"))
    };
    for line in ports(&id) {
        let own_key = format!("x-api-key: {mine}");
        assert_eq!(ask(&line, &[], &Value::Null).status, 401, "{line}");
        assert_eq!(ask(&line, &[&own_key], &Value::Null).status, 401, "{line}");
        for token in &tokens {
            let all = as_each(token);
            let all: Vec<_> = all.iter().map(String::as_str).collect();
            let refused = ask(&line, &all, &Value::Null);
            assert_eq!(refused.status, 401, "{line} {token}: {}", refused.text());
        }
    }
    // The sandbox is untouched, and its owner still reaches it.
    let token = server.token(&mine, &id, 44772);
    let ping = format!("GET /v1/sandboxes/{id}/proxy/44772/ping");
    assert_eq!(ask(&ping, &[&token], &Value::Null).status, 200);
    let killed =
        ask(&format!("DELETE /v1/sandboxes/{id}"), &[&format!("x-api-key: {mine}")], &Value::Null);
    assert_eq!(killed.status, 204, "{}", killed.text());
    // The token of a sandbox that has ended opens nothing.
    assert_eq!(ask(&ping, &[&token], &Value::Null).status, 404);
}

fn without_keys_only_this_user_is_served(world: &World) {
    let server = Server::start(world, &[]);
    // The requests are sent by a process of another user than that of the tests, which may be root.
    let program = "use IO::Socket::INET; my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0]) or die; \
                   print $s qq($ARGV[1] HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n), \
                   qq(Content-Type: application/json\\r\\nContent-Length: ), length($ARGV[2]), \
                   qq(\\r\\n$ARGV[3]\\r\\n$ARGV[2]); print <$s>;";
    let address = format!("127.0.0.1:{}", server.port);
    let own = |line: &str, body: &str, header: &str| {
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let arguments = ["-e", program, &address, line, body, &header];
        let outcome = world.on_host(std::path::Path::new("/usr/bin/perl"), &arguments).finish();
        Response::parse(outcome.succeeds().stdout.as_bytes())
    };
    let created = own("POST /v1/sandboxes", "{\"image\":{\"uri\":\"host\"},\"timeout\":600}", "");
    assert_eq!(created.status, 202, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    let endpoint = own(&format!("GET /v1/sandboxes/{id}/endpoints/44772"), "", "").value();
    let token = endpoint["headers"]["X-EXECD-ACCESS-TOKEN"].as_str().unwrap();
    let token = format!("X-EXECD-ACCESS-TOKEN: {token}");
    let ping = format!("GET /v1/sandboxes/{id}/proxy/44772/ping");
    assert_eq!(own(&ping, "", &token).status, 200);
    assert_eq!(own(&ping, "", "").status, 401);
    if crate::harness::tests_run_as_root() {
        let uid = if world.identity.uid() == 0 { "1000" } else { "0" };
        for (line, header) in [("GET /v1/sandboxes", ""), (ping.as_str(), token.as_str())] {
            let mut other = std::process::Command::new("setpriv");
            let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()];
            let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
            let words = ["perl", "-e", program, &address, line, "", &header];
            let output = other.args(ids).args(words).output().unwrap();
            assert_eq!(Response::parse(&output.stdout).status, 401, "{line} {output:?}");
        }
    }
    // The first key ends that: from now on each request needs one.
    let (mine, _) = key(world, &[]);
    assert_eq!(own("GET /v1/sandboxes", "", "").status, 401);
    let listed = server.request("GET /v1/sandboxes", &[&format!("x-api-key: {mine}")], b"");
    assert_eq!(listed.value()["items"][0]["id"], *id, "the owner is the same");
}

as_root_and_as_user!(strangers_are_refused_on_every_route, without_keys_only_this_user_is_served);
