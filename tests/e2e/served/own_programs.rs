//! A server without keys serves programs of its own user as the socket does: they may name images of any
//! registry, and paths of the host. A web page, a request that was relayed, and an API key may not.

use std::path::Path;

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::World;
use crate::registry::interrupted::SlowRegistry;
use crate::registry::sample;

/// What a page or a relayed request has, which a program of the user has not.
const RELAYED: [&str; 5] = [
    "origin: http://localhost:PORT",
    "sec-fetch-site: same-origin",
    "x-forwarded-for: 127.0.0.1",
    "via: 1.1 tunnel",
    "cookie: a=b",
];

/// A program of the user: sends a request with a JSON body and headers, and prints the response.
const CLIENT: &str = r#"
import http.client, sys
port, line, host, body, *headers = sys.argv[1:]
method, path = line.split()
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
headers += ["host: " + host, "content-length: " + str(len(body))]
if body: headers.append("content-type: application/json")
for header in headers:
    connection.putheader(*header.split(": ", 1) if ": " in header else (header.rstrip(":"), ""))
connection.endheaders(body.encode())
response = connection.getresponse()
print(response.status, response.read().decode(), end="")
"#;

struct Client<'w> {
    world: &'w World,
    port: u16,
}

impl Client<'_> {
    fn ask(&self, line: &str, host: &str, body: &Value, headers: &[&str]) -> (u16, String) {
        let (port, body) = (self.port.to_string(), body.to_string());
        let body = if body == "null" { "" } else { body.as_str() };
        let mut words = vec!["-c", CLIENT, &port, line, host, body];
        words.extend(headers);
        let outcome = self.world.on_host(Path::new("/usr/bin/python3"), &words).finish();
        let (status, text) = outcome.succeeds().stdout.split_once(' ').unwrap();
        (status.parse().unwrap(), text.to_owned())
    }

    fn create(&self, more: &Value, headers: &[&str]) -> (u16, String) {
        let mut request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
        for (name, value) in more.as_object().unwrap() {
            request[name] = value.clone();
        }
        self.ask("POST /v1/sandboxes", "localhost", &request, headers)
    }

    /// Creates a sandbox, and returns what a command in it prints.
    fn run(&self, more: &Value, headers: &[&str], command: &str) -> String {
        let (status, text) = self.create(more, headers);
        assert_eq!(status, 202, "{text}");
        let id: Value = serde_json::from_str(&text).unwrap();
        let id = id["id"].as_str().unwrap();
        let endpoint = format!("GET /v1/sandboxes/{id}/endpoints/44772");
        let (_, text) = self.ask(&endpoint, "localhost", &Value::Null, &[]);
        let found: Value = serde_json::from_str(&text).unwrap();
        let (name, token) = found["headers"].as_object().unwrap().iter().next().unwrap();
        let token = format!("{name}: {}", token.as_str().unwrap());
        let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
        let (_, text) = self.ask(&line, "localhost", &json!({ "command": command }), &[&token]);
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
        let lines = events.filter(|event| event["type"] == "stdout");
        lines.map(|event| event["text"].as_str().unwrap().to_owned() + "\n").collect()
    }
}

fn a_program_of_the_user_needs_no_setting(world: &World) {
    let registry = SlowRegistry::start(&sample::image(world, "sample", "from the registry"));
    registry.release();
    let image = json!({ "image": { "uri": format!("{}/team/sample:1", registry.host) } });
    let outside = world.outside();
    std::fs::write(outside.join("file"), "of the host\n").unwrap();
    let host = json!({ "path": outside });
    let volume =
        json!({ "volumes": [{ "name": "a", "mountPath": "/a", "host": host, "readOnly": true }] });
    let server = Server::start(world, &[]);
    let client = Client { world, port: server.port };
    for relayed in RELAYED {
        let relayed = relayed.replace("PORT", &server.port.to_string());
        for refused in [&image, &volume] {
            let (status, text) = client.create(refused, &[&relayed]);
            assert_eq!(status, 403, "{relayed}: {text}");
        }
    }
    // As the released clients do: no key, or an empty one.
    for headers in [&[][..], &["open-sandbox-api-key:"]] {
        let seen = client.run(&image, headers, "cat /etc/name");
        assert_eq!(seen.trim_end(), "from the registry");
    }
    let seen = client.run(&volume, &[], "cat /a/file; touch /a/new || echo read-only");
    assert_eq!(seen, "of the host\nread-only\n");
    // What the command line refuses stays refused.
    let data = json!({ "path": world.data() });
    let own = json!({ "volumes": [{ "name": "a", "mountPath": "/a", "host": data }] });
    let (status, text) = client.create(&own, &[]);
    assert_eq!(status, 403, "{text}");
    // As soon as there is a key, only keys count, and they are limited, also for that user.
    let (mine, _) = key(world, &["--admin"]);
    let other = json!({ "image": { "uri": format!("{}/team/other:1", registry.host) } });
    let mine = format!("x-api-key: {mine}");
    for refused in [&other, &volume] {
        let (status, text) = client.create(refused, &[&mine]);
        assert_eq!(status, 403, "{text}");
    }
    assert_eq!(client.create(&other, &[]).0, 401);
}

/// A name that leads here, but that is none of the loopback, may be that of a tunnel.
fn another_name_of_the_server_is_not_the_users(world: &World) {
    let server = Server::start(world, &["--allowed-host", "box.test"]);
    let client = Client { world, port: server.port };
    let body = json!({ "image": { "uri": "127.0.0.1:9/none:1" }, "entrypoint": [] });
    let (status, text) = client.ask("POST /v1/sandboxes", "box.test", &body, &[]);
    assert_eq!(status, 403, "{text}");
    // The registry is asked, and there is none.
    let (status, text) = client.ask("POST /v1/sandboxes", "localhost", &body, &[]);
    assert!(status >= 400 && status != 403, "{status} {text}");
}

as_root_and_as_user!(
    a_program_of_the_user_needs_no_setting,
    another_name_of_the_server_is_not_the_users,
);
