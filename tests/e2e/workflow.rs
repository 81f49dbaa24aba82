//! `stockade up` and its companions: workflows are done, wait, are refused, and survive the death of
//! whoever does them.

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::World;
use crate::servants::kill_server;

/// A workflow file of the project, by its path.
fn flow(world: &World, name: &str, body: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Parallel, Approval, smithers, outputs }} =\n  \
           createSmithers({{ a: {{}}, output: {{}} }});\n\
         const later = (ms) => new Promise((done) => setTimeout(done, ms));\n\
         export default smithers((ctx) => <Workflow name=\"{name}\">\n{body}\n</Workflow>);\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

/// The tasks of a run: their status, tries and executions by their ids.
fn tasks(world: &World, words: &[&str]) -> Value {
    let outcome = call(world, &[&["inspect", "--json"], words].concat());
    outcome.succeeds();
    let told = |task: &Value| {
        let id = task["id"].as_str().unwrap().to_owned();
        (id, json!([task["status"], task["attempts"], task["executions"]]))
    };
    Value::Object(outcome.json()["tasks"].as_array().unwrap().iter().map(told).collect())
}

fn says_what_it_gave(world: &World) {
    let file = flow(
        world,
        "sum",
        "<Task id=\"one\" output={outputs.a}>{{ n: ctx.input.n }}</Task>\n\
         <Task id=\"two\" output=\"output\">{() => ({ n: ctx.output(outputs.a).n + 1 })}</Task>",
    );
    for way in [&["--in-process"][..], &[]] {
        let words = [&["up", &file, "--input", "{\"n\": 41}"], way].concat();
        let outcome = call(world, &words);
        outcome.succeeds();
        assert_eq!(outcome.json(), json!({ "n": 42 }), "{outcome}");
    }
    let listed = call(world, &["runs", "--json"]);
    assert_eq!(listed.json()["runs"].as_array().unwrap().len(), 2, "{listed}");
    let events = call(world, &["up", &file, "--json", "--input", "{\"n\": 1}"]);
    let kinds: Vec<Value> = events
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds.first(), Some(&json!("RunStarted")), "{events}");
    assert_eq!(kinds.last(), Some(&json!("Run")), "{events}");
}

fn exit_codes_tell_how_a_run_ended(world: &World) {
    let bad = flow(
        world,
        "bad",
        "<Task id=\"t\" output=\"a\" noRetry>{() => { throw new Error(\"no\"); }}</Task>",
    );
    let failed = call(world, &["up", &bad, "--run-id", "bad", "--in-process"]);
    failed.ends_with(1);
    assert!(failed.stderr.contains("bad.tsx:7:"), "{failed}");
    let waits = flow(world, "waits", "<Approval id=\"ok\" output={outputs.output} />");
    call(world, &["up", &waits, "--run-id", "w", "--in-process"]).ends_with(3);
    call(world, &["approve", "w", "other", "--in-process"]).ends_with(1);
    call(world, &["approve", "w", "ok", "--in-process"]).succeeds();
    let resumed = call(world, &["resume", "w", "--in-process"]);
    resumed.succeeds();
    assert_eq!(resumed.json()["approved"], true, "{resumed}");
    call(world, &["up", &waits, "--run-id", "c", "--in-process"]).ends_with(3);
    call(world, &["cancel", "c", "--in-process"]).succeeds();
    call(world, &["resume", "bad", "--in-process"]).ends_with(1);
    for words in [
        &["up", "gone.tsx"][..],
        &["up", &waits, "--input", "{"],
        &["up", &waits, "--run-id", "w", "--in-process"],
        &["up", &waits, "--run-id", "a/b", "--in-process"],
        &["up", &waits, "--no-such-flag"],
    ] {
        call(world, words).ends_with(4);
    }
    world.write("waits.tsx", "const x = ;");
    let refused = call(world, &["up", &waits, "--in-process"]);
    refused.ends_with(4);
    assert!(refused.stderr.contains("waits.tsx:1:11"), "{refused}");
}

/// A workflow that is killed in its second task, which takes its time.
fn slow(world: &World) -> String {
    flow(
        world,
        "slow",
        "<Task id=\"first\" output={outputs.a}>{() => ({ n: 1 })}</Task>\n\
         <Task id=\"known\" output={outputs.a}>{{ n: 2 }}</Task>\n\
         <Task id=\"second\" output=\"output\">{async () => { await later(700); return { n: 3 }; }}</Task>",
    )
}

fn goes_on_where_it_was_killed(world: &World) {
    let file = slow(world);
    let words = ["up", file.as_str(), "--run-id", "r", "--in-process", "--json"];
    let mut running = world.stockade(&words).start();
    running.wait_for_output("\"nodeId\":\"second\"");
    running.signal(rustix::process::Signal::KILL);
    drop(running);
    let resumed = call(world, &["resume", "r", "--in-process"]);
    resumed.succeeds();
    assert_eq!(resumed.json(), json!({ "n": 3 }), "{resumed}");
    let told = tasks(world, &["r", "--in-process"]);
    let expected = json!({
        "first": ["finished", 1, 1], "known": ["finished", 1, 1], "second": ["finished", 1, 2],
    });
    assert_eq!(told, expected);
    // Of a finished run, its result is told again.
    let again = call(world, &["resume", "r", "--in-process"]);
    again.succeeds();
    assert_eq!(again.json(), json!({ "n": 3 }), "{again}");
    assert_eq!(tasks(world, &["r", "--in-process"]), expected);
}

fn a_killed_server_is_followed_by_one_that_goes_on(world: &World) {
    let file = slow(world);
    let mut running = world.stockade(&["up", &file, "--run-id", "r", "--json"]).start();
    running.wait_for_output("\"nodeId\":\"second\"");
    kill_server(&world.data());
    // Whoever follows the run asks the next server, which goes on with it.
    let outcome = running.finish();
    outcome.succeeds();
    assert_eq!(tasks(world, &["r"])["first"], json!(["finished", 1, 1]));
    assert_eq!(tasks(world, &["r"])["second"], json!(["finished", 1, 2]));
}

fn a_changed_file_is_refused_unless_that_is_accepted(world: &World) {
    let file = flow(
        world,
        "change",
        "<Task id=\"t\" output=\"output\" noRetry>{() => { throw new Error(\"no\"); }}</Task>",
    );
    call(world, &["up", &file, "--run-id", "r", "--in-process"]).ends_with(1);
    flow(world, "change", "<Task id=\"t\" output=\"output\">{() => ({ fixed: true })}</Task>");
    let refused = call(world, &["resume", "r", "--in-process"]);
    refused.ends_with(4);
    assert!(refused.stderr.contains("--accept-workflow-change"), "{refused}");
    let accepted = call(world, &["resume", "r", "--in-process", "--accept-workflow-change"]);
    accepted.succeeds();
    assert_eq!(accepted.json(), json!({ "fixed": true }), "{accepted}");
}

fn a_workflow_reaches_nothing_of_the_host(world: &World) {
    let file = flow(
        world,
        "reach",
        "<Task id=\"t\" output=\"output\">{async () => ({\n\
           env: Object.keys(process.env), eval: typeof eval, require: typeof require,\n\
           fetch: await fetch(\"http://127.0.0.1:9/\").then(() => \"reached\", () => \"refused\"),\n\
           deno: typeof Deno, secret: process.env.SECRET ?? null,\n\
         })}</Task>",
    );
    let outcome = world
        .stockade(&["up", &file, "--in-process", "--env", "NAME=value"])
        .env("SECRET", "hunter2")
        .finish();
    outcome.succeeds();
    let expected = json!({
        "env": ["NAME"], "eval": "undefined", "require": "undefined", "fetch": "refused",
        "deno": "undefined", "secret": null,
    });
    assert_eq!(outcome.json(), expected, "{outcome}");
}

as_root_and_as_user![
    says_what_it_gave,
    exit_codes_tell_how_a_run_ended,
    goes_on_where_it_was_killed,
    a_killed_server_is_followed_by_one_that_goes_on,
    a_changed_file_is_refused_unless_that_is_accepted,
    a_workflow_reaches_nothing_of_the_host,
];
