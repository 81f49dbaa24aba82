//! What a program inside tries with a secret that it may use: to use it for another request than the one
//! that it is bound to, and to get it back in a form that it has chosen.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_egress_control::Credential;

use crate::intercept_tests::{VALUE, host, host_with, send_request};
use crate::testing::World;
use crate::trust::Trust;

const PLACEHOLDER: &str = "sk-placeholder-000001";

/// A sandbox with one secret for some requests, and the authority that programs inside trust.
async fn world(requests: Value, outside: &str) -> (World, String) {
    let world = World::new(&["allow api.example", "allow 127.0.0.1"]).await;
    let place = json!({ "placeholder": PLACEHOLDER });
    let binding = json!({
        "credential": "key", "hosts": ["api.example"], "place": place, "requests": requests,
    });
    let credential: Credential =
        serde_json::from_value(json!({"binding": binding, "value": VALUE})).unwrap();
    let policy = stockade_core::network::Policy::clone(&world.sandbox.policy().borrow());
    let trust = Trust::from_pem(outside.as_bytes()).unwrap();
    let installed = world.sandbox.set_credentials(policy, vec![credential], trust).unwrap();
    (world, installed.authorities)
}

#[tokio::test]
async fn a_secret_for_some_requests_is_in_none_that_a_server_takes_for_another() {
    let (outside, trusted) = host("api.example").await;
    let some = json!({"methods": ["POST"], "paths": ["/v1/items"]});
    let (world, authority) = world(some, &trusted).await;
    let send = async |target: &str, header: &str| {
        let text = format!(
            "POST {target} HTTP/1.1\r\nHost: api.example\r\nX-Key: {PLACEHOLDER}\r\n{header}\r\n"
        );
        send_request(&world, outside, &authority, "api.example", &text).await.unwrap()
    };
    assert!(send("/v1/items?x=1", "").await.ends_with("seen: true"));
    for (target, header) in [
        ("/v1/items", "X-HTTP-Method-Override: DELETE\r\n"),
        ("/v1/items", "x_http_method_override: DELETE\r\n"),
        ("/v1/items?_method=DELETE", ""),
        ("/v1/items?%5Fmethod=DELETE", ""),
        ("/v1/items", "X-Original-URL: /v1/keys\r\n"),
        ("/v1/items", "X-Forwarded-Prefix: /v1/keys\r\n"),
        ("/v1/items", "X-Forwarded-Uri: /v1/keys\r\n"),
        ("/v1/items", "Destination: /v1/keys\r\n"),
        ("/v1/items/../keys", ""),
        ("/v1/Items", ""),
    ] {
        let answer = send(target, header).await;
        assert!(answer.ends_with("seen: false"), "{target} {header} {answer}");
    }
}

#[tokio::test]
async fn a_request_with_a_secret_names_no_other_port() {
    let (outside, trusted) = host("api.example").await;
    let (mut world, authority) = world(json!({}), &trusted).await;
    for (target, named, is_sent) in [
        ("/", "api.example:443", true),
        ("/", "API.example.:", true),
        ("/", "api.example:8443", false),
        ("http://api.example:8443/", "api.example", false),
        ("/", "api.example:80", false),
    ] {
        let text =
            format!("GET {target} HTTP/1.1\r\nHost: {named}\r\nX-Key: {PLACEHOLDER}\r\n\r\n");
        let answer = send_request(&world, outside, &authority, "api.example", &text).await.unwrap();
        assert_eq!(answer.ends_with("seen: true"), is_sent, "{named} {answer}");
        if !is_sent {
            assert_eq!(world.refusal().await, "name-mismatch", "{named}");
        }
    }
}

/// The command writes the value in base64, by its choice; the host repeats the request in base64.
#[tokio::test]
async fn a_value_does_not_come_back_encoded_twice() {
    let respond = |text: &str| {
        let body = STANDARD.encode(text);
        format!("HTTP/1.1 200 OK\r\nX-Seen: {body}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let (outside, trusted) = host_with("api.example", true, respond).await;
    let (world, authority) = world(json!({}), &trusted).await;
    for user in ["", "u", "us", "user"] {
        for padding in ["", "a", "ab"] {
            let basic = |password: &str| STANDARD.encode(format!("{user}:{password}"));
            let text = format!(
                "GET /{padding} HTTP/1.1\r\nHost: api.example\r\nAuthorization: Basic {}\r\n\r\n",
                basic(PLACEHOLDER)
            );
            let answer =
                send_request(&world, outside, &authority, "api.example", &text).await.unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK") && body.contains("****"), "{answer}");
            // What is not covered has no part of the value.
            let repeated = STANDARD.encode(text.replace(&basic(PLACEHOLDER), &basic(VALUE)));
            let parts = body.split('*').filter(|part| part.len() > 8);
            assert!(parts.clone().count() <= 3, "{body}");
            let covered = body.matches('*').count();
            assert!(covered >= basic(VALUE).len() && !body.contains(&repeated), "{body}");
            assert!(!head.contains(&repeated[repeated.len() / 2..]), "{head}");
        }
    }
}

#[tokio::test]
async fn messages_come_back_uncompressed() {
    let (outside, trusted) = host("api.example").await;
    let (world, authority) = world(json!({}), &trusted).await;
    let text = format!(
        "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/grpc-web+proto\r\n\
         Grpc-Accept-Encoding: gzip\r\nConnect-Accept-Encoding: gzip\r\nAccept_Encoding: gzip\r\n\
         X-Key: {PLACEHOLDER}\r\nContent-Length: 0\r\n\r\n"
    );
    let answer = send_request(&world, outside, &authority, "api.example", &text).await.unwrap();
    assert!(answer.contains("grpc-accept-encoding: identity"), "{answer}");
    assert!(answer.ends_with("seen: true") && !answer.contains("gzip"), "{answer}");
}
