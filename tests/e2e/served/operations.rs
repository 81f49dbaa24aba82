//! Every operation of OpenSandbox is served, or refused with 501: none is unknown.

use serde_json::{Value, json};

use super::{Server, key};
use crate::harness::World;

/// The list, as a file of the cases of other systems.
const OPERATIONS: &str = include_str!("../../cases/opensandbox/operations.txt");

/// What is refused as not supported, by the beginning of its path.
const UNSUPPORTED: [&str; 1] = ["lifecycle /templates"];
/// The operation on pools that is: the one pool can be read.
const NO_OTHER_POOL: [&str; 3] = ["lifecycle", "POST", "/pools"];

fn every_operation_is_served_or_unsupported(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let operations: Vec<[&str; 3]> = OPERATIONS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split(' ');
            std::array::from_fn(|_| words.next().unwrap())
        })
        .collect();
    assert!(operations.len() > 100, "{}", operations.len());
    let api_key = format!("x-api-key: {key}");
    let mut wrong = Vec::new();
    let mut id = server.create(&key);
    for [part, method, path] in operations {
        if part == "lifecycle" && method == "DELETE" && path == "/sandboxes/{sandbox}" {
            id = server.create(&key);
        }
        let named = path
            .replace("{sandbox}", &id)
            .replace("{port}", "8000")
            .replace("{uid}/{gid}", "1000/1000")
            .replace("{snapshot}", "none")
            .replace("{session}", "00000000-0000-0000-0000-000000000000")
            .replace("{other}", "none");
        let port = match part {
            "execd" => Some(44772),
            "egress" => Some(18080),
            _ => None,
        };
        let (credential, place) = match port {
            None => (api_key.clone(), "/v1".to_owned()),
            Some(port) => {
                let token = server.token(&key, &id, port);
                (token, format!("/v1/sandboxes/{id}/proxy/{port}"))
            }
        };
        if path == "/metrics/watch" {
            // It does not end; its other tests read it.
            continue;
        }
        let line = format!("{method} {place}{named}");
        let answer = server.json(&line, &[&credential], &Value::Null);
        let is_unsupported = UNSUPPORTED.iter().any(|prefix| {
            let (of, prefix) = prefix.split_once(' ').unwrap();
            of == part && (path == prefix || path.starts_with(&format!("{prefix}/")))
        });
        let is_unsupported = is_unsupported || [part, method, path] == NO_OTHER_POOL;
        let text = answer.text();
        let is_unknown = answer.status == 405 || text.contains("there is no path");
        let is_refused = answer.status == 501;
        if is_unknown
            || is_refused != is_unsupported
            || answer.status == 500
            || (is_refused && answer.value()["code"] != json!("UNSUPPORTED"))
        {
            wrong.push(format!("{part} {method} {path}: {} {text}", answer.status));
        }
        // It may have ended the sandbox.
        let one = format!("GET /v1/sandboxes/{id}");
        let state = server.json(&one, &[&api_key], &Value::Null).value();
        if state["status"]["state"] != "Running" {
            id = server.create(&key);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

as_root_and_as_user!(every_operation_is_served_or_unsupported);
