//! `/credential-vault` of the OpenSandbox interface: credentials of a sandbox, in revisions. What is
//! put into requests is tested with the egress process.

use serde_json::{Value, json};

use super::{Response, Server, key};
use crate::harness::World;

const CANARY: &str = "sk-canary-7f3a-Zq83hTnw04LxvUe7";
const EGRESS: u16 = 18080;

struct Vault<'a> {
    server: &'a Server,
    token: String,
    path: String,
}

impl<'a> Vault<'a> {
    fn of(server: &'a Server, key: &str, id: &str) -> Self {
        let token = server.token(key, id, EGRESS);
        let path = format!("/v1/sandboxes/{id}/proxy/{EGRESS}/credential-vault");
        Self { server, token, path }
    }

    fn ask(&self, method: &str, rest: &str, body: Option<&Value>) -> Response {
        let line = format!("{method} {}{rest}", self.path);
        let answer = match body {
            Some(body) => self.server.json(&line, &[&self.token], body),
            None => self.server.request(&line, &[&self.token], b""),
        };
        assert!(!answer.text().contains("7f3a"), "{line}: {}", answer.text());
        answer
    }
}

fn credentials_have_revisions_and_no_value(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let header = format!("open-sandbox-api-key: {key}");
    let request = json!({
        "image": {"uri": "host"}, "timeout": 600, "entrypoint": [],
        "credentialProxy": {"enabled": true},
        "networkPolicy": {"egress": [{"action": "allow", "target": "api.example.com"}]},
    });
    let created = server.json("POST /v1/sandboxes", &[&header], &request);
    assert_eq!(created.status, 202, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    let vault = Vault::of(&server, &key, &id);
    assert_eq!(vault.ask("GET", "", None).status, 404);
    let credential = json!({"name": "token", "source": {"type": "inline", "value": CANARY}});
    let binding = json!({
        "name": "api",
        "match": {"hosts": ["api.example.com"], "methods": ["GET"], "paths": ["/v1/*"]},
        "auth": {"type": "bearer", "credential": "token"},
    });
    let whole = json!({"credentials": [credential], "bindings": [binding]});
    for refused in [
        json!({"credentials": [{"name": "t", "source": CANARY}], "bindings": []}),
        json!({"credentials": CANARY, "bindings": []}),
        json!({"credentials": [], "bindings": [binding]}),
        json!({"credentials": [credential], "bindings": [{
            "name": "api", "match": {"hosts": ["api.example.com"], "schemes": ["http"]},
            "auth": {"type": "bearer", "credential": "token"},
        }]}),
        json!({"credentials": [credential], "bindings": [{
            "name": "api", "match": {"hosts": ["other.example.com"]},
            "auth": {"type": "bearer", "credential": "token"},
        }]}),
        json!({"credentials": [credential], "bindings": [{
            "name": "api", "match": {"hosts": ["api.example.com"]},
            "auth": {"type": "apiKey", "name": "Host", "credential": "token"},
        }]}),
    ] {
        let answer = vault.ask("POST", "", Some(&refused));
        assert_eq!(answer.status, 400, "{refused}: {}", answer.text());
    }
    let made = vault.ask("POST", "", Some(&whole));
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        made.value(),
        json!({
            "revision": 1,
            "credentials": [{"name": "token", "sourceType": "inline", "revision": 1}],
            "bindings": [{
                "name": "api", "revision": 1,
                "match": {"schemes": ["https"], "ports": [443], "hosts": ["api.example.com"],
                          "methods": ["GET"], "paths": ["/v1/*"]},
                "auth": {"type": "bearer"},
            }],
        })
    );
    assert_eq!(vault.ask("POST", "", Some(&whole)).status, 409);
    for (change, status) in [
        (json!({"expectedRevision": 7, "bindings": {"delete": ["api"]}}), 409),
        (json!({"credentials": {"delete": ["token"]}}), 400),
        (json!({"credentials": {"delete": ["none"]}}), 404),
        (json!({"credentials": {"replace": [credential]}}), 200),
        (
            json!({"expectedRevision": 2, "bindings": {"delete": ["api"]},
                "credentials": {"delete": ["token"]}}),
            200,
        ),
    ] {
        let answer = vault.ask("PATCH", "", Some(&change));
        assert_eq!(answer.status, status, "{change}: {}", answer.text());
    }
    assert_eq!(vault.ask("GET", "", None).value()["revision"], 3);
    assert_eq!(vault.ask("GET", "/credentials/token", None).status, 404);
    assert_eq!(vault.ask("GET", "/bindings", None).value(), json!({"revision": 3, "bindings": []}));
    assert_eq!(vault.ask("DELETE", "", None).status, 204);
    assert_eq!(vault.ask("DELETE", "", None).status, 404);
    assert!(world.files_with(&world.data(), CANARY).is_empty());

    let other = server.create(&key);
    let vault = Vault::of(&server, &key, &other);
    let without = vault.ask("POST", "", Some(&whole));
    assert_eq!(without.status, 412, "{}", without.text());
}

as_root_and_as_user![credentials_have_revisions_and_no_value];
