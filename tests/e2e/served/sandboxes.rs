//! Sandboxes over plain HTTP: commands, files, ports, and what is not available.

use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::World;

fn commands_and_files(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let path = |rest: &str| {
        let (method, rest) = rest.split_once(' ').unwrap();
        format!("{method} /v1/sandboxes/{id}/proxy/44772{rest}")
    };
    let ask = |line: &str, body: &Value| server.json(&path(line), &[&token], body);

    let ran = ask(
        "POST /command",
        &json!({ "command": "echo a; printf 'b\\n\\nc'; echo e >&2; exit 3" }),
    );
    assert!(ran.head.contains("content-type: text/event-stream"), "{}", ran.head);
    let events = ran.events();
    let texts = |kind: &str| -> Vec<Value> {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .map(|event| event["text"].clone())
            .collect()
    };
    assert_eq!(texts("stdout"), ["a", "b", "", "c"]);
    assert_eq!(texts("stderr"), ["e"]);
    assert_eq!(events[0]["type"], "init");
    let last = events.last().unwrap();
    assert_eq!(last["error"]["ename"], "CommandExecError");
    assert_eq!(last["error"]["evalue"], "3");
    assert!(events.iter().all(|event| event["timestamp"].is_u64()), "{events:?}");
    let command = events[0]["text"].as_str().unwrap();
    let status = ask(&format!("GET /command/status/{command}"), &Value::Null).value();
    assert_eq!((&status["running"], &status["exit_code"]), (&json!(false), &json!(3)));

    let ran = ask("POST /command", &json!({ "argv": ["printf", "%s|", "a b", "$HOME"] }));
    assert_eq!(ran.events()[1]["text"], "a b|$HOME|");
    assert_eq!(ran.events()[2]["type"], "execution_complete");

    let body =
        b"--B\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n\
        Content-Type: application/json\r\n\r\n{\"path\":\"/tmp/new/file.bin\",\"mode\":640}\r\n\
        --B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file.bin\"\r\n\r\n\
        0123456789\r\n--B--\r\n";
    let kind = "content-type: multipart/form-data; boundary=B";
    let sent = server.request(&path("POST /files/upload"), &[&token, kind], body);
    assert_eq!(sent.status, 200, "{}", sent.text());
    // A body that breaks off writes nothing.
    let broken = String::from_utf8_lossy(body).replace("file.bin", "other.bin");
    let broken = &broken.as_bytes()[..broken.len() - 12];
    let refused = server.request(&path("POST /files/upload"), &[&token, kind], broken);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(ask("GET /files/info?path=/tmp/new/other.bin", &Value::Null).status, 404);
    let info = ask("GET /files/info?path=/tmp/new/file.bin", &Value::Null).value();
    let info = &info["/tmp/new/file.bin"];
    assert_eq!((&info["size"], &info["mode"]), (&json!(10), &json!(640)), "{info}");
    let download = path("GET /files/download?path=/tmp/new/file.bin");
    assert_eq!(server.request(&download, &[&token], b"").text(), "0123456789");
    let part = server.request(&download, &[&token, "range: bytes=2-4"], b"");
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert!(part.head.contains("content-range: bytes 2-4/10"), "{}", part.head);
    assert_eq!(server.request(&download, &[&token, "range: bytes=10-"], b"").status, 416);
    assert_eq!(ask("GET /files/download?path=/tmp/new", &Value::Null).status, 400);
    assert_eq!(ask("GET /files/download?path=/tmp/none", &Value::Null).status, 404);

    // JSON needs its content type, and unknown members are refused.
    let plain = server.request(&path("POST /command"), &[&token], b"{\"command\":\"id\"}");
    assert_eq!(plain.status, 400, "{}", plain.text());
    let unknown = ask("POST /command", &json!({ "command": "id", "nice": 1 }));
    assert_eq!((unknown.status, unknown.value()["code"].clone()), (501, json!("UNSUPPORTED")));
    assert_eq!(ask("POST /code", &Value::Null).status, 400);
}

fn ports_are_relayed(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let program = "import http.server\n\
        class H(http.server.BaseHTTPRequestHandler):\n\
        \x20def do_GET(self):\n\
        \x20 self.send_response(200)\n\
        \x20 self.send_header('Set-Cookie', 'a=1')\n\
        \x20 self.end_headers()\n\
        \x20 self.wfile.write((self.path + '\\n' + str(self.headers)).encode())\n\
        http.server.HTTPServer(('127.0.0.1', 8000), H).serve_forever()\n";
    let request = json!({ "argv": ["python3", "-c", program], "background": true });
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    assert_eq!(server.json(&line, &[&token], &request).status, 200);
    let token = server.token(&key, &id, 8000);
    let line = format!("GET /v1/sandboxes/{id}/proxy/8000/a/b?c=d");
    let api_key = format!("x-api-key: {key}");
    let relayed = (0..200).find_map(|_| {
        let relayed = server.request(&line, &[&token, &api_key, "cookie: secret=1"], b"");
        if relayed.status == 200 {
            return Some(relayed);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        None
    });
    let relayed = relayed.expect("the server inside answers");
    let text = relayed.text();
    assert!(text.starts_with("/a/b?c=d\n"), "{text}");
    for secret in [key.as_str(), "secret=1", "Secure-Access", "X-Api-Key"] {
        assert!(!text.to_lowercase().contains(&secret.to_lowercase()), "{secret}: {text}");
    }
    assert!(!relayed.head.contains("set-cookie"), "{}", relayed.head);
    assert!(relayed.head.contains("content-security-policy: sandbox"), "{}", relayed.head);
    assert!(relayed.head.contains("x-content-type-options: nosniff"), "{}", relayed.head);
    // Nothing listens on another port.
    let token = server.token(&key, &id, 8001);
    let line = format!("GET /v1/sandboxes/{id}/proxy/8001/");
    assert_eq!(server.request(&line, &[&token], b"").status, 503);
}

fn web_sockets_are_relayed_and_end_with_the_sandbox(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let execd = server.token(&key, &id, 44772);
    // It answers the handshake without a check, and repeats what it receives.
    let program = "import socket\n\
        s = socket.create_server(('127.0.0.1', 9000))\n\
        while True:\n\
        \x20c = s.accept()[0]\n\
        \x20h = b''\n\
        \x20while b'\\r\\n\\r\\n' not in h: h += c.recv(1)\n\
        \x20c.sendall(b'HTTP/1.1 101 S\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n')\n\
        \x20while True:\n\
        \x20 d = c.recv(100)\n\
        \x20 if not d: break\n\
        \x20 c.sendall(b'<' + d + b'>')\n";
    let request = json!({ "argv": ["python3", "-c", program], "background": true });
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    assert_eq!(server.json(&line, &[&execd], &request).status, 200);
    let token = server.token(&key, &id, 9000);
    let connect = |token: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let head = format!(
            "GET /v1/sandboxes/{id}/proxy/9000/ws HTTP/1.1\r\nhost: localhost\r\n{token}\r\n\
             connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            answer.push(byte[0]);
        }
        (stream, String::from_utf8(answer).unwrap().to_lowercase())
    };
    assert!(connect("x-none: 1").1.starts_with("http/1.1 401 "));
    assert!(connect(&execd).1.starts_with("http/1.1 401 "));
    let found = (0..200).find_map(|_| {
        let (stream, answer) = connect(&token);
        if answer.starts_with("http/1.1 101 ") {
            return Some(stream);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        None
    });
    let mut stream = found.expect("the server inside answers");
    let mut echo = [0; 7];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"<hello>");
    let api_key = format!("x-api-key: {key}");
    let killed = server.request(&format!("DELETE /v1/sandboxes/{id}"), &[&api_key], b"");
    assert_eq!(killed.status, 204, "{}", killed.text());
    assert!(matches!(stream.read(&mut echo), Ok(0) | Err(_)), "the connection is cut");
}

fn the_policy_of_a_sandbox_is_changed(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let api_key = format!("x-api-key: {key}");
    let policy = json!({ "defaultAction": "deny", "egress": [
        { "action": "allow", "target": "a.test" },
        { "action": "allow", "target": "*.b.test" },
    ] });
    let request = json!({ "image": { "uri": "host" }, "timeout": 600, "networkPolicy": policy });
    let created = server.json("POST /v1/sandboxes", &[&api_key], &request);
    assert_eq!(created.status, 202, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    let token = server.token(&key, &id, 18080);
    let own = format!("/v1/sandboxes/{id}/proxy/18080/policy");
    let shared = format!("/v1/sandboxes/{id}/networkpolicy");
    let egress =
        |method: &str, body: &Value| server.json(&format!("{method} {own}"), &[&token], body);
    let lifecycle =
        |method: &str, body: &Value| server.json(&format!("{method} {shared}"), &[&api_key], body);
    let targets = |response: &super::Response| -> Vec<String> {
        let value = response.value();
        let rules = value["policy"]["egress"].as_array().unwrap_or_else(|| panic!("{value}"));
        rules.iter().map(|rule| rule["target"].as_str().unwrap().to_owned()).collect()
    };
    let shown = egress("GET", &Value::Null);
    assert_eq!(shown.value()["policy"], policy);
    assert_eq!(targets(&lifecycle("GET", &Value::Null)), ["a.test", "*.b.test"]);
    let rules = json!([
        { "action": "deny", "target": "a.test" },
        { "action": "allow", "target": "c.test" },
        { "action": "deny", "target": "c.test" },
    ]);
    let changed = egress("PATCH", &rules);
    assert_eq!(targets(&changed), ["*.b.test", "c.test", "a.test"]);
    assert_eq!(changed.value()["policy"]["egress"][2]["action"], "deny");
    let left = lifecycle("DELETE", &json!(["c.test", "none.test"]));
    assert_eq!(targets(&left), ["*.b.test", "a.test"]);
    // What is allowed again is not denied any more, and the other way round.
    let rules = json!([{ "action": "allow", "target": "a.test" }]);
    assert_eq!(egress("PATCH", &rules).value()["policy"]["egress"][1]["action"], "allow");
    let rules = json!([{ "action": "deny", "target": "x.b.test" }]);
    assert_eq!(targets(&egress("PATCH", &rules)), ["*.b.test", "a.test", "x.b.test"]);
    let policy = json!({ "egress": [{ "action": "allow", "target": "d.test" }] });
    assert_eq!(targets(&lifecycle("PUT", &policy)), ["d.test"]);
    for target in ["10.0.0.1", "127.0.0.0/8", "host.stockade.internal", "*", "::1"] {
        let rules = json!([{ "action": "allow", "target": target }]);
        let refused = lifecycle("PATCH", &rules);
        assert_eq!(refused.status, 501, "{target}: {}", refused.text());
    }
    assert_eq!(targets(&lifecycle("GET", &Value::Null)), ["d.test"]);
}

fn the_lifecycle_has_the_states_of_its_clients(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let key = format!("authorization: Bearer {key}");
    let ask = |line: &str, body: &Value| server.json(line, &[&key], body);
    let request = |more: Value| {
        let mut request = json!({ "image": { "uri": "host" }, "timeout": 600 });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let create = |more: Value| ask("POST /v1/sandboxes", &request(more));
    let created =
        create(json!({ "metadata": { "team": "a" }, "entrypoint": ["tail", "-f", "/dev/null"] }));
    let created = created.value();
    assert_eq!(created["status"]["state"], "Running", "{created}");
    assert_eq!(created["entrypoint"], json!(["tail", "-f", "/dev/null"]));
    assert_eq!(created["metadata"], json!({ "team": "a" }));
    let id = created["id"].as_str().unwrap();
    let one = format!("/v1/sandboxes/{id}");
    let state = || ask(&format!("GET {one}"), &Value::Null).value()["status"]["state"].clone();
    assert_eq!(ask(&format!("POST {one}/pause"), &Value::Null).status, 202);
    assert_eq!(state(), "Paused");
    assert_eq!(ask(&format!("POST {one}/pause"), &Value::Null).status, 409);
    assert_eq!(ask(&format!("POST {one}/resume"), &Value::Null).status, 202);
    assert_eq!(state(), "Running");
    let changed = ask(&format!("PATCH {one}/metadata"), &json!({ "team": null, "x": "y" })).value();
    assert_eq!(changed["metadata"], json!({ "x": "y" }), "{changed}");
    let renew = json!({ "expiresAt": "2020-01-01T00:00:00Z" });
    assert_eq!(ask(&format!("POST {one}/renew-expiration"), &renew).status, 400);
    let found =
        ask("GET /v1/sandboxes?state=Running&metadata=x%3Dy&pageSize=1", &Value::Null).value();
    assert_eq!(found["pagination"]["totalItems"], 1, "{found}");
    let none = ask("GET /v1/sandboxes?metadata=x%3Dz", &Value::Null).value();
    assert_eq!(none["items"], json!([]));
    for (more, status) in [
        (json!({ "image": { "uri": "/etc" } }), 501),
        (json!({ "image": { "uri": "../etc" } }), 501),
        // It is not in the store, and an API key causes downloads only from the registries of a setting.
        (json!({ "image": { "uri": "no-such-image:1" } }), 403),
        (json!({ "volumes": [{ "name": "a", "mountPath": "/a", "host": { "path": "/" } }] }), 403),
        (json!({ "volumes": [{ "name": "a", "mountPath": "/a", "ossfs": {} }] }), 501),
        (json!({ "extensions": { "access.renew.extend.seconds": "5" } }), 400),
        (json!({ "extensions": { "poolRef": "a" } }), 404),
        (json!({ "extensions": { "poolRef": "host" }, "image": { "uri": "other" } }), 400),
        (json!({ "extensions": { "poolRef": "host" }, "snapshotId": "a" }), 400),
        (json!({ "novelty": 1 }), 501),
        (json!({ "resourceLimits": { "gpu": "1" } }), 501),
        (json!({ "resourceLimits": { "cpu": "fast" } }), 400),
        (json!({ "metadata": { "opensandbox.io/a": "b" } }), 400),
        (
            json!({ "networkPolicy": { "egress": [{ "action": "allow", "target": "127.0.0.1" }] } }),
            501,
        ),
        (json!({ "snapshotId": "a" }), 400),
    ] {
        let refused = create(more.clone());
        assert_eq!(refused.status, status, "{more}: {}", refused.text());
    }
    // The pool of the server has a size that a client reads, and cannot change.
    let pools = ask("GET /v1/pools", &Value::Null).value();
    assert_eq!(pools["items"][0]["name"], "host", "{pools}");
    assert_eq!(pools["items"][0]["capacitySpec"]["poolMax"], 1000, "{pools}");
    assert_eq!(ask("GET /v1/pools/host", &Value::Null).value(), pools["items"][0]);
    let size =
        json!({ "capacitySpec": { "bufferMax": 1, "bufferMin": 1, "poolMax": 1, "poolMin": 1 } });
    for (line, body, status) in [
        ("GET /v1/pools/other", &Value::Null, 404),
        ("PUT /v1/pools/other", &size, 404),
        ("DELETE /v1/pools/other", &Value::Null, 404),
        ("PUT /v1/pools/host", &size, 501),
        ("DELETE /v1/pools/host", &Value::Null, 501),
        ("POST /v1/pools", &size, 501),
    ] {
        let refused = ask(line, body);
        assert_eq!(refused.status, status, "{line}: {}", refused.text());
    }
    let from_pool = json!({ "timeout": 600, "extensions": { "poolRef": "host" } });
    let from_pool = ask("POST /v1/sandboxes", &from_pool);
    assert_eq!(from_pool.status, 202, "{}", from_pool.text());
    let allocation = json!({ "mode": "pool", "poolRef": "host", "state": "allocated" });
    assert_eq!(from_pool.value()["allocation"], allocation);
    let line = format!("DELETE /v1/sandboxes/{}", from_pool.value()["id"].as_str().unwrap());
    assert_eq!(ask(&line, &Value::Null).status, 204);
    assert_eq!(ask("PUT /v1/sandboxes", &Value::Null).status, 405);
    assert_eq!(ask(&format!("DELETE {one}"), &Value::Null).status, 204);
    assert_eq!(state(), "Terminated");
}

as_root_and_as_user!(
    commands_and_files,
    ports_are_relayed,
    web_sockets_are_relayed_and_end_with_the_sandbox,
    the_policy_of_a_sandbox_is_changed,
    the_lifecycle_has_the_states_of_its_clients
);
