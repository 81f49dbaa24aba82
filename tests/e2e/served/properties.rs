//! What a request for a sandbox can say: extensions, volumes, variables; and what can be read of one:
//! lines of files, diagnostics, snapshots by name.

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::{Identity, World};

/// Creates a sandbox, and returns its id.
fn create(server: &Server, key: &str, more: &Value) -> Value {
    let mut request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let created = server.json("POST /v1/sandboxes", &[&format!("x-api-key: {key}")], &request);
    assert_eq!(created.status, 202, "{}", created.text());
    created.value()
}

/// The lines that a command prints.
fn run(server: &Server, key: &str, id: &str, command: &str) -> Vec<String> {
    let token = server.token(key, id, 44772);
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    let ran = server.json(&line, &[&token], &json!({ "command": command }));
    assert_eq!(ran.status, 200, "{}", ran.text());
    let events = ran.events();
    let lines = events.iter().filter(|event| event["type"] == "stdout");
    lines.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

fn extensions_and_variables_are_kept(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let extensions =
        json!({ "opensandbox.extensions.a": "1", "bootstrap.execd.isolation": "enable" });
    let env = json!({ "EXECD_ENVS": "/workspace/variables", "OWN": "kept" });
    let created = create(&server, &key, &json!({ "extensions": extensions, "env": env }));
    assert_eq!(created["extensions"], extensions);
    let id = created["id"].as_str().unwrap();
    let api_key = format!("x-api-key: {key}");
    let shown = server.request(&format!("GET /v1/sandboxes/{id}"), &[&api_key], b"").value();
    assert_eq!((&shown["extensions"], &shown["metadata"]), (&extensions, &json!({})));
    let write = "mkdir -p /workspace; echo \"ADDED='a b'\" >> $EXECD_ENVS; echo $EXECD_ENVS";
    assert_eq!(run(&server, &key, id, write), ["/workspace/variables"]);
    assert_eq!(run(&server, &key, id, "echo $ADDED $OWN"), ["a b kept"]);

    // Requests to a port renew a sandbox that was created so.
    let renewing =
        json!({ "timeout": 60, "extensions": { "access.renew.extend.seconds": "3600" } });
    let created = create(&server, &key, &renewing);
    let id = created["id"].as_str().unwrap();
    let expires = || {
        let shown = server.request(&format!("GET /v1/sandboxes/{id}"), &[&api_key], b"").value();
        shown["expiresAt"].as_str().unwrap().to_owned()
    };
    let token = server.token(&key, id, 44772);
    let ping = format!("GET /v1/sandboxes/{id}/proxy/44772/ping");
    let before = expires();
    server.request(&ping, &[&token, "OpenSandbox-Access-Renew: skip"], b"");
    assert_eq!(expires(), before);
    assert_eq!(server.request(&ping, &[&token], b"").status, 200);
    assert!(expires() > before);
    let paused = server.request(&format!("POST /v1/sandboxes/{id}/pause"), &[&api_key], b"");
    assert_eq!(paused.status, 202, "{}", paused.text());
    assert_eq!(server.request(&ping, &[&token], b"").status, 503);
}

fn volumes_outlive_sandboxes(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let volume = |more: Value| {
        let mut volume = json!({
            "name": "v", "mountPath": "/data", "pvc": { "claimName": "shared-data" },
        });
        volume.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "volumes": [volume] })
    };
    let first = create(&server, &key, &volume(json!({})));
    let write = "mkdir -p /data/sub/dir; echo kept > /data/sub/dir/file; cat /data/sub/dir/file";
    assert_eq!(run(&server, &key, first["id"].as_str().unwrap(), write), ["kept"]);
    let second = create(&server, &key, &volume(json!({ "readOnly": true, "subPath": "sub/dir" })));
    let read = "cat /data/file; touch /data/no 2>/dev/null || echo read-only";
    assert_eq!(run(&server, &key, second["id"].as_str().unwrap(), read), ["kept", "read-only"]);
}

fn diagnostics_lines_and_names_of_snapshots(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let api_key = format!("x-api-key: {key}");
    let get = |path: &str| server.request(&format!("GET {path}"), &[&api_key], b"");
    let id = server.create(&key);
    let one = format!("/v1/sandboxes/{id}");
    let token = server.token(&key, &id, 44772);
    let line = format!("POST {one}/proxy/44772/command");
    let request = json!({ "command": "echo from a command", "background": true });
    assert_eq!(server.json(&line, &[&token], &request).status, 200);
    let logs = (0..400)
        .find_map(|_| {
            let logs = get(&format!("{one}/diagnostics/logs?scope=container")).value();
            std::thread::sleep(std::time::Duration::from_millis(25));
            logs["content"].as_str().unwrap().contains("exit code 0").then_some(logs)
        })
        .expect("the command ends");
    assert!(logs["content"].as_str().unwrap().contains("from a command"), "{logs}");
    assert_eq!((&logs["kind"], &logs["delivery"]), (&json!("logs"), &json!("inline")));
    let events = get(&format!("{one}/diagnostics/events?scope=all")).value();
    assert!(events["content"].as_str().unwrap().contains("SANDBOX_CREATED"), "{events}");
    let last = get(&format!("{one}/diagnostics/events?scope=all&limit=1")).value();
    assert_eq!(last["content"].as_str().unwrap().lines().count(), 1, "{last}");
    assert_eq!(get(&format!("{one}/diagnostics/events?scope=weather")).status, 400);
    assert!(get(&format!("{one}/diagnostics/events")).text().contains("SANDBOX_CREATED"));
    assert!(get(&format!("{one}/diagnostics/summary")).text().contains("from a command"));
    assert!(get(&format!("{one}/diagnostics/inspect")).text().contains(&id));

    let write = "printf 'line1\\nline2\\nline3\\n' > /tmp/lines";
    run(&server, &key, &id, write);
    let lines = |query: &str, more: &[&str]| {
        let line = format!("GET {one}/proxy/44772/files/download?path=/tmp/lines&{query}");
        let mut headers = vec![token.as_str()];
        headers.extend(more);
        let read = server.request(&line, &headers, b"");
        (read.status, read.text())
    };
    assert_eq!(lines("offset=2&limit=1", &[]), (200, "line2".to_owned()));
    assert_eq!(lines("offset=2", &[]), (200, "line2\nline3".to_owned()));
    assert_eq!(lines("limit=2", &[]), (200, "line1\nline2".to_owned()));
    assert_eq!(lines("offset=0", &[]).0, 400);
    assert_eq!(lines("offset=1", &["range: bytes=0-1"]).0, 400);

    let line = format!("POST {one}/snapshots");
    let taken = server.json(&line, &[&api_key], &json!({ "name": "first" }));
    assert_eq!(taken.status, 202, "{}", taken.text());
    assert_eq!(taken.value()["name"], "first");
    server.json(&line, &[&api_key], &json!({ "name": "second" }));
    let found = get("/v1/snapshots?name=first&state=Ready").value();
    assert_eq!(found["pagination"]["totalItems"], 1, "{found}");
    assert_eq!(found["items"][0]["id"], taken.value()["id"]);
    let refused = server.json(&line, &[&api_key], &json!({ "name": "" }));
    assert_eq!(refused.status, 400, "{}", refused.text());
    let none = get("/v1/sandboxes?state=Allocated").value();
    assert_eq!(none["items"], json!([]));
    assert_eq!(get("/v1/sandboxes?state=Sleepy").status, 400);
}

fn files_with_the_rights_of_a_user(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let line = |user: u32, line: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        format!("{method} /v1/sandboxes/{id}/proxy/44772/v1/filesystem/{user}/{user}{path}")
    };
    let ask =
        |user: u32, request: &str, body: &Value| server.json(&line(user, request), &[&token], body);
    let upload = |user: u32, path: &str| {
        let body = format!(
            "--B\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n\
             {{\"path\":\"{path}\",\"mode\":600}}\r\n--B\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n\
             content\r\n--B--\r\n"
        );
        let kind = "content-type: multipart/form-data; boundary=B";
        server.request(&line(user, "POST /files/upload"), &[&token, kind], body.as_bytes()).status
    };
    assert_eq!(ask(2000, "POST /directories", &json!({ "/tmp/mine/deep": {} })).status, 200);
    assert_eq!(upload(2000, "/tmp/mine/file"), 200);
    let info = ask(3000, "GET /files/info?path=/tmp/mine/file&path=/tmp/mine", &Value::Null);
    let info = info.value();
    assert_eq!(info["/tmp/mine/file"]["owner"], "2000", "{info}");
    assert_eq!(info["/tmp/mine"]["group"], "2000", "{info}");
    let read = "GET /files/download?path=/tmp/mine/file";
    assert_eq!(ask(2000, read, &Value::Null).text(), "content");
    assert_eq!(ask(3000, read, &Value::Null).status, 403);
    assert_eq!(upload(3000, "/tmp/mine/other"), 403);
    assert_eq!(upload(3000, "/tmp/mine/file"), 403);
    for (request, body) in [
        ("POST /files/permissions", json!({ "/tmp/mine/file": { "mode": 666 } })),
        ("POST /files/mv", json!([{ "src": "/tmp/mine/file", "dest": "/tmp/taken" }])),
        ("POST /files/replace", json!({ "/tmp/mine/file": { "old": "c", "new": "d" } })),
        ("POST /directories", json!({ "/tmp/mine/theirs": {} })),
        ("DELETE /files?path=/tmp/mine/file", Value::Null),
        ("DELETE /directories?path=/tmp/mine/deep", Value::Null),
    ] {
        let refused = ask(3000, request, &body);
        assert_eq!(refused.status, 403, "{request}: {}", refused.text());
    }
    let given = json!({ "/tmp/mine/file": { "mode": 644, "owner": "3000" } });
    assert_eq!(ask(2000, "POST /files/permissions", &given).status, 403);
    let own = json!({ "/tmp/mine/file": { "mode": 644 } });
    assert_eq!(ask(2000, "POST /files/permissions", &own).status, 200);
    assert_eq!(ask(3000, read, &Value::Null).text(), "content");
    assert_eq!(ask(u32::MAX, read, &Value::Null).status, 400);
}

/// An ordinary user has only its own ids.
#[test]
fn files_with_the_rights_of_a_user_as_root() {
    let name = "served::properties::files_with_the_rights_of_a_user_as_root";
    Identity::Root.runs(name, files_with_the_rights_of_a_user);
}

as_root_and_as_user!(
    extensions_and_variables_are_kept,
    volumes_outlive_sandboxes,
    diagnostics_lines_and_names_of_snapshots
);
