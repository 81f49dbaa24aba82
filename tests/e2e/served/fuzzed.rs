//! Requests that schemathesis makes from the OpenAPI document, if `cargo xtask ci` has installed it: none
//! fails in the server.

use std::path::Path;

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::{Identity, World, skip, tests_run_as_root};

const DOCUMENT: &str = include_str!("../../../docs/openapi.json");
/// The most seconds.
const SECONDS: &str = "30";
/// Routes that end the sandbox, stop it, or never end themselves.
const LEFT_OUT: [(&str, &str); 13] = [
    ("/v1/sandboxes/{id}", "delete"),
    ("/v1/sandboxes/{id}/pause", "post"),
    ("/v1/sandboxes/{id}/snapshots", "post"),
    ("/v1/sandboxes", "post"),
    ("/v1/sandboxes/{id}/proxy/44772/metrics/watch", "get"),
    ("/sandboxes", "post"),
    ("/v2/sandboxes", "post"),
    ("/sandboxes/{id}", "delete"),
    ("/sandboxes/{id}/connect", "post"),
    ("/sandboxes/{id}/fork", "post"),
    ("/sandboxes/{id}/pause", "post"),
    ("/sandboxes/{id}/snapshots", "post"),
    ("/sandboxes/{id}/timeout", "post"),
];

/// The document about one sandbox, without what is not available.
fn document(id: &str) -> Value {
    let mut document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object_mut().unwrap();
    paths.retain(|path, methods| {
        let methods = methods.as_object_mut().unwrap();
        methods.retain(|method, operation| {
            // These need headers that name a port.
            let is_about_code = operation.pointer("/security/0/E2B-Traffic-Access-Token").is_some();
            let is_available = operation.pointer("/responses/501").is_none();
            is_available && !is_about_code && !LEFT_OUT.contains(&(path, method))
        });
        for operation in methods.values_mut() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                if parameter["name"] == "id" && parameter["in"] == "path" {
                    parameter["schema"] = json!({ "type": "string", "enum": [id] });
                }
            }
        }
        // Those under other host names have a server of their own.
        methods.retain(|_, operation| operation.get("servers").is_none());
        // The operations of Stockade's own clients end the sandbox, too, and work on files of the server.
        !methods.is_empty()
            && !path.contains("/proxy/{port}")
            && !path.starts_with("/stockade/")
            && path != "/metrics"
    });
    document
}

#[test]
fn no_request_of_the_document_fails_in_the_server() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/schemathesis/bin");
    let program = directory.join("schemathesis");
    if !program.exists() {
        let test = "served::fuzzed::no_request_of_the_document_fails_in_the_server";
        skip(test, "schemathesis is not installed: cargo xtask ci installs it");
        return;
    }
    stockade_test_support::require_nextest();
    let world = World::new(if tests_run_as_root() { Identity::Root } else { Identity::User });
    let server = Server::start(&world, &[]);
    let (key, _) = key(&world, &["--owner", "me"]);
    let id = server.create(&key);
    let file = world.write("openapi.json", document(&id).to_string());
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages");
    let url = format!("http://{}", server.host());
    let connected = server.json(
        &format!("POST /v2/sandboxes/{id}/connect"),
        &[&format!("X-API-KEY: {key}")],
        &json!({ "timeout": 600 }),
    );
    let headers = [
        format!("X-Access-Token: {}", connected.value()["envdAccessToken"].as_str().unwrap()),
        format!("OPEN-SANDBOX-API-KEY: {key}"),
        server.token(&key, &id, 44772),
        server.token(&key, &id, 18080),
    ];
    let file = file.to_str().unwrap();
    let mut words = vec!["run", file, "--url", &url, "--checks", "is_answered"];
    words.extend(["--phases", "examples,coverage,fuzzing", "--max-examples", "20"]);
    words.extend(["--max-time", SECONDS, "--request-timeout", "20", "--seed", "1"]);
    words.extend(["--continue-on-failure", "--no-color", "--warnings", "off", "--mode", "all"]);
    words.extend(["--suppress-health-check", "all", "--generation-database", "none"]);
    for header in &headers {
        words.extend(["--header", header]);
    }
    let outcome = world
        .on_host(&program, &words)
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", hooks)
        .env("STOCKADE_TEST_SANDBOX", &id)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .deadline(150)
        .finish();
    outcome.succeeds();
    assert!(outcome.stdout.contains("Test cases:"), "{outcome}");
    let health = server.request("GET /health", &[], b"");
    assert_eq!(health.status, 200, "{}", health.text());
}
