//! The audit records: each operation has them, whichever way it is requested; and every change of the
//! stored records is found.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::World;
use crate::served::{Server, key};

fn log(world: &World) -> PathBuf {
    world.data().join("audit/log.jsonl")
}

/// The records, the oldest first.
fn records(world: &World) -> Vec<Value> {
    let listed = world.stockade(&["audit", "ls", "-n", "1000", "--json"]).finish();
    listed.succeeds();
    listed.json().as_array().unwrap().clone()
}

/// The records of an operation with a decision.
fn of<'a>(records: &'a [Value], operation: &str, decision: &str) -> Vec<&'a Value> {
    let is = |record: &&Value| record["operation"] == operation && record["decision"] == decision;
    records.iter().filter(is).collect()
}

#[track_caller]
fn is_intact(world: &World) {
    let verified = world.stockade(&["audit", "verify", "--json"]).finish();
    verified.succeeds();
    let report = verified.json();
    assert_eq!(report["valid"], true, "{report}");
    assert_eq!(report["records"], report["signed"], "{report}");
    assert_eq!(report["records"], report["checkpoint"], "{report}");
}

fn commands_without_a_server_are_recorded(world: &World) {
    world.write("file", "one\n");
    let secret = "sk-abcdefghijklmnop";
    world.run(&[], &["sh", "-c", &format!("echo two > file; echo {secret}")]).succeeds();
    let refused = world.run(&["--profile", "absent"], &["true"]);
    refused.ends_with(125);
    world.stockade(&["apply", "latest"]).finish().succeeds();
    world.stockade(&["undo"]).finish().succeeds();
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    world.stockade(&["reject", "0123456789abcdef"]).finish().ends_with(1);
    world.stockade(&["volume", "create", "data"]).finish().succeeds();
    let records = records(world);
    assert_eq!(of(&records, "run", "requested").len(), 1);
    let ran = of(&records, "run", "allowed");
    let [ran] = ran[..] else { panic!("{records:?}") };
    assert_eq!(ran["phase"], "ended");
    assert_eq!(ran["details"]["exitCode"], 0);
    assert_eq!(ran["details"]["command"][2], "echo two > file; echo ***");
    assert_eq!(ran["actor"]["door"], "command");
    assert_eq!(ran["actor"]["uid"], world.identity.uid());
    assert!(ran["details"]["bundle"].is_string(), "{ran}");
    let [refused] = of(&records, "run", "refused")[..] else { panic!("{records:?}") };
    assert_eq!(refused["reason"]["code"], "INVALID_INPUT");
    for operation in ["apply", "undo", "reject", "volume.create"] {
        assert_eq!(of(&records, operation, "allowed").len(), 1, "{operation}: {records:?}");
    }
    assert_eq!(of(&records, "reject", "refused").len(), 1, "{records:?}");
    assert!(!fs::read_to_string(log(world)).unwrap().contains(secret));
    is_intact(world);
}

fn operations_of_a_server_are_recorded_with_their_principals(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, id) = key(world, &["--owner", "me"]);
    let sandbox = server.create(&mine);
    let token = server.token(&mine, &sandbox, 44772);
    let run = format!("POST /v1/sandboxes/{sandbox}/proxy/44772/command");
    let request = json!({ "command": "echo done", "envs": { "NAME": "s3cr3t-value" } });
    let ran = server.json(&run, &[&token, "x-request-id: request-of-a-test"], &request);
    assert_eq!(ran.status, 200, "{}", ran.text());
    let wrong = format!("x-api-key: e2b_{}", "0".repeat(40));
    assert_eq!(server.request("GET /v1/sandboxes", &[&wrong], b"").status, 401);
    let (other, _) = key(world, &["--owner", "other"]);
    let own = format!("x-api-key: {other}");
    assert_eq!(
        server.request(&format!("DELETE /v1/sandboxes/{sandbox}"), &[&own], b"").status,
        404
    );
    world.stockade(&["keys", "revoke", &id]).finish().succeeds();
    let records = records(world);
    // One record of the start, one of the end.
    let [started, ended] = of(&records, "create", "allowed")[..] else { panic!("{records:?}") };
    assert_eq!((&started["phase"], &ended["phase"]), (&json!("started"), &json!("ended")));
    assert_eq!(ended["details"]["of"], started["id"]);
    for record in [started, ended] {
        assert_eq!(record["actor"]["owner"], "me");
        assert_eq!(record["actor"]["keyId"], *id);
        assert_eq!(record["actor"]["door"], "http");
    }
    let is_command = |record: &&Value| record["actor"]["requestId"] == "request-of-a-test";
    assert!(records.iter().any(|record| is_command(&record)), "{records:?}");
    let [refused] = of(&records, "kill", "refused")[..] else { panic!("{records:?}") };
    assert_eq!(refused["actor"]["owner"], "other");
    assert_eq!(refused["details"]["id"], *sandbox);
    assert_eq!(refused["reason"]["code"], "NOT_FOUND");
    let [wrong] = of(&records, "request", "refused")[..] else { panic!("{records:?}") };
    assert_eq!(wrong["reason"]["code"], "UNAUTHENTICATED");
    assert_eq!(wrong["details"]["request"], "GET /v1/sandboxes");
    assert_eq!(of(&records, "create_key", "allowed").len(), 4, "{records:?}");
    assert_eq!(of(&records, "revoke_key", "allowed").len(), 2, "{records:?}");
    let text = fs::read_to_string(log(world)).unwrap();
    assert!(!text.contains("s3cr3t-value"), "a value is recorded");
    assert!(!text.contains("e2b_"), "a key is recorded");
    is_intact(world);
}

fn a_changed_record_is_found(world: &World) {
    for _ in 0..3 {
        world.run(&[], &["true"]).succeeds();
    }
    is_intact(world);
    let log = log(world);
    let whole = fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let without = |index: usize| {
        let mut left = lines.clone();
        left.remove(index);
        left.join("\n") + "\n"
    };
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    let changes = [
        whole.replacen("\"true\"", "\"evil\"", 1),
        without(0),
        without(2),
        without(lines.len() - 1),
        swapped.join("\n") + "\n",
        String::new(),
        whole.trim_end().to_owned(),
        whole.clone() + lines[0] + "\n",
    ];
    for changed in changes {
        fs::write(&log, &changed).unwrap();
        let verified = world.stockade(&["audit", "verify", "--json"]).finish();
        verified.ends_with(1);
        assert_eq!(verified.json()["valid"], false, "{changed}");
        // A later operation does not hide it.
        world.run(&[], &["true"]).succeeds();
        world.stockade(&["audit", "verify"]).finish().ends_with(1);
        fs::write(&log, &whole).unwrap();
    }
}

fn records_are_exported_as_ocsf(world: &World) {
    world.run(&[], &["true"]).succeeds();
    let exported = world.stockade(&["audit", "export", "--format", "ocsf"]).finish();
    exported.succeeds();
    let events: Vec<Value> =
        exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2);
    for event in &events {
        assert_eq!(event["class_uid"], 6003);
        assert_eq!(event["category_uid"], 6);
        assert_eq!(event["api"]["operation"], "run");
        assert!(event["time"].is_i64() && event["metadata"]["version"].is_string(), "{event}");
    }
    assert_eq!(events[1]["status_id"], 1);
}

fn the_key_of_the_records_is_not_visible_in_a_sandbox(world: &World) {
    world.run(&[], &["true"]).succeeds();
    let key = world.home().join(".config/stockade/audit/key");
    assert!(key.exists());
    let shown = world.run(&[], &["cat", key.to_str().unwrap()]);
    assert_ne!(shown.code(), 0, "{shown}");
}

as_root_and_as_user!(
    commands_without_a_server_are_recorded,
    operations_of_a_server_are_recorded_with_their_principals,
    a_changed_record_is_found,
    records_are_exported_as_ocsf,
    the_key_of_the_records_is_not_visible_in_a_sandbox
);
