//! Frameworks that use sandboxes of E2B, unmodified, with a server of ours and without a model. `cargo xtask ci --all`
//! installs them. Each page for their users is executed.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::e2b::{Setup, packages, script};

/// A framework for Python in its virtual environment.
fn python(test: &str, environment: &str) -> Option<Setup> {
    let program = format!("{environment}/bin/python");
    Setup::of(&format!("served::frameworks::{test}"), packages().join(&program), &program)
}

/// The blocks of code of a page in a language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let begin = format!("```{language}\n");
    page.split(begin.as_str()).skip(1).filter_map(|block| block.split("```").next()).collect()
}

/// Runs the program of a page; what it prints is `expected`.
fn program_prints(setup: &Setup, page: &str, expected: &str) {
    let [program] = blocks(page, "python")[..] else { panic!("one program is expected") };
    let outcome = setup.run(&["-c", program]);
    outcome.succeeds();
    assert_eq!(outcome.stdout, expected, "{outcome}");
}

fn assert_observed(report: &Value, expected: &[(&str, Value)]) {
    for (name, expected) in expected {
        assert_eq!(&report[*name], expected, "{name} in {report:#}");
    }
}

#[test]
fn openai_agents() {
    let Some(setup) = python("openai_agents", "openai-agents") else { return };
    let page = include_str!("../../../docs/clients/openai-agents.md");
    program_prints(&setup, page, "hello from /workspace\n");
    let report = setup.report(&[&script("openai_agents_client.py")]);
    assert_observed(
        &report,
        &[
            ("entry", json!("# Notes\n")),
            ("exec", json!(["out\n", "err\n", 3])),
            ("pwd", json!("/workspace")),
            ("python", json!("42")),
            ("root", json!("0")),
            ("sudo", json!("0")),
            ("read", json!("written")),
            ("absent", json!("WorkspaceReadNotFoundError")),
            ("timeout", json!("ExecTimeoutError")),
            ("ls", json!(["notes.md", "sub"])),
            ("port", json!(["written", false])),
            ("hydrated", json!("written")),
            ("resumed", json!("written")),
            ("running", json!(true)),
            ("after", json!(false)),
        ],
    );
}

#[test]
fn smolagents() {
    for module in ["numpy", "PIL"] {
        if !PathBuf::from("/usr/lib/python3/dist-packages").join(module).exists() {
            let reason = "the machine's Python lacks it: apt-get install python3-numpy python3-pil";
            stockade_test_support::skip("served::frameworks::smolagents", reason);
            return;
        }
    }
    let Some(setup) = python("smolagents", "smolagents") else { return };
    program_prints(&setup, include_str!("../../../docs/clients/smolagents.md"), "21\n");
    let outcome = setup.run(&[&script("smolagents_client.py")]);
    outcome.succeeds();
    // The library prints errors of the agent's code as well.
    let report: Value = serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    let expected = json!({
        "answer": { "sum": 42 },
        "observed": true,
        "errors": ["AgentExecutionError"],
        "shell": "from-shell\n",
    });
    assert_eq!(report, expected);
}

#[test]
fn inspect() {
    let Some(setup) = python("inspect", "inspect") else { return };
    program_prints(&setup, include_str!("../../../docs/clients/inspect.md"), "success 1.0\n");
    let report = setup.report(&[&script("inspect_client.py")]);
    let said = ["hello\n/root\nroot\n", "HELLO\n\n"];
    assert_eq!(report, json!({ "status": "success", "scores": ["C"], "said": said }));
    let tests = script("test_inspect.py");
    let options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"];
    let mut arguments = vec!["-m", "pytest", &tests];
    arguments.extend(options);
    let outcome = setup.call(&arguments).deadline(280).finish();
    outcome.succeeds();
    assert!(outcome.stdout.contains("39 passed, 5 xfailed"), "{outcome}");
}

#[test]
fn langchain() {
    let Some(setup) = python("langchain", "langchain-e2b") else { return };
    program_prints(&setup, include_str!("../../../docs/clients/langchain.md"), "hello\n\n");
}

#[test]
fn harbor() {
    let Some(setup) = python("harbor", "harbor") else { return };
    let report = setup.report(&[&script("harbor_client.py")]);
    assert_observed(
        &report,
        &[
            ("exec", json!(["out\n0\n", "err\n", 3])),
            ("uploaded", json!("contentDockerfile\n")),
            ("reward", json!("1\n")),
            ("downloaded", json!("content")),
            ("kinds", json!([true, false])),
            ("timeout", json!("TimeoutException")),
        ],
    );
    let page = include_str!("../../../docs/clients/harbor.md");
    let [.., commands] = blocks(page, "sh")[..] else { panic!("commands are expected") };
    let program = packages().join("harbor/bin/harbor");
    let commands = commands.replace("harbor run", &format!("'{}' run", program.display()));
    let code = format!("import os; os.execvp('bash', ['bash', '-ec', {}])", json!(commands));
    let outcome = setup.run(&["-c", &code]);
    outcome.succeeds();
    assert!(outcome.stdout.contains("Mean: 1.000"), "{outcome}");
}

#[test]
fn computesdk() {
    let node = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("node"))
        .find(|node| node.exists());
    let modules = packages().join("computesdk/node_modules");
    let installed = "computesdk/node_modules/@computesdk/e2b";
    let setup = Setup::of("served::frameworks::computesdk", node.unwrap_or_default(), installed);
    let Some(setup) = setup else { return };
    let report = setup.report(&[&script("computesdk_client.mjs"), modules.to_str().unwrap()]);
    let expected = json!({
        "interactive": true,
        "node": [0, true],
        "failed": ["out\n", "err\n", 3],
        "info": [true, "e2b", "running"],
        "unknown": true,
        "quoted": ["hello world", "/home/user", "x"],
        "missing": "refused",
        "options": ["b c", "/tmp"],
        "read": "content",
        "listed": ["a.txt"],
        "exists": [true, false],
        "removed": false,
        "background": 0,
        "url": true,
        "found": "found\n",
        "inList": true,
        "copy": 0,
        "probe": 0,
        "gone": null,
    });
    assert_eq!(report, expected);
    let [program] = blocks(include_str!("../../../docs/clients/computesdk.md"), "js")[..] else {
        panic!("one program is expected")
    };
    let from = format!("{}/@computesdk/e2b/dist/index.mjs", modules.display());
    let program = program.replace("'@computesdk/e2b'", &format!("'{from}'"));
    let outcome = setup.run(&["--input-type=module", "-e", &program]);
    outcome.succeeds();
    assert_eq!(outcome.stdout.trim(), "hello");
}
