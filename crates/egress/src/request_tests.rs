//! Requests that are checked by their methods and paths, and credentials that programs inside have no
//! placeholder for.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Value, json};
use stockade_core::network::Policy;
use stockade_egress_control::Credential;

use crate::intercept_tests::{VALUE, host, host_with, send_request, send_request_after};
use crate::testing::World;
use crate::trust::Trust;

fn policy(rules: Value) -> Policy {
    serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap()
}

/// A sandbox with this policy and these credentials, and the authority that programs inside trust.
async fn world(policy: Policy, bindings: &[(Value, &str)], outside: &str) -> (World, String) {
    let world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
    let credential = |(binding, value): &(Value, &str)| -> Credential {
        serde_json::from_value(json!({"binding": binding, "value": value})).unwrap()
    };
    let credentials = bindings.iter().map(credential).collect();
    let trust = Trust::from_pem(outside.as_bytes()).unwrap();
    let installed = world.sandbox.set_credentials(policy, credentials, trust).unwrap();
    (world, installed.authorities)
}

fn open() -> Value {
    json!([
        {"action": "allow", "target": "api.example"}, {"action": "allow", "target": "127.0.0.1"},
    ])
}

fn line(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test]
async fn a_request_is_allowed_by_its_method_and_path() {
    let rules = json!([
        {"action": "allow", "target": "127.0.0.1"},
        {"action": "allow", "target": "api.example",
         "requests": {"methods": ["GET"], "paths": ["/v1/*", "/exact"]}},
        {"action": "allow", "target": "api.example",
         "requests": {"methods": ["POST"], "paths": ["/v1/items"]}},
        {"action": "deny", "target": "api.example", "requests": {"paths": ["/v1/admin/*"]}},
    ]);
    let (outside, authority) = host("api.example").await;
    let (world, trusted) = world(policy(rules), &[], &authority).await;
    for (request, refused) in [
        ("GET /v1/items?x=/../admin", None),
        ("GET /exact", None),
        ("POST /v1/items", None),
        ("POST /v1/other", Some("request-not-allowed")),
        ("GET /exact/", Some("request-not-allowed")),
        ("GET /", Some("request-not-allowed")),
        ("GET /v1/admin/users", Some("denied")),
        ("DELETE /v1/items", Some("request-not-allowed")),
        ("GET /v1/x/../admin/users", Some("invalid-request")),
        ("GET /v1/%61dmin/users", Some("invalid-request")),
        ("GET /v1//admin/users", Some("invalid-request")),
        ("GET /v1/x%2f..%2fadmin", Some("invalid-request")),
        ("GET /v1\\admin", Some("invalid-request")),
    ] {
        let sent = send_request(&world, outside, &trusted, "api.example", &line(request)).await;
        let answer = sent.unwrap();
        match refused {
            None => assert!(answer.contains("200 OK"), "{request}: {answer}"),
            Some(reason) => {
                let told = format!("Stockade-Egress-Refused: {reason}");
                assert!(answer.contains(&told), "{request}: {answer}");
                assert!(!answer.contains("200 OK"), "{request}: {answer}");
            }
        }
    }
}

/// A connection that was made before a change has no request under the old policy, and no credential
/// that was removed.
#[tokio::test]
async fn a_request_is_checked_under_the_policy_at_its_arrival() {
    let rules = |path: &str| {
        json!([
            {"action": "allow", "target": "127.0.0.1"},
            {"action": "allow", "target": "api.example", "requests": {"paths": [path]}},
        ])
    };
    let place = json!({"header": {"name": "Authorization", "prefix": "Bearer "}});
    let binding = json!({"credential": "key", "hosts": ["api.example"], "place": place});
    let (outside, authority) = host("api.example").await;
    let (world, trusted) = world(policy(rules("/v1/*")), &[(binding, VALUE)], &authority).await;
    let send = async |target: &str, act: &dyn Fn()| {
        let request = line(target);
        let name = "api.example";
        send_request_after(&world, outside, &trusted, name, &request, act).await.unwrap()
    };
    let answer = send("GET /v1/a", &|| ()).await;
    assert!(answer.contains("seen: true"), "{answer}");
    let without_credential = || {
        let trust = Trust::from_pem(authority.as_bytes()).unwrap();
        world.sandbox.set_credentials(policy(rules("/v1/*")), Vec::new(), trust).unwrap();
    };
    let answer = send("GET /v1/a", &without_credential).await;
    assert!(answer.contains("seen: false"), "{answer}");
    let narrower = || world.sandbox.set_policy(policy(rules("/v2/*"))).unwrap();
    let answer = send("GET /v1/a", &narrower).await;
    assert!(answer.contains("Stockade-Egress-Refused: request-not-allowed"), "{answer}");
}

#[tokio::test]
async fn each_kind_of_credential_has_its_place() {
    let basic = STANDARD.encode(format!("user:{VALUE}"));
    let binding =
        |place: Value| json!({"credential": "key", "hosts": ["api.example"], "place": place});
    let header = |name: &str, prefix: &str| json!({"header": {"name": name, "prefix": prefix}});
    for (place, value, expected) in [
        (
            header("Authorization", "Bearer "),
            VALUE.to_owned(),
            format!("Authorization: Bearer {VALUE}"),
        ),
        (header("Authorization", "Basic "), basic.clone(), format!("Authorization: Basic {basic}")),
        (header("X-Api-Key", ""), VALUE.to_owned(), format!("X-Api-Key: {VALUE}")),
        (
            json!({"query": {"name": "key"}}),
            VALUE.to_owned(),
            format!("GET /a?b=1&key={VALUE} HTTP/1.1"),
        ),
    ] {
        // It tells whether it has seen it, and repeats it in every form.
        let (form, repeated) = (expected.clone(), value.clone());
        let (outside, authority) = host_with("api.example", true, move |text| {
            let seen = text.contains(&form);
            let own = repeated.clone();
            let forms = [
                own.clone(),
                STANDARD_NO_PAD.encode(&own),
                own.bytes().map(|byte| format!("{byte:02x}")).collect(),
                VALUE.to_owned(),
                format!("user:{VALUE}"),
            ];
            format!(
                "HTTP/1.1 200 OK\r\nX-Echo: {}\r\nConnection: close\r\n\r\nseen: {seen}\n{}\n",
                forms.join(" | "),
                forms.join("\n")
            )
        })
        .await;
        let (world, trusted) =
            world(policy(open()), &[(binding(place), value.as_str())], &authority).await;
        // What the program itself has put there is removed.
        let request = "GET /a?key=own&b=1&%6bey=own HTTP/1.1\r\nHost: api.example\r\n\
                       Authorization: own\r\nx-api-key: own\r\n\r\n";
        let answer = send_request(&world, outside, &trusted, "api.example", request).await.unwrap();
        assert!(answer.contains("seen: true"), "{expected}: {answer}");
        for hidden in [VALUE, basic.as_str(), STANDARD_NO_PAD.encode(&value).as_str()] {
            assert!(!answer.contains(hidden), "{expected}: {hidden}: {answer}");
        }
        let digits: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!answer.contains(&digits), "{expected}: {answer}");
    }
}

#[tokio::test]
async fn a_credential_is_for_the_requests_that_it_is_bound_to() {
    let other = "sk-another-value-Zq83hTnw04LxvUe7";
    let binding = |host: &str, requests: Value| {
        json!({
            "credential": host, "hosts": [host], "requests": requests,
            "place": {"header": {"name": "Authorization", "prefix": ""}},
        })
    };
    let rules = json!([
        {"action": "allow", "target": "api.example"}, {"action": "allow", "target": "*.example"},
        {"action": "allow", "target": "127.0.0.1"},
    ]);
    let reading = json!({"methods": ["GET"], "paths": ["/v1/*"]});
    let bindings =
        [(binding("*.example", json!({})), other), (binding("api.example", reading), VALUE)];
    let (outside, authority) = host_with("api.example", true, move |text| {
        let seen = [VALUE, other].map(|value| text.contains(value));
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{seen:?}")
    })
    .await;
    let (world, trusted) = world(policy(rules), &bindings, &authority).await;
    for (request, seen) in [
        // The binding to the exact name beats that of all names, where it applies.
        ("GET /v1/x", "[true, false]"),
        ("POST /v1/x", "[false, true]"),
        ("GET /v2/x", "[false, true]"),
        ("GET /v1/../v1/x", "[false, true]"),
    ] {
        let sent = send_request(&world, outside, &trusted, "api.example", &line(request)).await;
        assert!(sent.as_ref().unwrap().contains(seen), "{request}: {sent:?}");
    }
}
