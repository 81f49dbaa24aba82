//! `/secrets` of E2B, and the headers of a sandbox's network that name one.

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::World;

const VALUE: &str = "sk-Zq83hTnw04LxvUe7-e2b-canary";

fn secrets_are_those_of_the_vault(world: &World) {
    let server = Server::start(world, &[]);
    let (own, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "you"]);
    let ask = |key: &str, line: &str, body: &Value| {
        let header = format!("X-API-Key: {key}");
        let answer = server.json(line, &[&header], body);
        assert!(!answer.text().contains(VALUE), "{line}: {}", answer.text());
        answer
    };
    let new = json!({"name": "Api-Key", "value": VALUE});
    let created = ask(&own, "POST /secrets", &new);
    assert_eq!(created.status, 201, "{}", created.text());
    let created = created.value();
    assert_eq!((&created["name"], &created["currentVersion"]), (&json!("api-key"), &json!(1)));
    assert!(created["secretID"].as_str().unwrap().starts_with("sec_"), "{created}");
    for member in ["metadata", "createdAt", "updatedAt"] {
        assert!(!created[member].is_null(), "{member}");
    }
    assert_eq!(ask(&own, "POST /secrets", &new).status, 409);
    let id = created["secretID"].as_str().unwrap();
    for name in [id, "api-key", "API-KEY"] {
        let shown = ask(&own, &format!("GET /secrets/{name}"), &Value::Null);
        assert_eq!((shown.status, &shown.value()), (200, &created), "{name}");
        assert_eq!(ask(&other, &format!("GET /secrets/{name}"), &Value::Null).status, 404);
    }
    let other_value = json!({"value": format!("{VALUE}-2")});
    let updated = ask(&own, &format!("POST /secrets/{id}"), &other_value);
    assert_eq!((updated.status, &updated.value()["currentVersion"]), (200, &json!(2)));
    for bad in [
        json!({"name": "sec_mine", "value": VALUE}),
        json!({"name": "a b", "value": VALUE}),
        json!({"name": "b", "value": ""}),
        json!({"name": "b", "value": VALUE, "metadata": {"a": "b"}}),
    ] {
        let refused = ask(&own, "POST /secrets", &bad).status;
        assert!((400..502).contains(&refused), "{bad}: {refused}");
    }
    ask(&own, "POST /secrets", &json!({"name": "second", "value": VALUE}));
    let first = ask(&own, "GET /secrets?limit=1", &Value::Null);
    assert_eq!(first.value().as_array().unwrap().len(), 1);
    let next = first.head.to_lowercase();
    let (_, next) = next.split_once("x-next-token: ").unwrap();
    let next = next.lines().next().unwrap().trim();
    let rest = ask(&own, &format!("GET /secrets?limit=1&nextToken={next}"), &Value::Null);
    assert_eq!(rest.value()[0]["name"], "second", "{}", rest.text());
    assert_eq!(ask(&other, "GET /secrets", &Value::Null).value(), json!([]));

    // A sandbox whose requests have it.
    let headers = json!({"Authorization": "Bearer ${e2b.secrets.api-key}"});
    let sandbox = |headers: &Value| {
        json!({"templateID": "base", "network": {
            "rules": {"api.example.com": [{"transform": {"headers": headers}}]},
        }})
    };
    let made = ask(&own, "POST /sandboxes", &sandbox(&headers));
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.value()["sandboxID"].as_str().unwrap().to_owned();
    for refused in [
        json!({"Authorization": "Bearer ${e2b.secrets.none}"}),
        json!({"X-Key": "plain"}),
        json!({"X-Key": "${e2b.secrets.api-key} and more"}),
    ] {
        let answer = ask(&own, "POST /sandboxes", &sandbox(&refused));
        assert!((400..502).contains(&answer.status), "{refused}: {}", answer.status);
    }
    // One of another owner is unknown.
    assert!((400..502).contains(&ask(&other, "POST /sandboxes", &sandbox(&headers)).status));
    assert_eq!(ask(&own, &format!("DELETE /sandboxes/{id}"), &Value::Null).status, 204);
    assert_eq!(ask(&own, "DELETE /secrets/second", &Value::Null).status, 204);
    assert_eq!(ask(&own, "DELETE /secrets/second", &Value::Null).status, 404);
    assert!(world.files_with(&world.data(), VALUE).is_empty());
}

as_root_and_as_user![secrets_are_those_of_the_vault];
