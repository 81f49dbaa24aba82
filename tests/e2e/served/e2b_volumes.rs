//! `/volumes` of E2B: whose they are, and what opens their content.

use serde_json::{Value, json};

use super::every_route::{assert_unauthenticated, routes};
use super::{Response, Server, key};
use crate::harness::World;

/// The security scheme of the routes for content.
const SCHEME: &str = "volumeToken";

/// A client with an API key.
struct Client<'s> {
    server: &'s Server,
    key: String,
}

impl Client<'_> {
    fn ask(&self, line: &str, body: &Value) -> Response {
        self.server.json(line, &[&format!("X-API-KEY: {}", self.key)], body)
    }

    /// Creates a volume, and returns the header with its token.
    fn create(&self, name: &str) -> String {
        let created = self.ask("POST /volumes", &json!({ "name": name }));
        assert_eq!(created.status, 201, "{}", created.text());
        let created = created.value();
        assert_eq!((&created["volumeID"], &created["name"]), (&json!(name), &json!(name)));
        header(&created)
    }

    fn names(&self) -> Vec<String> {
        let listed = self.ask("GET /volumes", &Value::Null).value();
        let names = listed.as_array().unwrap().iter().map(|volume| volume["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    }

    /// Creates a sandbox with a volume at `/mnt/data`.
    fn mount(&self, name: &str) -> Response {
        let mounts = json!([{ "name": name, "path": "/mnt/data" }]);
        let request = json!({ "templateID": "base", "timeout": 600, "volumeMounts": mounts });
        self.ask("POST /v2/sandboxes", &request)
    }
}

fn header(volume: &Value) -> String {
    format!("Authorization: Bearer {}", volume["token"].as_str().unwrap())
}

fn names_and_content_are_those_of_the_owner(world: &World) {
    let server = Server::start(world, &[]);
    let client = |owner: &str| {
        let (key, id) = key(world, &["--owner", owner]);
        (Client { server: &server, key }, id)
    };
    let ((own, _), (other, _), (revoked, revoked_id)) =
        (client("me"), client("other"), client("me"));
    let token = own.create("data");
    let of_other = other.create("data");
    let of_second = own.create("second");
    assert_eq!((own.names(), other.names().len()), (vec!["data".into(), "second".into()], 1));
    for (name, status) in [("data", 409), ("../data", 400), ("", 400)] {
        assert_eq!(own.ask("POST /volumes", &json!({ "name": name })).status, status, "{name}");
    }
    for line in ["GET /volumes/third", "DELETE /volumes/third", "GET /volumes/..%2Fdata"] {
        assert_eq!(own.ask(line, &Value::Null).status, 404, "{line}");
    }
    assert_eq!(other.ask("GET /volumes/second", &Value::Null).status, 404);
    let of_revoked = header(&revoked.ask("GET /volumes/data", &Value::Null).value());
    world.stockade(&["keys", "revoke", &revoked_id]).finish().succeeds();

    let with = |token: &str, line: &str, body: &[u8]| {
        let kind =
            if body.is_empty() { "accept: */*" } else { "content-type: application/octet-stream" };
        server.request(line, &[token, kind], body)
    };
    let file = "/volumecontent/data/file?path=/a/b.txt";
    assert_eq!(with(&token, &format!("PUT {file}"), b"text").status, 404);
    let made = with(&token, "POST /volumecontent/data/dir?path=a/deep&force=true&mode=448", b"");
    assert_eq!((made.status, &made.value()["type"]), (201, &json!("directory")), "{}", made.text());
    assert_eq!(made.value()["mode"], 0o700);
    assert_eq!(with(&token, "POST /volumecontent/data/dir?path=/a", b"").status, 409);
    let put = with(&token, &format!("PUT {file}&mode=384"), b"text");
    assert_eq!(put.status, 201, "{}", put.text());
    let (put, mode) = (put.value(), 0o600);
    assert_eq!((&put["path"], &put["size"]), (&json!("/a/b.txt"), &json!(4)), "{put}");
    assert_eq!((&put["mode"], &put["uid"]), (&json!(mode), &json!(1000)), "{put}");
    assert_eq!(with(&token, &format!("PUT {file}"), b"more").status, 409);
    let again = with(&token, &format!("PUT {file}&force=true"), b"more text");
    assert_eq!((again.status, &again.value()["size"]), (201, &json!(9)), "{}", again.text());
    assert_eq!(with(&token, &format!("GET {file}"), b"").text(), "more text");
    assert_eq!(with(&of_other, &format!("PUT {file}"), b"theirs").status, 404);
    let listed = with(&token, "GET /volumecontent/data/dir?path=/&depth=2", b"").value();
    let paths: Vec<_> = listed.as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["/a", "/a/b.txt", "/a/deep"]);
    let changed = json!({ "mode": 0o640 });
    let changed = server.json("PATCH /volumecontent/data/path?path=/a/b.txt", &[&token], &changed);
    assert_eq!((changed.status, &changed.value()["mode"]), (200, &json!(0o640)));
    for (line, status) in [
        ("GET /volumecontent/data/file?path=/a", 404),
        ("GET /volumecontent/data/file", 400),
        ("GET /volumecontent/data/dir?path=/a/b.txt", 404),
        ("GET /volumecontent/data/path?path=/../../a/b.txt", 200),
        ("DELETE /volumecontent/data/path?path=/", 400),
        ("DELETE /volumecontent/data/path?path=/a/deep", 204),
        ("GET /volumecontent/data/path?path=/a/deep", 404),
        ("POST /volumecontent/data/dir?path=/x&uid=-1", 400),
        ("POST /volumecontent/data/dir?path=/x&force=maybe", 400),
    ] {
        let answer = with(&token, line, b"");
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
    }

    // Only the token of this volume, of a key that is still valid, opens it.
    let mine = format!("Authorization: Bearer {}", own.key);
    let nobody = format!("Authorization: Bearer local.{}", "0".repeat(64));
    let mut tried = 0;
    for route in routes().iter().filter(|route| route.security.as_deref() == Some(SCHEME)) {
        tried += 1;
        let line = route.line("").replace("/volumecontent/x/", "/volumecontent/data/");
        let with_key = format!("X-API-KEY: {}", own.key);
        for (who, headers) in [
            ("nobody", vec![]),
            ("an API key", vec![with_key.as_str()]),
            ("an API key as a token", vec![&mine]),
            ("the token of another volume", vec![&of_second]),
            ("the token of a revoked key", vec![&of_revoked]),
            ("the token of nobody", vec![&nobody]),
            ("two tokens", vec![&token, &token]),
        ] {
            assert_unauthenticated(&server.json(&line, &headers, &route.body), route, who);
        }
        // That of another owner opens what this owner has by the name.
        let second = line.replace("/volumecontent/data/", "/volumecontent/second/");
        let refused = server.json(&second, &[&of_other], &route.body);
        assert_unauthenticated(&refused, route, "the token of another owner");
    }
    assert_eq!(tried, 7);
    assert_eq!(with(&token, &format!("GET {file}"), b"").text(), "more text");

    sandboxes_mount_what_there_is(&own, &token);

    assert_eq!(own.ask("DELETE /volumes/data", &Value::Null).status, 204);
    assert_eq!(own.names(), ["second"]);
    // A later volume with the same name is another one.
    let later = own.create("data");
    assert_eq!(with(&token, "GET /volumecontent/data/dir?path=/", b"").status, 401);
    assert_eq!(with(&later, "GET /volumecontent/data/dir?path=/", b"").value(), json!([]));
    assert_eq!(other.names(), ["data"]);
}

/// What a sandbox writes is read, and no link that it makes leads out of the volume.
fn sandboxes_mount_what_there_is(own: &Client<'_>, token: &str) {
    let server = own.server;
    let absent = own.mount("third");
    assert_eq!(absent.status, 400, "{}", absent.text());
    let mounted = own.mount("data");
    assert_eq!(mounted.status, 201, "{}", mounted.text());
    let id = mounted.value()["sandboxID"].as_str().unwrap().to_owned();
    let execd = server.token(&own.key, &id, 44772);
    let command = "cd /mnt/data && cat a/b.txt && echo inside > c.txt && ln -s c.txt near \
        && ln -s /etc/passwd far && ln -s / root && ln -s ../../etc up";
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    let ran = server.json(&line, &[&execd], &json!({ "command": command }));
    assert!(ran.text().contains("more text"), "{}", ran.text());
    assert!(ran.text().contains("execution_complete"), "{}", ran.text());
    let ask = |method: &str, kind: &str, path: &str| {
        let line = format!("{method} /volumecontent/data/{kind}?path={path}&force=true");
        server.request(&line, &[token, "content-type: application/octet-stream"], b"")
    };
    assert_eq!(ask("GET", "file", "/near").text(), "inside\n");
    let link = ask("GET", "path", "/far").value();
    assert_eq!((&link["type"], &link["target"]), (&json!("symlink"), &json!("/etc/passwd")));
    for (method, kind, path) in [
        ("GET", "file", "/far"),
        ("PUT", "file", "/far"),
        ("GET", "file", "/root/etc/passwd"),
        ("PUT", "file", "/root/tmp/x"),
        ("GET", "dir", "/root"),
        ("GET", "dir", "/up"),
        ("POST", "dir", "/root/tmp/x"),
        ("GET", "path", "/up/passwd"),
        ("DELETE", "path", "/root/tmp"),
    ] {
        let answer = ask(method, kind, path);
        assert_eq!(answer.status, 404, "{method} {kind} {path}: {}", answer.text());
    }
    // The sandboxes in which the requests were executed are nobody's.
    let listed = own.ask("GET /v2/sandboxes", &Value::Null).value();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["volumeMounts"], json!([{ "name": "data", "path": "/mnt/data" }]));
    let used = own.ask("DELETE /volumes/data", &Value::Null);
    assert_eq!(used.status, 409, "{}", used.text());
    assert_eq!(own.ask(&format!("DELETE /sandboxes/{id}"), &Value::Null).status, 204);
}

as_root_and_as_user!(names_and_content_are_those_of_the_owner);
