//! Released clients of E2B, unmodified, if `cargo xtask ci` has installed them.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::balanced::{Pair, Turn, balancer};
use super::{Address, Server, key};
use crate::call::{Call, Outcome};
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// Where the packages are installed.
pub(super) fn packages() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

/// A file of ours that uses a client.
pub(super) fn script(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packages");
    directory.join(name).to_str().unwrap().to_owned()
}

/// A server, and a client's program that uses it.
pub(super) struct Setup {
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
        Self::of(&format!("served::e2b::{test}"), program, installed)
    }

    /// The same for the test with this whole name.
    pub(super) fn of(test: &str, program: PathBuf, installed: &str) -> Option<Self> {
        if !program.exists() || !packages().join(installed).exists() {
            skip(test, "the client is not installed: cargo xtask ci installs it");
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

    /// Runs the program with the variables that its users set.
    pub(super) fn run(&self, arguments: &[&str]) -> Outcome {
        self.call(arguments).finish()
    }

    /// The same, to be started.
    pub(super) fn call(&self, arguments: &[&str]) -> Call {
        let url = format!("http://{}", self.address.host());
        self.world
            .on_host(&self.program, arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("E2B_API_URL", &url)
            .env("E2B_SANDBOX_URL", &url)
            .env("E2B_VOLUME_API_URL", &url)
            .env("E2B_API_KEY", &self.key)
    }

    pub(super) fn report(&self, arguments: &[&str]) -> Value {
        let outcome = self.run(arguments);
        outcome.succeeds();
        outcome.json()
    }
}

/// What every version of the library for Python observes.
fn python_library(test: &str, environment: &str) -> Option<Value> {
    let program = format!("{environment}/bin/python");
    let setup = Setup::new(test, packages().join(&program), &program)?;
    Some(python_library_of(&setup))
}

/// The same behind a balancer with two servers, which gives each request to the next one.
#[test]
fn e2b_for_python_behind_a_balancer() {
    let (test, program) = ("served::e2b::e2b_for_python_behind_a_balancer", "e2b/bin/python");
    let Some(mut setup) = Setup::of(test, packages().join(program), program) else { return };
    let world = World::new(setup.identity);
    let Some(pair) = Pair::new(&world) else { return };
    setup.key = key(&world, &["--owner", "me"]).0;
    setup.address = balancer(&[*pair.a, *pair.b], Turn::Request);
    python_library_of(&setup);
}

fn python_library_of(setup: &Setup) -> Value {
    let report = setup.report(&[&script("e2b_client.py")]);
    for (name, expected) in [
        ("running", json!(true)),
        ("host", json!(true)),
        ("echo", json!(["hello\n", "oops\n", 0])),
        ("failed", json!([3, "out\n"])),
        ("environment", json!(["call", "shared", "true"])),
        ("user", json!(["user", "/home/user"])),
        ("root", json!(["0", "/root"])),
        ("cwd", json!("/tmp")),
        ("wrong_cwd", json!("InvalidArgumentException")),
        ("wrong_user", json!("AuthenticationException")),
        ("timeout", json!("TimeoutException")),
        ("long", json!("300000")),
        ("large", json!(1_000_000)),
        ("listed", json!(true)),
        ("stdin", json!("to cat\nend\n")),
        ("killed", json!([true, false])),
        ("joined", json!("CommandExitException")),
        ("ended", json!(0)),
        ("streamed", json!("1\n2\n")),
        ("terminal", json!([true, true, true])),
        ("written", json!(["b.txt", "/home/user/a/b.txt"])),
        ("read", json!("content")),
        ("binary", json!(true)),
        ("stream", json!(true)),
        ("made", json!([true, false])),
        ("root_dir", json!(true)),
        ("owners", json!(["user", "user", "user"])),
        ("list", json!([["a", "dir"], ["made", "dir"]])),
        ("deep", json!(["/home/user/a/b.txt", "/home/user/made", "/home/user/made/deep"])),
        ("walk", json!(["a", "a/b", "a/b/c.txt", "a.txt"])),
        ("info", json!([7, "-rw-r--r--", "user", "0o644"])),
        ("link", json!("/home/user/a/b.txt")),
        ("moved", json!(["/home/user/new/c.txt", false, true])),
        ("removed", json!(false)),
        ("several", json!(["/home/user/one.txt", "/tmp/two.txt"])),
        ("of_root", json!("root")),
        ("directory", json!("InvalidArgumentException")),
        ("list_file", json!("InvalidArgumentException")),
        (
            "events",
            json!([
                ["watched.txt", "create"],
                ["watched.txt", "chmod"],
                ["watched.txt", "write"],
                ["watched.txt", "remove"],
            ]),
        ),
        ("signed", json!("1")),
        ("wrong_signature", json!("HTTPError")),
        ("state", json!("running")),
        ("longer", json!(true)),
        ("connected", json!("1")),
        ("metrics", json!(true)),
        ("pages", json!([1, true])),
        ("by_metadata", json!([true])),
        ("metadata", json!({ "a b": "c&d", "user": "me" })),
        ("paused", json!("paused")),
        ("resumed", json!(["running", "1"])),
        ("copy", json!("parent")),
        ("kill", json!([true, false])),
        ("no_template", json!("SandboxException")),
        ("wrong_key", json!("AuthenticationException")),
    ] {
        assert_eq!(report[name], expected, "{name} in {report:#}");
    }
    assert_added_users(&report);
    report
}

#[test]
fn e2b_for_python() {
    let Some(report) = python_library("e2b_for_python", "e2b") else { return };
    for (name, expected) in [
        ("missing", json!("FileNotFoundException")),
        ("missing_list", json!("FileNotFoundException")),
        ("stopped", json!("SandboxException")),
        ("when_paused", json!([false, "SandboxNotRunningException"])),
        ("gone", json!([false, "SandboxNotRunningException"])),
        ("gone_info", json!("SandboxNotFoundException")),
        ("killed_running", json!("SandboxNotRunningException")),
        ("paused_by_itself", json!("paused")),
        ("resumed_by_itself", json!("kept\n")),
        ("kept", json!(true)),
        ("forks", json!(["parent", "parent"])),
        ("file_metadata", json!({ "author": "me", "kind": "note" })),
        ("no_file_metadata", Value::Null),
        ("volumes", json!([true, true])),
        ("volume_file", json!(["text", true, "VolumePathNotFoundException", "VolumeException"])),
        ("volume_stat", json!(["a.txt", "file", "/dir/a.txt", 4, "0o600"])),
        ("volume_list", json!(["/dir/a.txt"])),
        ("volume_mounted", json!(["text", "written inside"])),
        ("volume_removed", json!([false, true, false, "VolumeNotFoundException"])),
        ("volume_exists", json!("VolumeException")),
        ("volume_absent", json!("SandboxException")),
    ] {
        assert_eq!(report[name], expected, "{name} in {report:#}");
    }
}

/// Users that are added inside own their homes, where the sandbox has several users.
fn assert_added_users(report: &Value) {
    if !tests_run_as_root() || !Path::new("/usr/sbin/adduser").exists() {
        return;
    }
    for (name, expected) in [
        ("added_user", json!(["added", "/home/added", "/home/added", "added", "made"])),
        ("second_user", json!("/home/second\n")),
        ("homes", json!(["added", "755", "second", "755", "added", "644"])),
    ] {
        assert_eq!(report[name], expected, "{name} in {report:#}");
    }
}

#[test]
fn an_older_e2b_for_python() {
    python_library("an_older_e2b_for_python", "e2b-old");
}

#[test]
fn e2b_code_interpreter_for_python() {
    let program = "e2b/bin/python";
    let test = "e2b_code_interpreter_for_python";
    let Some(setup) = Setup::new(test, packages().join(program), program) else { return };
    let report = setup.report(&[&script("e2b_code_client.py")]);
    for (name, expected) in [
        ("first", json!(["21", ["out\n"], ["err\n"], 1])),
        ("state", json!("20")),
        ("error", json!(["ZeroDivisionError", "division by zero", true])),
        ("syntax", json!("SyntaxError")),
        ("await", json!("slept")),
        ("shell", json!(["shell\n"])),
        ("child", json!(["child\n"])),
        ("shown", json!([["one", false], ["[1, 2]", true]])),
        ("json", json!([1, 2])),
        ("forms", json!(["<b>x</b>", "cG5n"])),
        ("variables", json!(["['1', 'shared']", "[None, 'shared']"])),
        ("indented", json!("3")),
        ("usual_display", json!([["latex"], "x^2", "<i>y</i>"])),
        ("defaults", json!(["python", "javascript"])),
        ("made", json!([true, "/home/user/made/here"])),
        ("sandbox_killed", json!("TimeoutException")),
        ("exit", json!("SystemExit")),
        ("after_exit", json!("20")),
        ("streamed", json!(["a\n", "b\n"])),
        ("timeout", json!("TimeoutException")),
        ("after_timeout", json!("20")),
        ("large", json!(1_000_001)),
        ("killed", json!("ContextEnded")),
        ("after_killed", json!("False")),
        ("context", json!(["python", "/tmp"])),
        ("own", json!(["[1, '/tmp']", "NameError"])),
        ("listed", json!(true)),
        ("restarted", json!("NameError")),
        ("removed", json!("NotFoundException")),
        ("bash", json!(["5 /\n"])),
        ("bash_state", json!(["5 /\n"])),
        ("javascript", json!("21")),
        ("promise", json!("14")),
        ("thrown", json!("TypeError")),
        ("refused", json!(["SandboxException", "SandboxException"])),
        ("user", json!("user")),
        ("commands", json!("also\n")),
    ] {
        assert_eq!(report[name], expected, "{name} in {report:#}");
    }
}

/// What a script observes through a package of npm.
fn javascript(test: &str, package: &str, client: &str) -> Option<Value> {
    let node = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("node"))
        .find(|node| node.exists());
    let package = format!("npm/node_modules/{package}");
    let setup = Setup::new(test, node.unwrap_or_default(), &package)?;
    let modules = packages().join("npm/node_modules");
    Some(setup.report(&[&script(client), modules.to_str().unwrap()]))
}

#[test]
fn e2b_code_interpreter_for_javascript() {
    let test = "e2b_code_interpreter_for_javascript";
    let package = "@e2b/code-interpreter";
    let Some(report) = javascript(test, package, "e2b_code_client.mjs") else { return };
    let expected = json!({
        "first": ["21", ["out\n"], 1],
        "error": "ZeroDivisionError",
        "bash": ["/tmp\n"],
        "listed": true,
        "timeout": "TimeoutError",
        "after": "20",
    });
    assert_eq!(report, expected);
}

#[test]
fn e2b_for_javascript() {
    let test = "e2b_for_javascript";
    let Some(report) = javascript(test, "e2b", "e2b_client.mjs") else { return };
    for (name, expected) in [
        ("echo", json!(["hello\n", "oops\n", 0])),
        ("failed", json!([true, 3, "out\n"])),
        ("environment", json!(["call", "shared"])),
        ("root", json!("0")),
        ("cwd", json!("/tmp")),
        ("wrongCwd", json!("InvalidArgumentError")),
        ("timeout", json!("TimeoutError")),
        ("listed", json!([true])),
        ("stdin", json!("to cat\nend\n")),
        ("killed", json!([true, false])),
        ("joined", json!("CommandExitError")),
        ("terminal", json!([true, true])),
        ("written", json!(["b.txt", "/home/user/a/b.txt"])),
        ("read", json!("content")),
        ("made", json!([true, false])),
        ("list", json!([["a", "dir"], ["made", "dir"]])),
        ("info", json!(7)),
        ("moved", json!("/home/user/new/c.txt")),
        ("exists", json!([false, true])),
        ("binary", json!(true)),
        ("events", json!(["create", "chmod", "write"])),
        ("signed", json!(1 << 20)),
        ("unsigned", json!(401)),
        ("state", json!("running")),
        ("connected", json!("again\n")),
        ("found", json!([true])),
        ("metrics", json!(1)),
        ("paused", json!(["paused", false])),
        ("resumed", json!("back\n")),
        ("copy", json!("kept")),
        ("kill", json!([true, false])),
        ("volume", json!(["text", "/dir/a.txt", "VolumePathNotFoundError", "VolumeError"])),
        ("volumeMounted", json!(["text", "inside"])),
        ("killedRunning", json!(true)),
        ("volumeGone", json!([true, false, "VolumeNotFoundError"])),
        ("wrongKey", json!("AuthenticationError")),
        ("noTemplate", json!("SandboxError")),
    ] {
        assert_eq!(report[name], expected, "{name} in {report:#}");
    }
}

#[test]
fn langchain() {
    let program = "langchain-e2b/bin/python";
    let Some(setup) = Setup::new("langchain", packages().join(program), program) else { return };
    let tests = script("test_langchain_e2b.py");
    let options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=120"];
    let mut arguments = vec!["-m", "pytest", &tests];
    arguments.extend(options);
    let outcome = setup.run(&arguments);
    outcome.succeeds();
    assert!(outcome.stdout.contains(" passed"), "{outcome}");
}

/// Starts a command in the background, and prints the sandbox and the number of the command.
const START: &str = r#"
import json
from e2b import Sandbox
sandbox = Sandbox.create(timeout=600)
handle = sandbox.commands.run("echo before; read line; echo after $line; exit 3", background=True, stdin=True)
print(json.dumps([sandbox.sandbox_id, handle.pid]))
"#;

/// Joins it again, and prints what it observed.
const JOIN: &str = r#"
import json
import sys
from e2b import CommandExitException, Sandbox
sandbox = Sandbox.connect(sys.argv[1])
pid = int(sys.argv[2])
listed = [(one.pid == pid, one.cmd) for one in sandbox.commands.list()]
handle = sandbox.commands.connect(pid)
sandbox.commands.send_stdin(pid, "line\n")
try:
    handle.wait()
except CommandExitException as error:
    ended = [error.stdout, error.exit_code]
print(json.dumps({"listed": listed, "ended": ended, "left": len(sandbox.commands.list())}))
"#;

/// A command continues when the server is killed or stopped, and is joined by its number.
#[test]
fn a_command_outlives_the_server() {
    let program = "e2b/bin/python";
    let test = "a_command_outlives_the_server";
    let Some(mut setup) = Setup::new(test, packages().join(program), program) else { return };
    for signal in [Signal::KILL, Signal::TERM] {
        let started = setup.report(&["-c", START]);
        let (id, pid) = (started[0].as_str().unwrap().to_owned(), started[1].to_string());
        setup.server.running.signal(signal);
        setup.server = Server::start(&setup.world, &[]);
        setup.address = *setup.server;
        let joined = setup.report(&["-c", JOIN, &id, &pid]);
        let expected = json!({
            "listed": [[true, "/bin/bash"]],
            "ended": ["before\nafter line\n", 3],
            "left": 0,
        });
        assert_eq!(joined, expected, "{signal:?}");
    }
}

/// The page for users of these clients.
const PAGE: &str = include_str!("../../../docs/clients/e2b.md");

/// The blocks of code of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    let blocks = PAGE.split(begin.as_str()).skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[test]
fn the_page_for_users_is_true() {
    let program = "e2b/bin/python";
    let test = "the_page_for_users_is_true";
    let Some(setup) = Setup::new(test, packages().join(program), program) else { return };
    let outputs: Vec<_> = blocks("python")
        .iter()
        .map(|code| {
            let outcome = setup.run(&["-c", code]);
            outcome.succeeds();
            outcome.stdout
        })
        .collect();
    assert_eq!(outputs, ["Hello\n", "21\n", "kept\n"]);
}
