//! Providers of a `<Sandbox>` with the local server: their results are reviewed like those of a
//! sandbox of this host, they clean up after a run that is cancelled, and when the server is
//! killed, nothing of them is left or executed twice.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::daemons::{kill_server, wait_until};
use crate::harness::{World, skip};
use crate::sandbox::{call, events, finished_run, inspect, is_clean, types, was_applied_whole};

/// A workflow file with one sandbox, which has these attributes, after `before`.
pub(crate) fn flow(world: &World, name: &str, before: &str, attributes: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const child = createSmithers({{ result: {{}} }});\n\
         const inner = child.smithers(() => (<child.Workflow name=\"inner\">\n\
           <child.Task id=\"t\" output={{child.outputs.result}}>{{() => ({{ n: 7 }})}}</child.Task>\n\
         </child.Workflow>), {{ output: child.outputs.result }});\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         {before}\n\
         export default smithers((ctx) => (<Workflow name=\"{name}\">\n\
           <Sandbox id=\"box\" workflow={{inner}} input={{ctx.input}} output={{outputs.output}} retries={{0}} {attributes} />\n\
         </Workflow>));\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

pub(crate) fn up(world: &World, file: &str, run: &str) -> Outcome {
    call(world, &["up", file, "--run-id", run])
}

/// Configures a program as the provider `mine`.
pub(crate) fn grant(world: &World, what: &Value) {
    let file = world.data().join("providers.json");
    world.plant(&file, &json!({ "mine": what }).to_string());
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
}

/// A program that runs JavaScript modules, if it is installed; otherwise the test is recorded as
/// skipped.
pub(crate) fn runner(world: &World, name: &str, test: &str) -> Option<PathBuf> {
    let installed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("packages/npm");
    let bun = installed.join("node_modules/@oven/bun-linux-x64-baseline/bin/bun");
    let found = match name {
        "bun" => Some(bun).filter(|bun| bun.is_file()),
        _ => ["/usr/local/bin", "/usr/bin"]
            .iter()
            .map(|directory| PathBuf::from(directory).join(name))
            .find(|path| path.is_file()),
    };
    let Some(found) = found else {
        let who = if world.identity.uid() == 0 { "as_root" } else { "as_user" };
        skip(&format!("e2e::providers::{test}::{who}"), &format!("there is no {name}"));
        return None;
    };
    if name != "bun" {
        return Some(found);
    }
    // Other users may have no access to the target directory.
    let reachable = world.path("bin/bun");
    crate::harness::link_or_copy(&found, &reachable);
    Some(reachable)
}

/// The result of a provider is reviewed: all, some or none of it is applied, at exactly its lines.
fn what_a_provider_proposes_is_reviewed(world: &World) {
    world.write("a.txt", "one\n");
    world.git(&["add", "a.txt"]);
    world.git(&["commit", "--quiet", "--message=base"]);
    let patch = |path: &str, from: &str, operation: &str, hunk: &str| {
        let (new, old) = match operation {
            "add" => ("new file mode 100644\n", "/dev/null".to_owned()),
            _ => ("", format!("a/{from}")),
        };
        let diff = format!("diff --git a/{path} b/{path}\n{new}--- {old}\n+++ b/{path}\n{hunk}");
        json!({ "path": path, "operation": operation, "diff": diff })
    };
    let diff = json!({ "seq": 1, "baseRef": "HEAD", "patches": [
        patch("a.txt", "a.txt", "modify", "@@ -1 +1,2 @@\n one\n+more\n"),
        patch("b.txt", "b.txt", "add", "@@ -0,0 +1 @@\n+new\n"),
    ] });
    let provider = format!(
        "let runs = 0;\nconst provider = {{ id: \"p\", run() {{ console.log(`runs ${{runs += 1}}`);\n\
         return {{ status: \"finished\", output: {{ n: 1 }}, diffBundle: {diff} }}; }} }};"
    );
    let file = flow(world, "edit", &provider, "provider={provider}");
    let is_untouched = || world.read("a.txt") == "one\n" && !world.has("b.txt");

    up(world, &file, "none").ends_with(3);
    let shown = call(world, &["diff", "latest"]);
    assert!(shown.stdout.contains("+more") && shown.stdout.contains("b.txt"), "{shown}");
    call(world, &["deny", "none", "box", "--note", "not now"]).succeeds();
    let run = finished_run(world, "none");
    assert_eq!(run["run"]["error"]["code"], "INVALID_INPUT", "{run}");
    assert!(is_untouched() && world.bundles().is_empty());

    up(world, &file, "some").ends_with(3);
    call(world, &["approve", "some", "box", "--only", "b.txt"]).succeeds();
    let run = finished_run(world, "some");
    assert_eq!(run["run"]["output"], json!({ "n": 1 }), "{run}");
    assert_eq!((world.read("a.txt").as_str(), world.read("b.txt").as_str()), ("one\n", "new\n"));
    assert!(world.bundles().is_empty(), "what was not chosen is declined");

    std::fs::remove_file(world.project.join("b.txt")).unwrap();
    up(world, &file, "whole").ends_with(3);
    assert!(is_untouched());
    // Killing a server that waits for the decision changes nothing.
    kill_server(&world.data());
    call(world, &["approve", "whole", "box"]).succeeds();
    was_applied_whole(world, "whole");
    assert_eq!(call(world, &["logs", "whole"]).stdout, "runs 1\n");

    // It conflicts now: nothing of it is applied, and the user can repeat the decision.
    let run = up(world, &file, "stale");
    assert!(run.code() != 0 && world.read("a.txt") == "one\nmore\n", "{run}");
    is_clean(world);
}

/// A module that records in the project what happens to it.
const MODULE: &str = "import { appendFileSync } from \"node:fs\";\n\
    const note = (text) => appendFileSync(\"notes\", `${text}\\n`);\n\
    export default {\n\
      id: \"mine\",\n\
      async run(request) {\n\
        note(`run ${process.versions.bun === undefined ? \"node\" : \"bun\"}`);\n\
        request.heartbeat({ phase: \"begun\" });\n\
        request.signal.addEventListener(\"abort\", () => note(\"aborted\"));\n\
        if (request.input.way === \"wait\") await new Promise(() => {});\n\
        if (request.input.way === \"spin\") for (;;) {}\n\
        if (request.input.way === \"once\" && process.env.GO === undefined) await new Promise((done) => setTimeout(done, 1500));\n\
        const one = await request.executeChildWorkflow(request.parentWorkflow, { workflow: request.workflow, input: {} });\n\
        note(\"done\");\n\
        return { status: one.status, output: one.output, remoteRunId: one.runId };\n\
      },\n\
      cleanup(request) { note(`cleaned ${request.sandboxId}`); },\n\
    };\n";

/// The processes of the world's identity whose arguments contain a text.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
        let line_text = String::from_utf8_lossy(&line).replace('\0', " ");
        (holds(&line) || holds(&environment)).then_some(line_text)
    });
    lines.collect()
}

/// Starts a run of a module, which receives this `way`, and waits until the module has started.
fn start(world: &World, file: &str, run: &str, route: &str) -> crate::call::Running {
    let input = json!({ "way": route }).to_string();
    let words = ["up", file, "--run-id", run, "--json", "--input", &input];
    let running = world.stockade(&words).start();
    wait_until("the provider has begun", || world.has("notes"));
    running
}

fn a_module(world: &World, runner: &str) -> String {
    let module = world.outside().join("provider.mjs");
    world.plant(&module, MODULE);
    grant(world, &json!({ "module": module, "program": runner, "environment": ["MARK"] }));
    flow(world, "module", "", "provider=\"mine\"")
}

fn notes(world: &World) -> String {
    std::fs::read_to_string(world.project.join("notes")).unwrap_or_default()
}

/// Everything that a user's module can do, in the user's own runner.
fn a_module_works_and_is_cleaned_up_behind(world: &World, name: &str, test: &str) {
    let Some(runner) = runner(world, name, test) else { return };
    let file = a_module(world, runner.to_str().unwrap());
    let outcome = up(world, &file, "works");
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "n": 7 }), "{outcome}");
    assert_eq!(notes(world), format!("run {name}\ndone\ncleaned box\n"));
    for route in ["wait", "spin"] {
        std::fs::remove_file(world.project.join("notes")).unwrap();
        let running = start(world, &file, route, route);
        call(world, &["cancel", route]).succeeds();
        running.finish().ends_with(2);
        wait_until("it has cleaned up", || notes(world).contains("cleaned box"));
        let row = inspect(world, route)["sandboxes"][0].clone();
        assert_eq!(row["status"], "cancelled", "{row}");
        let module = world.outside().join("provider.mjs");
        wait_until("no process of it is left", || {
            processes_with(module.to_str().unwrap()).is_empty()
        });
        assert_eq!(notes(world).matches("cleaned box").count(), 1, "{route}: {}", notes(world));
    }
    is_clean(world);
}

fn a_module_of_node_is_cleaned_up_behind(world: &World) {
    a_module_works_and_is_cleaned_up_behind(world, "node", "a_module_of_node_is_cleaned_up_behind");
}

fn a_module_of_bun_is_cleaned_up_behind(world: &World) {
    a_module_works_and_is_cleaned_up_behind(world, "bun", "a_module_of_bun_is_cleaned_up_behind");
}

/// A killed server leaves no provider behind, and the next server continues the same attempt.
fn a_killed_server_leaves_no_module_behind(world: &World) {
    let Some(node) = runner(world, "node", "a_killed_server_leaves_no_module_behind") else {
        return;
    };
    let file = a_module(world, node.to_str().unwrap());
    let running = start(world, &file, "r", "once");
    kill_server(&world.data());
    let outcome = running.finish();
    outcome.succeeds();
    let run = inspect(world, "r");
    assert_eq!(
        (&run["run"]["output"], &run["tasks"][0]["attempts"]),
        (&json!({ "n": 7 }), &json!(1))
    );
    // The remains of the first are cleaned up before the second starts, and the first does nothing
    // more.
    assert_eq!(notes(world), "run node\ncleaned box\nrun node\ndone\ncleaned box\n", "{outcome}");
    let children = call(world, &["runs", "--json"]).json()["runs"].clone();
    assert_eq!(children.as_array().unwrap().len(), 2, "one child, of one try: {children}");
    let recorded = events(world, "r");
    let expected =
        ["SandboxCreated", "SandboxShipped", "SandboxBundleReceived", "SandboxCompleted"];
    assert_eq!(types(&recorded), expected);

    // A run that is cancelled at the next server: the provider is cleaned up and not started again.
    std::fs::remove_file(world.project.join("notes")).unwrap();
    let mut running = start(world, &file, "cancelled", "wait");
    running.signal(rustix::process::Signal::KILL);
    wait_until("nobody follows it", || !running.is_running());
    kill_server(&world.data());
    call(world, &["cancel", "cancelled"]).succeeds();
    assert_eq!(notes(world), "run node\ncleaned box\n");

    // A provider that no longer handles any message.
    std::fs::remove_file(world.project.join("notes")).unwrap();
    let running = start(world, &file, "spins", "spin");
    kill_server(&world.data());
    wait_until("the next one has begun", || notes(world).matches("run node").count() == 2);
    let module = world.outside().join("provider.mjs");
    wait_until("the first is gone", || {
        processes_with(module.to_str().unwrap())
            .iter()
            .filter(|line| line.starts_with(node.to_str().unwrap()))
            .count()
            == 1
    });
    call(world, &["cancel", "spins"]).succeeds();
    running.finish().ends_with(2);
    wait_until("none is left", || processes_with(module.to_str().unwrap()).is_empty());
}

/// The same for a command, which may have started processes that try to escape.
fn a_killed_server_leaves_no_command_behind(world: &World) {
    let script = "echo begun >> notes; (setsid sh -c 'sleep 5; echo late >> notes' &); \
                  test -e go || sleep 5; echo '{\"status\": \"finished\", \"output\": {}}'";
    grant(world, &json!({ "command": ["/bin/sh", "-c", script] }));
    let file = flow(world, "command", "", "provider=\"mine\"");
    let running = world.stockade(&["up", &file, "--run-id", "r", "--json"]).start();
    wait_until("the command has begun", || world.has("notes"));
    world.write("go", "");
    kill_server(&world.data());
    running.finish().succeeds();
    assert_eq!(notes(world), "begun\nbegun\n");
    wait_until("nothing of it is left", || processes_with("echo late >> notes").is_empty());
    assert_eq!(notes(world), "begun\nbegun\n");
}

as_root_and_as_user![
    what_a_provider_proposes_is_reviewed,
    a_module_of_node_is_cleaned_up_behind,
    a_module_of_bun_is_cleaned_up_behind,
    a_killed_server_leaves_no_module_behind,
    a_killed_server_leaves_no_command_behind,
];
