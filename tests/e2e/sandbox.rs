//! `<Sandbox>`: workflows and commands are executed inside, their results are checked against the
//! limits, and their changes to the project wait for a decision, are applied, or are not.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::daemons::{kill_server, wait_until};
use crate::harness::World;

pub(crate) fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).finish()
}

/// A workflow file whose only task is a sandbox with these attributes.
fn flow(world: &World, name: &str, attributes: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (\n  <Workflow name=\"{name}\">\n    \
           <Sandbox id=\"box\" output={{outputs.output}} retries={{0}} {attributes} />\n  \
         </Workflow>\n));\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

/// A workflow file whose sandbox executes a script.
fn script(world: &World, name: &str, script: &str, attributes: &str) -> String {
    flow(world, name, &format!("command={{{}}} {attributes}", json!(script)))
}

fn up(world: &World, file: &str, run: &str) -> Outcome {
    call(world, &["up", file, "--run-id", run])
}

pub(crate) fn inspect(world: &World, run: &str) -> Value {
    let outcome = call(world, &["inspect", run, "--json"]);
    outcome.succeeds();
    outcome.json()
}

pub(crate) fn finished_run(world: &World, run: &str) -> Value {
    let status = || inspect(world, run)["run"]["status"].clone();
    wait_until("the run ends", || status() == "finished" || status() == "failed");
    inspect(world, run)
}

/// The types of the events of a run that are about its sandboxes.
pub(crate) fn events(world: &World, run: &str) -> Vec<Value> {
    let outcome = call(world, &["events", run, "--type", "sandbox", "--json"]);
    outcome.succeeds();
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    let type_of = |event: &'_ Value| event["type"].as_str().unwrap().to_owned();
    let named = |event: &Value| {
        let name = type_of(event);
        KNOWN.iter().copied().find(|known| *known == name).unwrap_or("?")
    };
    events.iter().map(named).filter(|name| *name != "SandboxHeartbeat").collect()
}

const KNOWN: [&str; 10] = [
    "SandboxCreated",
    "SandboxShipped",
    "SandboxHeartbeat",
    "SandboxBundleReceived",
    "SandboxDiffReviewRequested",
    "SandboxDiffAccepted",
    "SandboxDiffRejected",
    "SandboxDiffNotApplied",
    "SandboxCompleted",
    "SandboxFailed",
];

/// All waiting changes were applied, once, by a run that executed its work once.
pub(crate) fn was_applied_whole(world: &World, id: &str) {
    let run = finished_run(world, id);
    assert_eq!(run["run"]["output"], json!({ "n": 1 }), "{run}");
    assert_eq!(run["tasks"][0]["executions"], 1, "{run}");
    assert_eq!(
        (world.read("a.txt").as_str(), world.read("b.txt").as_str()),
        ("one\nmore\n", "new\n")
    );
    assert_eq!(
        types(&events(world, id)),
        [
            "SandboxCreated",
            "SandboxShipped",
            "SandboxBundleReceived",
            "SandboxDiffReviewRequested",
            "SandboxDiffAccepted",
            "SandboxCompleted"
        ]
    );
}

/// No resource of a run is left.
pub(crate) fn is_clean(world: &World) {
    assert_eq!(call(world, &["ls", "--json"]).json()["sandboxes"], json!([]));
}

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows/sandbox");

/// Files of a project, with their contents.
type Files = &'static [(&'static str, &'static str)];

/// The output of each example, its exit code, and the files that are then in the project.
const EXAMPLE_RESULTS: &[(&str, i32, &str, Files)] = &[
    ("approval", 3, "", &[]),
    ("artifacts", 0, "{\"bytes\": 18}", &[]),
    ("auto-accept", 0, "{\"files\": 1}", &[("generated/answer.ts", "export const answer = 42;\n")]),
    ("child", 0, "{\"summary\": \"Processed: hello\"}", &[]),
    ("children", 0, "{\"n\": 42}", &[]),
    ("command", 3, "", &[("notes.md", "notes\n")]),
    ("continue", 0, "{\"tried\": \"nothing\"}", &[]),
    (
        "egress",
        0,
        "{\"level\": \"info\", \"key\": \"sk-placeholder\", \"proxy\": \"http://127.0.0.1:8080\", \
         \"except\": \"127.0.0.1,localhost\", \"ca\": \"-----BEGIN\"}",
        &[],
    ),
    ("imported", 0, "{\"text\": \"Hello, world!\"}", &[]),
    ("loop", 0, "{\"lines\": 3}", &[("long.txt", "line\nline\nline\n")]),
    ("nested", 3, "", &[]),
    ("network", 0, "{\"found\": false}", &[]),
    ("no-review", 0, "{\"sorted\": true}", &[("sorted.txt", "a\nb\n")]),
    ("parallel", 0, "{\"sum\": 100}", &[]),
    ("retry", 1, "", &[]),
];

fn every_example_does_what_it_says(world: &World) {
    let named = |path: PathBuf| {
        let is_flow = path.extension().is_some_and(|ending| ending == "tsx");
        is_flow.then(|| path.file_stem().unwrap().to_str().unwrap().to_owned())
    };
    let files = std::fs::read_dir(EXAMPLES).unwrap();
    let mut names: Vec<String> = files.filter_map(|file| named(file.unwrap().path())).collect();
    names.sort();
    assert_eq!(names, EXAMPLE_RESULTS.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for child in ["children/greet.tsx", "children/words.ts"] {
        world.write(child, std::fs::read(Path::new(EXAMPLES).join(child)).unwrap());
    }
    world.write("notes.md", "notes\n");
    for (name, code, output, files) in EXAMPLE_RESULTS {
        let file = format!("{name}.tsx");
        let file = world.write(&file, std::fs::read(Path::new(EXAMPLES).join(&file)).unwrap());
        let outcome = up(world, file.to_str().unwrap(), name);
        outcome.ends_with(*code);
        if !output.is_empty() {
            let expected: Value = serde_json::from_str(output).unwrap();
            assert_eq!(outcome.json(), expected, "{name}: {outcome}");
        }
        for (path, content) in *files {
            assert_eq!(world.read(path), *content, "{name}");
        }
    }
    // It waits for an answer to its child, which then continues.
    call(world, &["approve", "approval", "release/publish"]).succeeds();
    let output = finished_run(world, "approval")["run"]["output"].clone();
    assert_eq!(output, json!({ "version": "2.0.0", "published": true }));
    assert!(!world.has("lost.txt") && !world.has("dirty") && !world.has("added.md"));
    let tries = inspect(world, "retry")["tasks"][0]["attempts"].clone();
    assert_eq!(tries, 2);
    let log = world.read(".smithers/sandboxes/artifacts/count/result/logs/stream.ndjson");
    assert!(log.contains("counted"));
    // The events contain none of the private values.
    let recorded = json!(events(world, "egress")).to_string();
    assert!(recorded.contains("[redacted]") && !recorded.contains("sk-placeholder"), "{recorded}");
    assert!(!recorded.contains("8080") && !recorded.contains("BEGIN"), "{recorded}");
    is_clean(world);
}

fn changes_wait_for_a_decision_that_can_choose(world: &World) {
    world.write("a.txt", "one\n");
    let edit = "echo more >> a.txt; echo new > b.txt; echo x >> runs.txt; echo '{\"n\": 1}'";
    let file = script(world, "edit", edit, "");
    up(world, &file, "whole").ends_with(3);
    assert_eq!(inspect(world, "whole")["tasks"][0]["status"], "waiting-approval");
    is_clean(world);
    let row = inspect(world, "whole")["sandboxes"][0].clone();
    assert_eq!(
        (&row["status"], &row["runtime"]),
        (&json!("review"), &json!("bubblewrap")),
        "{row}"
    );
    assert_eq!(row["config"]["selectedRuntime"], "native", "{row}");
    assert_eq!((world.read("a.txt").as_str(), world.has("b.txt")), ("one\n", false));
    let diff = call(world, &["diff", "latest"]);
    assert!(diff.stdout.contains("+more") && diff.stdout.contains("b.txt"), "{diff}");
    // Killing a server that waits for the decision changes nothing.
    kill_server(&world.data());
    call(world, &["approve", "whole", "box"]).succeeds();
    was_applied_whole(world, "whole");

    up(world, &file, "some").ends_with(3);
    call(world, &["approve", "some", "box", "--only", "a.txt"]).succeeds();
    finished_run(world, "some");
    assert_eq!(world.read("a.txt"), "one\nmore\nmore\n");
    assert_eq!(world.read("runs.txt"), "x\n");

    up(world, &file, "none").ends_with(3);
    call(world, &["deny", "none", "box", "--note", "not now"]).succeeds();
    let run = finished_run(world, "none");
    assert_eq!(run["run"]["error"]["code"], "INVALID_INPUT", "{run}");
    assert!(run["run"]["error"]["message"].as_str().unwrap().contains("not now"), "{run}");
    assert_eq!(world.read("a.txt"), "one\nmore\nmore\n");
    let recorded = events(world, "none");
    assert!(types(&recorded).ends_with(&["SandboxDiffRejected", "SandboxFailed"]), "{recorded:?}");
    assert_eq!(world.bundles().len(), 0);
}

fn a_decision_that_cannot_be_carried_out_can_be_taken_again(world: &World) {
    world.write("a.txt", "one\n");
    let file = script(world, "edit", "echo more >> a.txt; echo '{}'", "");
    up(world, &file, "r").ends_with(3);
    world.write("a.txt", "changed by somebody\n");
    let refused = call(world, &["approve", "r", "box"]);
    refused.ends_with(1);
    assert!(refused.stderr.contains("BUNDLE_CONFLICT"), "{refused}");
    wait_until("it is tried", || types(&events(world, "r")).contains(&"SandboxDiffNotApplied"));
    wait_until("it waits", || inspect(world, "r")["tasks"][0]["status"] == "waiting-approval");
    assert_eq!(world.read("a.txt"), "changed by somebody\n");
    world.write("a.txt", "one\n");
    call(world, &["approve", "r", "box"]).succeeds();
    let run = finished_run(world, "r");
    assert_eq!(run["run"]["status"], "finished", "{run}");
    assert_eq!(world.read("a.txt"), "one\nmore\n");
}

fn what_host_tools_run_by_themselves_is_not_accepted_by_default(world: &World) {
    let hook = "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/x.yml; echo '{}'";
    let file = script(world, "hook", hook, "autoAcceptDiffs");
    up(world, &file, "r").ends_with(3);
    assert!(!world.has(".github/workflows/x.yml"));
    call(world, &["approve", "r", "box", "--allow-executed"]).succeeds();
    assert_eq!(finished_run(world, "r")["run"]["status"], "finished");
    assert!(world.has(".github/workflows/x.yml"));
}

fn what_cannot_be_had_is_refused_by_name(world: &World) {
    for (name, attributes, code, told) in [
        ("docker", "runtime=\"docker\" image=\"node\"", "SANDBOX_EXECUTION_FAILED", "`docker`"),
        ("codeplane", "runtime=\"codeplane\"", "INVALID_INPUT", "needs `allowNetwork`"),
        ("unset", "runtime=\"codeplane\" allowNetwork", "INVALID_INPUT", "CODEPLANE_API_URL"),
        ("unknown", "runtime=\"bubblewarp\"", "INVALID_INPUT", "did you mean bubblewrap"),
        ("unsaid", "egress={{ allowHosts: [\"a.example\"] }}", "INVALID_INPUT", "add allowNetwork"),
        (
            "hosts",
            "allowNetwork egress={{ allowHosts: [\"a*\"] }}",
            "INVALID_INPUT",
            "egress.allowHosts: \"a*\"",
        ),
        ("ports", "ports={[{ host: 0, container: 1 }]}", "INVALID_INPUT", "`ports`"),
        ("memory", "memoryLimit=\"lots\"", "INVALID_INPUT", "memoryLimit"),
        ("egress", "egress={{ httpProxy: 7 }}", "INVALID_INPUT", "httpProxy"),
        (
            "volume",
            "volumes={[{ host: \"/usr\", container: \"/workspace/x\" }]}",
            "INVALID_INPUT",
            "volume",
        ),
    ] {
        let file = script(world, name, "touch ran", attributes);
        let outcome = up(world, &file, name);
        if outcome.code() == 4 {
            // What can never be executed is refused before the run begins.
            assert!(outcome.stderr.contains(told), "{outcome}");
            assert!(outcome.stderr.contains(&format!("[{code}]")), "{outcome}");
            continue;
        }
        outcome.ends_with(1);
        let error = inspect(world, name)["run"]["error"].clone();
        assert_eq!(error["code"], code, "{name}: {error}");
        assert!(error["message"].as_str().unwrap().contains(told), "{name}: {error}");
        assert!(
            !events(world, name).iter().any(|event| event["type"] == "SandboxCreated"),
            "{name}"
        );
    }
    // Whether there is an image is only known when the sandbox starts.
    let file = script(world, "image", "touch ran", "image=\"127.0.0.1:1/x:1\"");
    up(world, &file, "image").ends_with(1);
    let error = inspect(world, "image")["run"]["error"].clone();
    assert_eq!(error["code"], "SANDBOX_EXECUTION_FAILED", "{error}");
    assert!(error["message"].as_str().unwrap().contains("127.0.0.1:1"), "{error}");
    assert!(!world.has("ran"));
    let misspelt = flow(world, "misspelt", "comand=\"true\"");
    let outcome = up(world, &misspelt, "misspelt");
    outcome.ends_with(4);
    assert!(outcome.stderr.contains("did you mean `command`"), "{outcome}");
}

fn volumes_are_named_or_paths_that_the_server_allows(world: &World) {
    let volume = "volumes={[{ host: \"data\", container: \"/data\", readonly: false }]}";
    let write = script(world, "write", "echo kept > /data/file; echo '{}'", volume);
    let up = |file: &str, run: &str| {
        // The server takes the variable from the command that starts it.
        let call = world.stockade(&["up", file, "--run-id", run]);
        call.env("STOCKADE_HOST_PATHS", "/usr/share").finish()
    };
    up(&write, "write").succeeds();
    let read_only = "volumes={[{ host: \"data\", container: \"/data\" }]}";
    let read = "grep -q kept /data/file && ! touch /data/new 2>/dev/null && echo '{}'";
    let read = script(world, "read", read, read_only);
    up(&read, "read").succeeds();
    let listed = "volumes={[{ host: \"/usr/share\", container: \"/data\" }]}";
    up(&script(world, "listed", "test -d /data && echo '{}'", listed), "listed").succeeds();
    let other = "volumes={[{ host: \"/usr/lib\", container: \"/data\" }]}";
    up(&script(world, "other", "echo '{}'", other), "other").ends_with(1);
    let error = inspect(world, "other")["run"]["error"].clone();
    assert_eq!(error["code"], "INVALID_INPUT", "{error}");
    assert!(error["message"].as_str().unwrap().contains("STOCKADE_HOST_PATHS"), "{error}");
    let seen = world.run(&["--discard", "-v", "data:/data"], &["cat", "/data/file"]);
    assert_eq!(seen.succeeds().stdout, "kept\n");
}

/// Hostile content of the result directory never reaches the host.
fn hostile_results_are_refused(world: &World) {
    let manifest = |text: &str| format!("printf '%s' '{text}' > /result/README.md");
    let finished = manifest("{\"status\": \"finished\", \"outputs\": {}}");
    let cases: &[(&str, String, &str)] = &[
        ("link", format!("{finished}; ln -s /etc/passwd /result/artifacts"), "TOOL_PATH_ESCAPE"),
        ("pipe", format!("{finished}; mkfifo /result/pipe"), "TOOL_PATH_ESCAPE"),
        ("manifest-link", "ln -s /etc/passwd /result/README.md".to_owned(), "TOOL_PATH_ESCAPE"),
        ("status", manifest("{\"status\": \"fine\"}"), "INVALID_INPUT"),
        ("no-json", manifest("{"), "INVALID_INPUT"),
        (
            "escape",
            manifest("{\"status\": \"finished\", \"patches\": [\"patches/../../x.patch\"]}"),
            "TOOL_PATH_ESCAPE",
        ),
        (
            "many",
            "mkdir -p /result/patches; cd /result/patches; seq 5000 | xargs touch".to_owned(),
            "INVALID_INPUT",
        ),
        (
            "large",
            format!("{finished}; head -c 104857601 /dev/zero > /result/artifact"),
            "INVALID_INPUT",
        ),
        ("fails", "echo why >&2; exit 9".to_owned(), "SANDBOX_EXECUTION_FAILED"),
        (
            "git",
            manifest(
                "{\"status\": \"finished\", \"diffBundle\": {\"seq\": 1, \"baseRef\": \"HEAD\", \
                 \"patches\": [{\"path\": \".git/hooks/post-commit\", \"operation\": \"add\", \
                 \"diff\": \"diff --git a/.git/hooks/post-commit b/.git/hooks/post-commit\\nnew file \
                 mode 100755\\n--- /dev/null\\n+++ b/.git/hooks/post-commit\\n@@ -0,0 +1 @@\\n+evil\\n\"}]}}",
            ),
            "TOOL_PATH_ESCAPE",
        ),
    ];
    for (name, command, code) in cases {
        let file = script(world, name, &format!("touch changed; {command}"), "autoAcceptDiffs");
        let outcome = up(world, &file, name);
        outcome.ends_with(1);
        let error = inspect(world, name)["run"]["error"].clone();
        assert_eq!(error["code"], *code, "{name}: {error}");
        let recorded = events(world, name);
        assert_eq!(types(&recorded).last(), Some(&"SandboxFailed"), "{name}: {recorded:?}");
        // The changes of a failed child are never applied.
        assert!(!world.has("changed"), "{name}");
    }
    assert!(!world.path(".git/hooks/post-commit").exists());
    assert_eq!(world.bundles().len(), 0, "changes of failed children wait");
    is_clean(world);
}

/// A sandbox keeps running while its server is dead, and the next server finds its result.
fn nothing_is_executed_twice_when_the_server_is_killed(world: &World) {
    let slow = "echo x >> runs.txt; sleep 1.5; echo '{\"n\": 3}'";
    let file = script(world, "slow", slow, "reviewDiffs={false}");
    let mut running = world.stockade(&["up", &file, "--run-id", "r", "--json"]).start();
    running.wait_for_output("\"stage\":\"executing\"");
    kill_server(&world.data());
    let outcome = running.finish();
    outcome.succeeds();
    assert_eq!(world.read("runs.txt"), "x\n");
    let run = inspect(world, "r");
    assert_eq!(run["run"]["output"], json!({ "n": 3 }), "{run}");
    assert_eq!(run["tasks"][0]["attempts"], 1, "{run}");
    is_clean(world);
}

fn a_sandbox_ends_with_its_time_and_with_its_run(world: &World) {
    let file = script(world, "late", "touch lost; sleep 60", "timeoutMs={1000}");
    let outcome = up(world, &file, "late");
    outcome.ends_with(1);
    assert_eq!(inspect(world, "late")["run"]["error"]["code"], "TASK_TIMEOUT", "{outcome}");
    is_clean(world);
    let file = script(world, "long", "sleep 60", "");
    let mut running = world.stockade(&["up", &file, "--run-id", "long", "--json"]).start();
    running.wait_for_output("\"stage\":\"executing\"");
    call(world, &["cancel", "long"]).succeeds();
    running.finish().ends_with(2);
    is_clean(world);
    assert!(!world.has("lost"));
}

fn one_sandbox_too_many_fails_at_once_or_waits(world: &World) {
    let source = |on_limit: &str| {
        format!(
            "/** @jsxImportSource smithers-orchestrator */\n\
             import {{ createSmithers, Parallel, Sandbox }} from \"smithers-orchestrator\";\n\
             const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
             export default smithers((ctx) => <Workflow name=\"w\"><Parallel>{{[1, 2, 3].map((n) => (\n\
               <Sandbox id={{`box-${{n}}`}} command=\"sleep 1; echo '{{}}'\" retries={{0}} {on_limit} output={{outputs.output}} />\n\
             ))}}</Parallel></Workflow>);\n"
        )
    };
    let run = |name: &str, on_limit: &str| {
        let file = world.write(&format!("{name}.tsx"), source(on_limit));
        let words = ["up", file.to_str().unwrap(), "--run-id", name];
        world.stockade(&words).env("SMITHERS_MAX_CONCURRENT_SANDBOXES", "2").finish()
    };
    run("waits", "onLimit=\"wait\"").succeeds();
    let outcome = run("fails", "");
    outcome.ends_with(1);
    let tasks = inspect(world, "fails")["tasks"].clone();
    let failed: Vec<&Value> =
        tasks.as_array().unwrap().iter().filter(|task| task["status"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{tasks}");
    assert_eq!(failed[0]["error"]["code"], "SANDBOX_EXECUTION_FAILED");
    is_clean(world);
}

/// What a command inside can see and access.
fn nothing_of_the_host_is_inside(world: &World) {
    let probe = "ls /root /home/* >&2; cat /workspace/.smithers/../.git/HEAD >/dev/null && \
                 touch /request/x /workspace/.smithers/x /opt/stockade/bin/x 2>/dev/null; \
                 printf '{\"request\": %d, \"hidden\": %d, \"net\": %d, \"secret\": \"%s\"}' \
                 \"$(ls /request | grep -c '^x$')\" \"$(ls -A /workspace/.smithers | wc -l)\" \
                 \"$(ls /sys/class/net 2>/dev/null | grep -vc '^lo$')\" \"$SECRET\"";
    world.write(".smithers/other/secret.txt", "another run's\n");
    let file = script(world, "look", probe, "");
    let outcome = world.stockade(&["up", &file]).env("SECRET", "hunter2").finish();
    outcome.succeeds();
    let expected = json!({ "request": 0, "hidden": 0, "net": 0, "secret": "" });
    assert_eq!(outcome.json(), expected, "{outcome}");
}

/// Metrics are computed from stored records: they are the same after a server is killed.
fn what_is_measured_outlives_the_server(world: &World) {
    let good = script(world, "good", "echo new > new.txt; echo '{}'", "");
    up(world, &good, "waits").ends_with(3);
    up(world, &good, "good").ends_with(3);
    call(world, &["approve", "good", "box"]).succeeds();
    assert_eq!(finished_run(world, "good")["run"]["status"], "finished");
    let bad = script(world, "bad", "exit 3", "");
    up(world, &bad, "bad").ends_with(1);
    let long = script(world, "long", "sleep 60", "");
    let mut running = world.stockade(&["up", &long, "--run-id", "long", "--json"]).start();
    running.wait_for_output("\"stage\":\"executing\"");
    let measured = || {
        let outcome = call(world, &["metrics", "--json"]);
        outcome.succeeds();
        outcome.json()
    };
    let series = |told: &Value, word: &str| {
        let series = told[word]["series"].as_array().unwrap().clone();
        let labels = |one: &Value| {
            let labels = one["labels"].as_object().unwrap().values();
            labels.map(|value| value.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let number = |one: &Value| {
            [&one["value"], &one["count"]].into_iter().find_map(Value::as_u64).unwrap()
        };
        series.iter().map(|one| (labels(one), number(one))).collect::<Vec<_>>()
    };
    let of = |number: u64| vec![("bubblewrap".to_owned(), number)];
    let reported = measured();
    assert_eq!(series(&reported, "sandboxActive"), of(1), "{reported}");
    assert_eq!(series(&reported, "sandboxInReview"), of(1), "{reported}");
    call(world, &["cancel", "long"]).succeeds();
    running.finish().ends_with(2);
    let reported = measured();
    assert_eq!(series(&reported, "sandboxActive"), [], "{reported}");
    assert_eq!(series(&reported, "sandboxCreatedTotal"), of(4), "{reported}");
    let outcomes = ["cancelled", "failed", "finished"];
    let each = outcomes.map(|way| (format!("bubblewrap {way}"), 1));
    assert_eq!(series(&reported, "sandboxCompletedTotal"), each, "{reported}");
    assert_eq!(series(&reported, "sandboxPatchCount"), [(String::new(), 2)], "{reported}");
    let operations = series(&reported, "sandboxTransportDurationMs");
    let expected = [("cleanup", 3), ("collect", 3), ("create", 4), ("execute", 3), ("ship", 4)];
    let expected = expected.map(|(name, count)| (format!("{name} bubblewrap"), count));
    assert_eq!(operations, expected, "{reported}");
    kill_server(&world.data());
    let mut reported = reported;
    // The times that sandboxes took to end are only counted since the start of a server.
    let operations = reported["sandboxTransportDurationMs"]["series"].as_array_mut().unwrap();
    operations.retain(|one| one["labels"]["operation"] != "cleanup");
    assert_eq!(measured(), reported);
    let text = call(world, &["metrics"]).stdout;
    let line = "smithers_sandbox_completed_total{runtime=\"bubblewrap\",status=\"failed\"} 1\n";
    assert!(text.contains(line), "{text}");
}

as_root_and_as_user![
    what_is_measured_outlives_the_server,
    every_example_does_what_it_says,
    changes_wait_for_a_decision_that_can_choose,
    a_decision_that_cannot_be_carried_out_can_be_taken_again,
    what_host_tools_run_by_themselves_is_not_accepted_by_default,
    what_cannot_be_had_is_refused_by_name,
    volumes_are_named_or_paths_that_the_server_allows,
    hostile_results_are_refused,
    nothing_is_executed_twice_when_the_server_is_killed,
    a_sandbox_ends_with_its_time_and_with_its_run,
    one_sandbox_too_many_fails_at_once_or_waits,
    nothing_of_the_host_is_inside,
];
