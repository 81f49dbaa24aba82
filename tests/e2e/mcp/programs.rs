//! Released programs, unmodified, if `cargo xtask ci` has installed them: the conformance suite, the
//! inspector, and the client library of PyPI over HTTP.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Identity, World, skip, tests_run_as_root};
use crate::served::{Server, key};

/// The scenarios of the suite that need no tools of its own.
const SCENARIOS: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

fn installed(test: &str, name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages").join(name);
    if path.exists() {
        return Some(path);
    }
    skip(test, &format!("{name} is not installed: cargo xtask ci installs it"));
    None
}

fn world() -> World {
    stockade_test_support::require_nextest();
    World::new(if tests_run_as_root() { Identity::Root } else { Identity::User })
}

#[test]
fn the_conformance_suite_is_content() {
    let test = "mcp::programs::the_conformance_suite_is_content";
    // The suite needs a newer Node.js than some systems have.
    let bun = "npm/node_modules/@oven/bun-linux-x64-baseline/bin/bun";
    let suite = "mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let (Some(bun), Some(suite)) = (installed(test, bun), installed(test, suite)) else { return };
    let world = world();
    let server = Server::start(&world, &[]);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    for scenario in SCENARIOS {
        let words =
            [suite.to_str().unwrap(), "server", "--url", url.as_str(), "--scenario", scenario];
        world.on_host(&bun, &words).finish().succeeds();
    }
}

#[test]
fn the_inspector_calls_tools() {
    let test = "mcp::programs::the_inspector_calls_tools";
    let inspector =
        "mcp/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let Some(inspector) = installed(test, inspector) else { return };
    let node = ["/usr/bin/node", "/usr/local/bin/node"].map(Path::new);
    let Some(node) = node.into_iter().find(|path| path.exists()) else {
        skip(test, "node is not installed");
        return;
    };
    let world = world();
    let binary = world.binary();
    let server = Server::start(&world, &[]);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let (key, _) = key(&world, &["--owner", "me"]);
    let auth = format!("Authorization: Bearer {key}");
    let stdio = [binary.to_str().unwrap(), "mcp"];
    let http = [url.as_str(), "--transport", "http", "--header", auth.as_str()];
    for target in [&stdio[..], &http[..]] {
        let inspect = |more: &[&str]| -> Value {
            let mut words = vec![inspector.to_str().unwrap(), "--cli"];
            words.extend(target);
            words.extend(more);
            let outcome = world.on_host(node, &words).finish();
            outcome.succeeds();
            outcome.json()
        };
        let tools = inspect(&["--method", "tools/list"]);
        let tools: Vec<_> = tools["tools"].as_array().unwrap().iter().collect();
        assert!(tools.iter().any(|tool| tool["name"] == "exec"), "{tools:?}");
        let created = inspect(&["--method", "tools/call", "--tool-name", "create"]);
        let id = created["structuredContent"]["sandbox"].as_str().unwrap().to_owned();
        let sandbox = format!("sandbox={id}");
        let words = ["--method", "tools/call", "--tool-name", "exec", "--tool-arg"];
        let mut words = words.to_vec();
        words.extend([sandbox.as_str(), "command=echo hello"]);
        let ran = inspect(&words);
        assert_eq!(ran["structuredContent"]["stdout"], "hello\n", "{ran}");
    }
}

#[test]
fn the_client_of_pypi_is_served_over_http() {
    let test = "mcp::programs::the_client_of_pypi_is_served_over_http";
    let Some(python) = installed(test, "python/bin/python") else { return };
    let client =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages/mcp_sandboxes.py");
    let world = world();
    let server = Server::start(&world, &[]);
    let (key, _) = key(&world, &["--owner", "me"]);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    for mode in ["legacy", "auto"] {
        let words = [client.to_str().unwrap(), mode, url.as_str(), key.as_str()];
        let outcome = world.on_host(&python, &words).env("PYTHONDONTWRITEBYTECODE", "1").finish();
        outcome.succeeds();
        let report = outcome.json();
        assert_eq!(report["stdout"], "hello\n", "{report}");
        assert_eq!(report["exit"], json!(0));
        assert_eq!(report["progress"], json!(["one\n", "two\n"]), "{report}");
        assert_eq!(report["read"], "text");
        assert_eq!(report["refused"], json!(true), "{report}");
        assert_eq!(report["cancelled"], json!(true), "{report}");
        assert_eq!(report["after"], json!(0), "{report}");
    }
}
