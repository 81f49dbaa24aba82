//! `stockade mcp`: agents use it with the Model Context Protocol, here with the client library of
//! PyPI if `cargo xtask ci` has installed it.

mod documented;
pub(crate) mod over_http;
mod programs;
mod sandboxes;
mod session;
mod workspace;
mod wrapped;

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Identity, World, skip, tests_run_as_root};

/// The initial request and notification.
const HELLO: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\
    \"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\
    \"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}}\n\
    {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

fn call(id: u64, arguments: &Value) -> String {
    let params = json!({"name": "run_in_sandbox", "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    format!("{call}\n")
}

fn answers_in_the_protocol_alone(world: &World) {
    let hostile = json!({"source": "console.log(\"\\n{}\\u001b[2J\"); throw new Error(\"\\nx\");"});
    let input = format!("{HELLO}{}{}", call(1, &hostile), call(2, &json!({"source": ""})));
    let outcome = world.stockade(&["mcp"]).input(input).finish();
    outcome.succeeds();
    let mut answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let [hello, ran, refused] = answers.as_slice() else { panic!("{outcome}") };
    assert_eq!(hello["result"]["serverInfo"]["name"], "stockade");
    let transcript = &ran["result"]["structuredContent"];
    assert_eq!(transcript["logs"], json!(["[log] \n{}\u{1b}[2J"]), "{ran}");
    assert_eq!(transcript["errorCode"], json!("runtime-error"));
    assert_eq!(refused["result"]["isError"], json!(true));
    assert_eq!(outcome.stderr, "");
}

fn each_line_that_is_no_message_is_answered(world: &World) {
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n";
    for (before, after) in [(HELLO, ""), ("", HELLO)] {
        let input = format!("{before}nonsense\n[]\n\n{{\"a\"\n{after}{ping}");
        let outcome = world.stockade(&["mcp"]).input(input).finish();
        outcome.succeeds();
        let answers: Vec<Value> =
            outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let faults: Vec<_> = answers.iter().filter(|answer| answer["id"].is_null()).collect();
        let codes: Vec<_> = faults.iter().map(|fault| fault["error"]["code"].clone()).collect();
        assert_eq!(codes, [json!(-32700), json!(-32600), json!(-32700)], "{outcome}");
        assert!(answers.iter().any(|answer| answer["id"] == 7), "the session goes on: {outcome}");
    }
}

fn ends_with_its_input(world: &World) {
    let outcome = world.stockade(&["mcp"]).input("").finish();
    outcome.succeeds();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
}

fn serves_packages_of_a_directory(world: &World) {
    world.write("node_modules/a/package.json", "{\"version\": \"3.0.0\", \"type\": \"module\"}");
    world.write("node_modules/a/index.js", "export const a = 3;");
    let input = format!("{HELLO}{}", call(1, &json!({"source": "import { a } from \"a\"; a;"})));
    let flags = ["mcp", "--libraries", "node_modules", "--package", "a"];
    let outcome = world.stockade(&flags).input(input).finish();
    outcome.succeeds();
    let answer: Value = serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    let libraries = &answer["result"]["structuredContent"]["libraries"];
    assert_eq!(
        *libraries,
        json!([{"name": "a", "version": "3.0.0", "builtIn": false}]),
        "{answer}"
    );
    let absent = ["mcp", "--libraries", "nowhere"];
    let outcome = world.stockade(&absent).input(HELLO).finish();
    outcome.ends_with(1);
    assert_eq!(outcome.stdout, "");
}

as_root_and_as_user![
    answers_in_the_protocol_alone,
    each_line_that_is_no_message_is_answered,
    ends_with_its_input,
    serves_packages_of_a_directory,
];

/// The client, with each of its two handshakes.
#[test]
fn the_client_of_pypi_is_served() {
    let test = "mcp::the_client_of_pypi_is_served";
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/python/bin/python");
    if !python.exists() {
        skip(test, "the client mcp is not installed: cargo xtask ci installs it");
        return;
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages/mcp_client.py");
    let identity = if tests_run_as_root() { Identity::Root } else { Identity::User };
    let world = World::new(identity);
    let binary = world.binary();
    for mode in ["legacy", "auto"] {
        let arguments = [client.to_str().unwrap(), mode, binary.to_str().unwrap(), "mcp"];
        let outcome = world.on_host(&python, &arguments).finish();
        outcome.succeeds();
        let report = outcome.json();
        let tools = report["tools"].as_array().unwrap();
        for tool in ["create", "exec", "playground_link", "run_in_sandbox"] {
            assert!(tools.contains(&json!(tool)), "{tool}: {report}");
        }
        let counter = &report["counter"]["payload"];
        assert_eq!(counter["logs"], json!(["[log] count = 2"]), "{report}");
        assert_eq!(counter["facts"], json!({"count": 2}));
        assert_eq!(counter["derived"], json!({"isPositive": true}));
        assert_eq!(counter["errors"], json!([]));
        assert_eq!(report["denied"]["error"], json!(false));
        let denied = report["denied"]["payload"]["errors"][0].as_str().unwrap();
        assert!(denied.contains("identifier \"process\" is denied"), "{denied}");
        assert_eq!(report["both"]["error"], json!(true));
        let doubled: Vec<_> = (0..8).map(|n| json!([format!("[log] {}", n * 2)])).collect();
        assert_eq!(report["beside"], json!(doubled));
        assert_eq!(report["taken_back"], json!(true));
        assert_eq!(report["after"]["payload"]["logs"], json!(["[log] 1"]));
    }
}
