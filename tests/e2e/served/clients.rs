//! Released client libraries, unmodified, if `cargo xtask ci` has installed them.

use std::path::Path;

use serde_json::json;

use super::{Server, key};
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// The packages are installed for the user of the tests.
#[test]
fn opensandbox_for_python() {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/opensandbox/bin/python");
    if !python.exists() {
        let test = "served::clients::opensandbox_for_python";
        skip(test, "the client opensandbox is not installed: cargo xtask ci installs it");
        return;
    }
    let client =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages/opensandbox_client.py");
    stockade_test_support::require_nextest();
    let world = World::new(if tests_run_as_root() { Identity::Root } else { Identity::User });
    let server = Server::start(&world, &[]);
    let (key, _) = key(&world, &["--owner", "me"]);
    let outcome = world
        .on_host(&python, &[client.to_str().unwrap(), &server.host(), &key])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .finish();
    outcome.succeeds();
    let report = outcome.json();
    assert_eq!(
        report["echo"],
        json!({ "stdout": ["hello", "", "end"], "stderr": ["oops"], "exit": 0 })
    );
    assert_eq!(report["failed"]["exit"], 3, "{report}");
    assert_eq!(report["environment"], json!(["per call", "it's \"kept\""]));
    assert_eq!(report["timeout"]["exit"], 124, "{report}");
    assert_eq!(report["interrupted"], json!(true), "{report}");
    assert_eq!(report["background"], json!({ "exit": 0, "running": false, "logs": "one\ntwo\n" }));
    assert_eq!(report["large"], 3_000_000);
    assert_eq!(report["binary"], json!(true), "{report}");
    assert_eq!(report["range"], "2345");
    assert_eq!(report["info"], json!({ "mode": 755, "size": 3, "type": "file" }));
    assert_eq!(report["search"], json!(["/tmp/work/a.txt"]));
    assert_eq!(report["replaced"], "x-y");
    assert_eq!(report["moved"], "x-y");
    assert_eq!(report["missing"], 404, "{report}");
    assert_eq!(report["session"], json!(["/tmp", "kept"]));
    assert_eq!(report["paused"], json!(["Paused", "Running", "still here"]));
    assert_eq!(report["listed"], json!(true), "{report}");
    assert_eq!(report["renewed"], json!(true), "{report}");
    assert_eq!(report["memory"], json!(true), "{report}");
    assert_eq!(report["killed"], json!(true), "{report}");
    assert_eq!(report["wrong_key"], 401, "{report}");
}
