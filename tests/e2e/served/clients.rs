//! Released clients of OpenSandbox, unmodified, if `cargo xtask ci` has installed them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::balanced::{Pair, Turn, balancer};
use super::{Address, Server, key};
use crate::call::Outcome;
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// Where the packages are installed.
fn packages() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

/// A file of ours that uses a client.
fn script(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages");
    directory.join(name).to_str().unwrap().to_owned()
}

/// The page for users.
const PAGE: &str = include_str!("../../../docs/clients/opensandbox.md");

/// A server, and a client's program that uses it.
struct Setup {
    identity: Identity,
    world: World,
    server: Server,
    /// Where the client sends its requests.
    address: Address,
    key: String,
    program: PathBuf,
}

impl Setup {
    /// `None` if the client is not installed, which is reported as a skipped test.
    fn new(test: &str, program: PathBuf, installed: &str) -> Option<Self> {
        if !program.exists() || !packages().join(installed).exists() {
            let test = format!("served::clients::{test}");
            let reason = "the client is not installed: cargo xtask ci installs it";
            skip(&test, reason);
            return None;
        }
        stockade_test_support::require_nextest();
        // The packages are installed for the user of the tests.
        let identity = if tests_run_as_root() { Identity::Root } else { Identity::User };
        let world = World::new(identity);
        let server = Server::start(&world, &[]);
        let (key, _) = key(&world, &["--owner", "me"]);
        let address = *server;
        Some(Self { identity, world, server, address, key, program })
    }

    /// A program of an environment of Python.
    fn python(test: &str, environment: &str, program: &str) -> Option<Self> {
        let program = format!("{environment}/bin/{program}");
        Self::new(test, packages().join(&program), &program)
    }

    /// Runs the program with its addresses in the environment, as its users do.
    fn run(&self, arguments: &[&str]) -> Outcome {
        self.world
            .on_host(&self.program, arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OPEN_SANDBOX_DOMAIN", self.address.host())
            .env("OPEN_SANDBOX_API_KEY", &self.key)
            .env("NO_COLOR", "1")
            .finish()
    }

    fn report(&self, arguments: &[&str]) -> Value {
        let outcome = self.run(arguments);
        outcome.succeeds();
        outcome.json()
    }
}

/// What both versions of the library for Python observe.
fn python_library(test: &str, environment: &str) -> Option<Value> {
    let setup = Setup::python(test, environment, "python")?;
    Some(python_library_of(&setup))
}

/// The same behind a balancer with two servers, which gives each connection to the next one.
#[test]
fn opensandbox_for_python_behind_a_balancer() {
    let test = "opensandbox_for_python_behind_a_balancer";
    let Some(mut setup) = Setup::python(test, "opensandbox", "python") else { return };
    let world = World::new(setup.identity);
    let Some(pair) = Pair::new(&world) else { return };
    setup.key = key(&world, &["--owner", "me"]).0;
    setup.address = balancer(&[*pair.a, *pair.b], Turn::Connection);
    python_library_of(&setup);
}

fn python_library_of(setup: &Setup) -> Value {
    let (client, inside) =
        (script("opensandbox_client.py"), script("opensandbox_server_inside.py"));
    let report = setup.report(&[&client, &setup.address.host(), &setup.key, &inside]);
    assert_eq!(
        report["echo"],
        json!({ "stdout": ["hello", "", "end"], "stderr": ["oops"], "exit": 0 })
    );
    assert_eq!(report["failed"]["exit"], 3, "{report}");
    assert_eq!(report["environment"][0], "per call");
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
    assert_eq!(report["get"], "GET /a?b=c");
    assert_eq!(report["post"], "body");
    assert_eq!(report["socket"], json!([101, "echo over"]));
    assert_eq!(report["session"], json!(["/tmp", "kept"]));
    assert_eq!(report["healthy_when_paused"], json!(false), "{report}");
    assert_eq!(report["paused"], json!(["Paused", "Running", "still here"]));
    assert_eq!(report["listed"], json!(true), "{report}");
    assert_eq!(report["renewed"], json!(true), "{report}");
    assert_eq!(report["memory"], json!(true), "{report}");
    assert_eq!(report["killed"], json!(true), "{report}");
    assert_eq!(report["wrong_key"], 401, "{report}");
    report
}

#[test]
fn opensandbox_for_python() {
    let Some(report) = python_library("opensandbox_for_python", "opensandbox") else { return };
    assert_eq!(report["environment"], json!(["per call", "it's \"kept\""]));
    assert_eq!(report["extensions"], json!({ "opensandbox.extensions.own": "value" }));
    assert_eq!(report["lines"], json!(["line2\nline3", "line4\nline5", "line1\nline2"]));
}

#[test]
fn an_older_opensandbox_for_python() {
    python_library("an_older_opensandbox_for_python", "opensandbox-old");
}

#[test]
fn opensandbox_code_interpreter() {
    let test = "opensandbox_code_interpreter";
    let Some(setup) = Setup::python(test, "opensandbox", "python") else { return };
    let client = script("opensandbox_code_client.py");
    let report = setup.report(&[&client, &setup.server.host(), &setup.key]);
    assert_eq!(report["first"], json!([["out\n"], ["21"], 1]), "{report}");
    assert_eq!(report["state"], json!(["20"]));
    assert_eq!(report["error"], json!(["ZeroDivisionError", "division by zero"]));
    assert_eq!(report["bash"], json!(["5 /\n"]), "{report}");
    assert_eq!((&report["listed"], &report["found"]), (&json!([true]), &json!("bash")));
    assert_eq!(report["deleted"], 0, "{report}");
    assert_eq!(report["interrupted"], "KeyboardInterrupt", "{report}");
    assert_eq!(report["after"], json!(["2"]), "{report}");
}

#[test]
fn opensandbox_for_javascript() {
    let node = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("node"))
        .find(|node| node.exists());
    let test = "opensandbox_for_javascript";
    let package = "npm/node_modules/@alibaba-group/opensandbox";
    let Some(setup) = Setup::new(test, node.unwrap_or_default(), package) else { return };
    let modules = packages().join("npm/node_modules");
    let (client, inside) =
        (script("opensandbox_client.mjs"), script("opensandbox_server_inside.py"));
    let arguments = [&client, modules.to_str().unwrap(), &setup.server.host(), &setup.key, &inside];
    let report = setup.report(&arguments);
    let order = json!(["init", "complete"]);
    assert_eq!(
        report["echo"],
        json!({ "stdout": ["hello", "", "end"], "stderr": ["oops"], "exit": 0, "order": order })
    );
    assert_eq!(report["failed"], json!({ "exit": 3, "name": "CommandExecError" }));
    assert_eq!(report["environment"], json!(["per call", "/tmp"]));
    assert_eq!(report["timeout"], 124, "{report}");
    assert_eq!(report["interrupted"], json!(true), "{report}");
    assert_eq!(report["background"], json!({ "exit": 0, "running": false, "logs": "one\ntwo\n" }));
    assert_eq!(report["large"], 3_000_000);
    assert_eq!(report["binary"], json!(true), "{report}");
    assert_eq!((&report["range"], &report["mode"]), (&json!("2345"), &json!(640)));
    assert_eq!(report["moved"], "012x6789");
    assert_eq!(report["search"], json!(["/tmp/work/b.txt"]));
    assert_eq!(report["missing"], 404, "{report}");
    assert_eq!(report["get"], "GET /a?b=c");
    assert_eq!(report["post"], "body");
    assert_eq!(report["refused"], 401, "{report}");
    assert_eq!(report["socket"], "echo over");
    assert_eq!(report["session"], json!(["/tmp", "kept"]));
    assert_eq!(report["paused"], json!(["Paused", false, "Running", "still here"]));
    assert_eq!(report["renewed"], json!(true), "{report}");
    assert_eq!(report["memory"], json!(true), "{report}");
    assert_eq!(report["listed"], json!([true]));
    assert_eq!(report["extensions"], json!({ "opensandbox.extensions.own": "value" }));
    assert_eq!(report["killed"], 404, "{report}");
    assert_eq!(report["wrongKey"], 401, "{report}");
}

#[test]
fn osb() {
    let Some(setup) = Setup::python("osb", "opensandbox", "osb") else { return };
    let created = setup.report(&["sandbox", "create", "--image", "host", "-o", "json"]);
    let id = created["id"].as_str().unwrap();
    let listed = setup.report(&["sandbox", "list", "-o", "json"]);
    assert_eq!(listed["items"][0]["id"], id, "{listed}");
    let ran = setup.run(&["command", "run", id, "--", "echo", "from osb"]);
    ran.succeeds();
    assert!(ran.stdout.contains("from osb"), "{ran}");
    setup.run(&["file", "write", id, "/tmp/osb.txt", "-c", "content"]).succeeds();
    let read = setup.run(&["file", "cat", id, "/tmp/osb.txt"]);
    read.succeeds();
    assert!(read.stdout.contains("content"), "{read}");
    let events = setup.run(&["diagnostics", "events", id, "--scope", "all"]);
    events.succeeds();
    assert!(events.stdout.contains("SANDBOX_CREATED"), "{events}");
    for what in ["inspect", "summary"] {
        let text = setup.run(&["devops", what, id]);
        text.succeeds();
        assert!(text.stdout.contains(id), "{text}");
    }
    let taken = setup.report(&["snapshot", "create", id, "--name", "first", "-o", "json"]);
    let snapshot = taken["id"].as_str().unwrap();
    let listed = setup.report(&["snapshot", "list", "-o", "json"]);
    assert!(listed.to_string().contains(snapshot), "{listed}");
    assert!(listed.to_string().contains("first"), "{listed}");
    setup.run(&["snapshot", "delete", snapshot]).succeeds();
    setup.run(&["sandbox", "pause", id]).succeeds();
    setup.run(&["sandbox", "resume", id]).succeeds();
    setup.run(&["sandbox", "kill", id]).succeeds();
    let listed = setup.report(&["sandbox", "list", "-o", "json"]);
    assert_eq!(listed["items"], json!([]), "{listed}");
}

/// The programs of the page for users, in a language.
fn of_page(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let blocks = PAGE.split(begin.as_str()).skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

#[test]
fn the_page_for_users_is_true() {
    let Some(setup) = Setup::python("the_page_for_users_is_true", "opensandbox", "python") else {
        return;
    };
    let printed = |words: &[&str]| {
        let outcome = setup.run(words);
        outcome.succeeds();
        outcome.stdout
    };
    let outputs: Vec<_> = of_page("python").iter().map(|code| printed(&["-c", code])).collect();
    assert_eq!(outputs, ["Hello\n", "21\n"]);
    let [.., commands] = of_page("sh")[..] else { panic!("commands are expected") };
    let program = packages().join("opensandbox/bin/osb");
    let commands = commands.replace("osb ", &format!("'{}' ", program.display()));
    let code = format!("import os; os.execvp('bash', ['bash', '-ec', {}])", json!(commands));
    assert!(printed(&["-c", &code]).contains("hello"));
}

#[test]
fn opensandbox_mcp() {
    let Some(setup) = Setup::python("opensandbox_mcp", "opensandbox", "python") else { return };
    let client = script("opensandbox_mcp_client.py");
    let report = setup.report(&[&client, &setup.server.host(), &setup.key]);
    assert_eq!(report["state"], "Running");
    assert_eq!(report["healthy"]["healthy"], json!(true), "{report}");
    assert_eq!(report["run"]["exit_code"], 2, "{report}");
    assert_eq!(report["run"]["logs"]["stdout"][0]["text"], "hi");
    assert_eq!(report["run"]["logs"]["stderr"][0]["text"], "no");
    assert_eq!(report["read"]["content"], "text");
    assert_eq!(report["listed"], json!([true]));
    assert_eq!((&report["memory"], &report["endpoint"]), (&json!(true), &json!(true)));
}

/// Tests of LangChain that fail for reasons outside of the server: its backend for OpenSandbox returns
/// absolute paths where the tests expect relative ones.
const NOT_ABOUT_THE_SERVER: &str = "not glob";

#[test]
fn langchain() {
    let Some(setup) = Setup::python("langchain", "langchain", "python") else { return };
    let tests = script("test_langchain_opensandbox.py");
    let options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=120"];
    let mut arguments = vec!["-m", "pytest", &tests, "-k", NOT_ABOUT_THE_SERVER];
    arguments.extend(options);
    let outcome = setup.run(&arguments);
    outcome.succeeds();
    assert!(outcome.stdout.contains(" passed"), "{outcome}");
}
