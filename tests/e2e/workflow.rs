//! `stockade up` and related commands: workflows are executed, wait, are refused, and survive the
//! death of the process that executes them.

use std::path::Path;

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::World;

/// Writes a workflow file of the project; returns its path.
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

/// The tasks of a run: their status, attempts and executions by their ids.
fn tasks(world: &World, words: &[&str]) -> Value {
    let outcome = call(world, &[&["inspect", "--json"], words].concat());
    outcome.succeeds();
    let describe = |task: &Value| {
        let id = task["id"].as_str().unwrap().to_owned();
        (id, json!([task["status"], task["attempts"], task["executions"]]))
    };
    Value::Object(outcome.json()["tasks"].as_array().unwrap().iter().map(describe).collect())
}

fn says_what_it_gave(world: &World) {
    let file = flow(
        world,
        "sum",
        "<Task id=\"one\" output={outputs.a}>{{ n: ctx.input.n }}</Task>\n\
         <Task id=\"two\" output=\"output\">{() => ({ n: ctx.output(outputs.a).n + 1 })}</Task>",
    );
    for route in [&["--in-process"][..], &[]] {
        let words = [&["up", &file, "--input", "{\"n\": 41}"], route].concat();
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

fn a_run_is_named_by_its_beginning_or_as_the_latest(world: &World) {
    let body = "<Task id=\"say\" output={outputs.a}>{() => { console.log(ctx.runId); return {}; }}</Task>\n\
                <Approval id=\"ok\" output={outputs.output} />";
    let file = flow(world, "named", body);
    call(world, &["inspect", "latest"]).ends_with(1);
    for run in ["one-a", "one-b"] {
        call(world, &["up", &file, "--run-id", run]).ends_with(3);
    }
    let name = |name: &str| call(world, &["inspect", name, "--json"]).json()["run"]["id"].clone();
    assert_eq!(
        (name("latest"), name("one-a"), name("one-")),
        (json!("one-b"), json!("one-a"), Value::Null)
    );
    let several = call(world, &["approve", "one", "ok"]);
    several.ends_with(2);
    assert!(several.stderr.contains("one-b, one-a"), "{several}");
    assert_eq!(call(world, &["logs", "latest"]).stdout, "one-b\n");
    call(world, &["approve", "latest", "ok"]).succeeds();
    let resumed = call(world, &["resume", "latest"]);
    resumed.succeeds();
    assert_eq!(resumed.json()["approved"], true, "{resumed}");
    let events = call(world, &["events", "latest"]);
    assert!(events.stdout.contains("RunFinished"), "{events}");
    // `latest` prefers a paused sandbox to a finished run, but not to other runs.
    call(world, &["create", "--id", "box"]).succeeds();
    call(world, &["pause", "box"]).succeeds();
    let resumed = call(world, &["resume", "latest", "--json"]);
    assert_eq!(
        (&resumed.json()["id"], &resumed.json()["state"]),
        (&json!("box"), &json!("running"))
    );
    call(world, &["deny", "one-a", "ok"]).succeeds();
    // A prefix of a run's id does not hide a sandbox.
    let file = flow(world, "boxed", "<Approval id=\"ok\" output={outputs.output} />");
    call(world, &["up", &file, "--run-id", "boxed"]).ends_with(3);
    let events = call(world, &["events", "box"]);
    assert!(!events.stdout.contains("RunStarted"), "{events}");
    let refused = call(world, &["up", &file, "--run-id", "latest"]);
    refused.ends_with(4);
    assert!(refused.stderr.contains("\"latest\" is not a valid run id"), "{refused}");
    call(world, &["cancel", "latest"]).succeeds();
    assert_eq!(name("boxed"), "boxed");
}

/// A fork works on the files as they were when its step started, in a directory of its own.
fn a_run_is_forked_from_a_step(world: &World) {
    let source = "/** @jsxImportSource smithers-orchestrator */\n\
         import { Sandbox, createSmithers } from \"smithers-orchestrator\";\n\
         const { Workflow, Task, smithers, outputs } = createSmithers({ out: { type: \"object\" }, output: {} });\n\
         export default smithers((ctx) => <Workflow name=\"w\">\n\
         <Sandbox id=\"s\" retries={0} reviewDiffs={false} output={outputs.out}\n\
         command={\"printf '{\\\"seen\\\": \\\"%s\\\"}' $(cat a.txt); echo changed > a.txt\"} />\n\
         <Task id=\"end\" output=\"output\">{() => ({ seen: ctx.output(outputs.out).seen })}</Task>\n\
         </Workflow>);\n";
    let file = world.write("forked.tsx", source).to_str().unwrap().to_owned();
    world.write("a.txt", "one\n");
    let run = call(world, &["up", &file, "--run-id", "old"]);
    run.succeeds();
    assert_eq!(
        (run.json()["seen"].as_str(), world.read("a.txt").as_str()),
        (Some("one"), "changed\n")
    );
    world.write("a.txt", "mine\n");
    let inspected = call(world, &["inspect", "old", "--json"]).stdout;
    let directory = world.outside().join("fork");
    let to = directory.to_str().unwrap();
    let fork = call(world, &["up", "--from", "old:s", "--run-id", "new", "--directory", to]);
    fork.succeeds();
    assert_eq!(fork.json()["seen"], "one", "{fork}");
    assert!(fork.stderr.contains(to), "{fork}");
    assert_eq!(std::fs::read_to_string(directory.join("a.txt")).unwrap(), "changed\n");
    assert_eq!(world.read("a.txt"), "mine\n");
    assert_eq!(call(world, &["inspect", "old", "--json"]).stdout, inspected);
    let shown = call(world, &["inspect", "new"]);
    assert!(shown.stdout.contains("from      old:s#0"), "{shown}");
    let again = call(world, &["up", "--from", "old:s", "--directory", to]);
    again.ends_with(4);
    assert!(again.stderr.contains("the directory is not empty"), "{again}");
    call(world, &["up", "--from", "old"]).ends_with(4);
}

/// Values of variables are in nothing that is recorded or printed of a run, however it ends.
fn values_of_variables_are_in_no_record(world: &World) {
    let source = "/** @jsxImportSource smithers-orchestrator */\n\
         import { Sandbox, createSmithers } from \"smithers-orchestrator\";\n\
         const { Workflow, smithers, outputs } = createSmithers({ out: { type: \"object\" } });\n\
         console.log(\"seen \" + process.env.OUTER);\n\
         export default smithers((ctx) => <Workflow name=\"w\">\n\
         <Sandbox id=\"s\" retries={0} output={outputs.out} command={ctx.input.command} toolTimeoutMs={2000}\n\
         env={{ A: \"canary-\" + (40 + 2) }} egress={{ env: { B: \"canary-\" + (50 + 2) } }} />\n\
         </Workflow>);\n";
    let file = world.write("canary.tsx", source).to_str().unwrap().to_owned();
    for ending in [
        "exit 3",
        "kill -9 $$",
        "sleep 60",
        "echo no json",
        "printf %s $A | base64 >&2; exit 3",
        "echo '{}' > /result/README.md",
    ] {
        let command = format!("echo $A $B >&2; echo $A $B > /result/log; {ending}");
        let input = json!({ "command": command }).to_string();
        let up = ["up", &file, "--input", &input, "--env", "OUTER=canary-62"];
        let mut told = call(world, &up).stderr;
        for words in [
            &["inspect", "latest", "--json"][..],
            &["events", "latest", "--json"],
            &["logs", "latest"],
        ] {
            let outcome = call(world, words);
            told.push_str(&outcome.stdout);
            told.push_str(&outcome.stderr);
        }
        for value in ["canary-42", "canary-52", "canary-62", "Y2FuYXJ5LTQy"] {
            // The input of the run is the caller's own.
            let is_there = told.replace(&input, "").contains(value);
            assert!(!is_there, "{ending}: {value} in {told}");
        }
        assert!(told.contains("[redacted]"), "{ending}: {told}");
        no_file_of_the_database_has(world, &["canary-42", "canary-52", "Y2FuYXJ5LTQy"]);
    }
    // Other tasks compute with the output of a task.
    let input = json!({ "command": "echo \"{\\\"a\\\": \\\"$A\\\"}\"" }).to_string();
    let up = call(world, &["up", &file, "--input", &input]);
    up.succeeds();
    assert!(up.stdout.contains("canary-42"), "{up}");
}

/// The files of the database contain no text of these, also where rows were removed.
fn no_file_of_the_database_has(world: &World, texts: &[&str]) {
    for name in ["stockade.db", "stockade.db-wal"] {
        let Ok(bytes) = std::fs::read(world.data().join(name)) else { continue };
        assert!(!bytes.is_empty() || name.ends_with("wal"), "{name} is empty");
        for text in texts {
            let is_there = bytes.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(!is_there, "{text} in {name}");
        }
    }
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

/// A workflow that is killed in its second task, which is slow.
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
    let report = tasks(world, &["r", "--in-process"]);
    let expected = json!({
        "first": ["finished", 1, 1], "known": ["finished", 1, 1], "second": ["finished", 1, 2],
    });
    assert_eq!(report, expected);
    // The result of a finished run is printed again.
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
    // The client that follows the run connects to the next server, which continues it.
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

/// A run that stores its result in a directory has no sandboxes; it executes no commands on the
/// host.
fn commands_are_never_executed_beside_a_host(world: &World) {
    let file = flow(
        world,
        "command",
        "<Task id=\"t\" output=\"output\" noRetry agent={{ command: \"touch executed; echo '{}'\" }}>Do</Task>",
    );
    let result = world.path("result");
    world.plant(&result.join("artifacts/own.txt"), "own");
    let words = ["up", &file, "--in-process", "--result", result.to_str().unwrap()];
    let outcome = call(world, &words);
    outcome.ends_with(4);
    assert!(outcome.stderr.contains("no sandbox can be created here"), "{outcome}");
    assert!(!world.has("executed"));
}

/// An agent that is a command: it is executed in a sandbox, on a copy of the project.
fn an_agent_is_asked_once_whoever_is_killed(world: &World) {
    world.write("known.txt", "known");
    let file = flow(
        world,
        "agent",
        "<Task id=\"t\" output=\"output\" timeoutMs={60_000} noRetry agent={{ env: { TOKEN: \"hush\" }, command: `\n\
           date +%s%N > begun; echo \"$TOKEN\" > known.txt; sleep 1;\n\
           printf '{\"begun\": \"%s\", \"again\": \"%s\", \"read\": \"%s\"}' \"$(cat begun)\" \"$(ls | grep -c begun)\" \"$(cat)\"` }}>\n\
           Say hello</Task>",
    );
    let mut running = world.stockade(&["up", &file, "--run-id", "r", "--json"]).start();
    running.wait_for_output("\"NodeStarted\"");
    wait_until("the agent has a sandbox", || call(world, &["ls"]).stdout.contains("agent-"));
    kill_server(&world.data());
    let outcome = running.finish();
    outcome.succeeds();
    let report = call(world, &["resume", "r"]).json();
    assert_eq!((&report["read"], &report["again"]), (&json!("Say hello"), &json!("1")), "{report}");
    assert_eq!(tasks(world, &["r"])["t"], json!(["finished", 1, 2]));
    // Neither the host's files nor any record contain the agent's private data.
    assert_eq!(world.read("known.txt"), "known");
    assert!(!world.has("begun"));
    assert!(!call(world, &["events", "r", "--json"]).stdout.contains("hush"));
    assert!(!call(world, &["ls", "--json"]).stdout.contains("agent-"));
}

/// A run that waits for a decision needs no server; the command that decides starts one, which
/// continues it.
fn a_run_that_waits_lets_its_server_end(world: &World) {
    let file = flow(
        world,
        "rests",
        "<Approval id=\"ok\" output={outputs.a} />\n\
         <Task id=\"t\" output=\"output\">{() => ({ done: true })}</Task>",
    );
    let up = world.stockade(&["up", &file, "--run-id", "r"]);
    up.env("STOCKADE_SERVER_IDLE_SECONDS", "1").finish().ends_with(3);
    wait_until("the server ends", || servers(&world.data()).is_empty());
    call(world, &["approve", "r", "ok"]).succeeds();
    let end = finished(world, "r");
    assert_eq!(end.json(), json!({ "done": true }), "{end}");
}

/// The output of each example for its input, and the commands to run while it waits.
const EXAMPLES: &[(&str, &str, &[&[&str]], &str)] = &[
    ("agent", "{\"topic\": \"walls\"}", &[], "{\"summary\": \"READ ABOUT WALLS, THEN WRITE\"}"),
    ("approval", "{}", &[&["approve", "approval", "deploy"]], "{\"deployed\": true}"),
    ("branch", "{\"size\": 200}", &[], "{\"way\": \"long\"}"),
    ("cache", "{\"below\": 30}", &[], "{\"primes\": 10}"),
    ("command", "{}", &[], "{\"words\": 3, \"where\": \"/workspace\"}"),
    ("continue-as-new", "{}", &[], "{\"page\": 3}"),
    ("hello", "{}", &[], "{\"text\": \"Hello, world!\", \"letters\": 13}"),
    ("loop", "{}", &[], "{\"rounds\": 3}"),
    ("needs", "{}", &[], "{\"n\": 42}"),
    ("parallel", "{}", &[], "{\"sum\": 40}"),
    ("retry", "{}", &[], "{\"tries\": 3}"),
    (
        "signal",
        "{}",
        &[
            &["signal", "signal", "review", "--payload", "{\"ok\": true}"],
            &["signal", "signal", "build-finished", "--correlation-id", "main", "--payload", "{}"],
        ],
        "{\"ok\": true}",
    ),
    ("subflow", "{}", &[], "{\"count\": 3}"),
    ("timer", "{}", &[], "{\"rested\": true}"),
];

/// The example of each element is executed in the server, and answered from outside where it waits.
fn every_example_does_what_it_says(world: &World) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "tsx"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXAMPLES.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for (name, input, words, expected) in EXAMPLES {
        let text = std::fs::read_to_string(directory.join(format!("{name}.tsx"))).unwrap();
        let file = world.write(&format!("{name}.tsx"), text).to_str().unwrap().to_owned();
        let up = call(world, &["up", &file, "--run-id", name, "--input", input]);
        let end = if words.is_empty() {
            up
        } else {
            up.ends_with(3);
            for words in *words {
                call(world, words).succeeds();
            }
            finished(world, name)
        };
        end.succeeds();
        assert_eq!(end.json(), serde_json::from_str::<Value>(expected).unwrap(), "{name}: {end}");
    }
    // The run that a person has started is the last one that continues it.
    let last = call(world, &["resume", "continue-as-new"]);
    last.succeeds();
    assert_eq!(last.json(), json!({ "page": 3 }), "{last}");
    let graph = call(world, &["graph", "parallel.tsx"]);
    graph.succeeds();
    assert!(graph.stdout.contains("2 in parallel:") && graph.stdout.contains("part-4 (compute)"));
}

/// The end of a run that was answered, and may not have received the answer yet.
fn finished(world: &World, run: &str) -> Outcome {
    let status = || call(world, &["inspect", run, "--json"]).json()["run"]["status"].clone();
    wait_until("the run ends", || status() == "finished");
    call(world, &["resume", run])
}

fn a_first_workflow_is_written_and_runs(world: &World) {
    call(world, &["init", "flows"]).succeeds();
    let refused = call(world, &["init", "flows"]);
    refused.ends_with(1);
    // The binary also works under Smithers' name.
    let smithers = world.path("bin/smithers");
    std::os::unix::fs::symlink("stockade", &smithers).unwrap();
    let words = ["up", "flows/workflow.tsx", "--in-process", "--run-id", "first"];
    let first = world.on_host(&smithers, &words).finish();
    first.succeeds();
    assert_eq!(first.json(), json!({ "text": "Hello, world!" }), "{first}");
    let events = call(world, &["events", "first", "--in-process"]);
    events.succeeds();
    assert!(events.stdout.contains("NodeFinished  greet"), "{events}");
}

fn what_a_workflow_writes_is_told(world: &World) {
    let file = flow(
        world,
        "talk",
        "<Task id=\"t\" output=\"output\">{() => { console.log(\"one\"); console.error(\"two\"); return {}; }}</Task>",
    );
    call(world, &["up", &file, "--run-id", "talk"]).succeeds();
    let logs = call(world, &["logs", "talk"]);
    logs.succeeds();
    assert_eq!((logs.stdout.as_str(), logs.stderr.as_str()), ("one\n", "two\n"));
}

as_root_and_as_user![
    says_what_it_gave,
    a_run_is_named_by_its_beginning_or_as_the_latest,
    every_example_does_what_it_says,
    a_first_workflow_is_written_and_runs,
    what_a_workflow_writes_is_told,
    values_of_variables_are_in_no_record,
    a_run_is_forked_from_a_step,
    exit_codes_tell_how_a_run_ended,
    goes_on_where_it_was_killed,
    a_killed_server_is_followed_by_one_that_goes_on,
    a_changed_file_is_refused_unless_that_is_accepted,
    a_workflow_reaches_nothing_of_the_host,
    commands_are_never_executed_beside_a_host,
    an_agent_is_asked_once_whoever_is_killed,
    a_run_that_waits_lets_its_server_end,
];
