//! Inside a sandbox: the same binary executes workflows there too, with the walls that are
//! available inside. It reports that, and only the kernel makes it conclude that it is inside.

use std::path::Path;

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::World;

/// `stockade ARGUMENTS` inside `stockade run`, with the binary of this build.
fn inside(world: &World, options: &[&str], arguments: &[&str]) -> Outcome {
    let programs = format!("{}:/opt/stockade/bin:ro", world.path("bin").display());
    let options = [&["--discard", "--mount", &programs], options].concat();
    world.run(&options, &[&["/opt/stockade/bin/stockade"], arguments].concat())
}

const FLOW: &str = "/** @jsxImportSource smithers-orchestrator */\n\
    import { createSmithers } from \"smithers-orchestrator\";\n\
    const { Workflow, Task, smithers, outputs } = createSmithers({ a: {}, output: {} });\n\
    export default smithers((ctx) => <Workflow name=\"inner\">\n\
      <Task id=\"one\" output={outputs.a}>{() => { console.log(\"hello\"); return { n: ctx.input.n }; }}</Task>\n\
      <Task id=\"two\" output=\"output\">{() => ({ n: ctx.output(outputs.a).n + 1 })}</Task>\n\
    </Workflow>);\n";

fn a_workflow_is_done_inside_a_sandbox(world: &World) {
    world.write("flow.tsx", FLOW);
    let words = ["up", "flow.tsx", "--in-process", "--input", "{\"n\": 41}"];
    let done = inside(world, &[], &words);
    done.succeeds();
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap(), json!({ "n": 42 }), "{done}");
    assert!(done.stderr.contains("inside another sandbox"), "{done}");
    assert!(done.stderr.contains("[log] hello"), "{done}");
    // Outside, the same command reports nothing like that, whatever the environment is.
    let outside = world.stockade(&words).env("STOCKADE_SANDBOX_ID", "x").finish();
    outside.succeeds();
    assert!(!outside.stderr.contains("inside another sandbox"), "{outside}");
}

fn nothing_of_it_is_a_change_of_the_project(world: &World) {
    world.write("flow.tsx", FLOW);
    let programs = format!("{}:/opt/stockade/bin:ro", world.path("bin").display());
    let command =
        ["/opt/stockade/bin/stockade", "up", "flow.tsx", "--in-process", "--input", "{\"n\": 1}"];
    let before = world.bundles().len();
    world.run(&["--review", "--mount", &programs], &command).succeeds();
    assert_eq!(world.bundles().len(), before, "a bundle was made");
}

fn there_are_no_sandboxes_inside(world: &World) {
    let refused = inside(world, &[], &["create", "--in-process"]);
    refused.ends_with(125);
    assert!(
        refused.stderr.contains("no sandbox can be created inside another sandbox"),
        "{refused}"
    );
}

/// Commands are executed beside the engine in Stockade's own sandbox, and not in other
/// confinements.
fn commands_are_executed_in_our_confinement_only(world: &World) {
    let agent = "<Task id=\"t\" output={outputs.result} noRetry agent={{ command: \"touch executed; echo '{}'\" }}>Do</Task>";
    flow(world, "agent.tsx", agent);
    let programs = format!("{}:/opt/stockade/bin:ro", world.path("bin").display());
    let up = ["/opt/stockade/bin/stockade", "up", "agent.tsx", "--in-process"];
    let script = format!("{}; test -e executed && echo EXECUTED >&2", up.join(" "));
    let run = |words: &[&str]| world.run(&["--discard", "--mount", &programs], words);
    let ours = run(&["/bin/sh", "-c", &script]);
    assert!(ours.stderr.contains("EXECUTED"), "{ours}");
    let others = run(&["env", "-u", "STOCKADE", "/bin/sh", "-c", &script]);
    assert!(!others.stderr.contains("EXECUTED"), "{others}");
    assert!(others.stderr.contains("no sandbox can be created here"), "{others}");
}

/// A workflow file with this task only.
fn flow(world: &World, name: &str, task: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Approval, WaitForEvent, smithers, outputs }} = createSmithers({{ a: {{}}, result: {{}} }});\n\
         export default smithers((ctx) => <Workflow name=\"w\">{task}</Workflow>);\n"
    );
    world.write(name, source).to_str().unwrap().to_owned()
}

/// The manifest of a result.
fn manifest(result: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(result.join("README.md")).unwrap()).unwrap()
}

fn a_result_is_a_bundle_beside_what_tasks_left(world: &World) {
    let result = world.outside().join("result");
    let path = result.to_str().unwrap();
    let up = |file: &str, id: &str| {
        let words = ["up", file, "--in-process", "--result", path, "--run-id", id];
        world.stockade(&words).finish()
    };
    world.plant(&result.join("patches/a.patch"), "mine\n");
    world.plant(&result.join("artifacts/kept"), "mine too\n");
    world.plant(&result.join("README.md"), "{\"status\": \"failed\", \"runId\": \"not so\"}");
    let good = flow(
        world,
        "good.tsx",
        "<Task id=\"t\" output={outputs.result}>{() => { console.log(\"hello\"); return { n: 1 }; }}</Task>",
    );
    up(&good, "good").succeeds();
    let report = manifest(&result);
    assert_eq!(report["status"], "finished");
    assert_eq!(report["runId"], "good");
    assert_eq!(report["outputs"], json!({ "n": 1 }));
    assert_eq!(report["patches"], json!(["patches/a.patch"]));
    assert_eq!(std::fs::read_to_string(result.join("artifacts/kept")).unwrap(), "mine too\n");
    let log = std::fs::read_to_string(result.join("logs/stream.ndjson")).unwrap();
    let kinds: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds[0], "RunStarted", "{log}");
    assert!(kinds.contains(&json!("Log")) && kinds.contains(&json!("NodeFinished")), "{log}");
    // The state is one complete file with the audit records, and nothing else of the command remains.
    let state: Vec<_> = std::fs::read_dir(result.join("artifacts/state")).unwrap().collect();
    let mut names: Vec<_> = state.into_iter().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["audit", "stockade.db", "stockade.db.lock"]);
    assert!(!world.data().join("stockade.db").exists());
    // The finished run is not executed again.
    up(&good, "good").succeeds();
    let again = std::fs::read_to_string(result.join("logs/stream.ndjson")).unwrap();
    assert_eq!(again.lines().count(), log.lines().count());
}

fn a_result_tells_how_a_run_ended(world: &World) {
    let result = world.outside().join("result");
    let path = result.to_str().unwrap().to_owned();
    let ends = |task: &str, exit_code: i32| {
        let _ = std::fs::remove_dir_all(&result);
        let file = flow(world, "flow.tsx", task);
        let words = ["up", &file, "--in-process", "--result", &path];
        let outcome = world.stockade(&words).finish();
        outcome.ends_with(exit_code);
        let report = manifest(&result);
        assert_eq!(report["status"], "failed", "{outcome}");
        report["outputs"]["error"].clone()
    };
    let thrown =
        "<Task id=\"t\" output=\"result\" noRetry>{() => { throw new Error(\"no\"); }}</Task>";
    let error = ends(thrown, 1);
    assert_eq!((&error["message"], &error["task"]), (&json!("no"), &json!("t")), "{error}");
    let long = "<Task id=\"t\" output=\"result\">{() => ({ s: \"x\".repeat(70000) })}</Task>";
    let error = ends(long, 1);
    assert_eq!(error["code"], "INVALID_INPUT", "{error}");
    assert!(error["cause"].as_str().unwrap().contains("string in outputs"), "{error}");
    let error = ends("<Task id=\"t\" />", 4);
    assert_eq!(error["code"], "INVALID_INPUT", "{error}");
}

/// A waiting run stores what it waits for, and continues at the same point once it is answered.
fn a_run_that_waits_says_for_what_and_goes_on(world: &World) {
    let result = world.outside().join("result");
    let path = result.to_str().unwrap().to_owned();
    let task = "<Approval id=\"a\" output=\"a\" /><WaitForEvent id=\"w\" event=\"go\" output=\"result\" />";
    let file = flow(world, "flow.tsx", task);
    let up = || {
        let words = ["up", &file, "--in-process", "--run-id", "r", "--result", &path];
        world.stockade(&words).finish()
    };
    let waiting = || {
        let text = std::fs::read_to_string(result.join("waiting.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let report = |round: u32, answer: &Value| {
        let reported = json!({ "run": "r", "round": round, "answers": [answer] }).to_string();
        world.plant(&result.join("answers.json"), &reported);
    };
    up().ends_with(3);
    let wait = json!({ "kind": "approval", "node": "a", "iteration": 0 });
    assert_eq!(waiting(), json!({ "run": "r", "waits": [wait] }));
    assert!(!result.join("README.md").exists());
    // Without an answer it continues to wait.
    up().ends_with(3);
    report(1, &json!({ "kind": "approval", "node": "a", "iteration": 0, "approved": true }));
    up().ends_with(3);
    let wait = json!({ "kind": "signal", "node": "w", "iteration": 0, "name": "go" });
    assert_eq!(waiting()["waits"], json!([wait]));
    // An answer that it already received is not applied again.
    up().ends_with(3);
    let reply = json!({ "n": 7 });
    report(
        2,
        &json!({ "kind": "signal", "node": "w", "iteration": 0, "name": "go", "payload": reply }),
    );
    up().succeeds();
    let report = manifest(&result);
    assert_eq!((&report["status"], &report["outputs"]), (&json!("finished"), &reply), "{report}");
    assert!(!result.join("waiting.json").exists());
}

/// What a `<Sandbox>` does: its child's program is sent to a sandbox with a view of the project, is
/// executed there, and its result is returned.
fn a_child_is_done_in_a_sandbox_and_its_result_comes_out(world: &World) {
    world.write("name.ts", "export const name = \"child\";\n");
    let source = "/** @jsxImportSource smithers-orchestrator */\n\
        import { createSmithers } from \"smithers-orchestrator\";\n\
        import { name } from \"./name\";\n\
        const child = createSmithers({ input: { type: \"object\", required: [\"n\"] }, result: {} });\n\
        const inner = child.smithers((ctx) => <child.Workflow name={name}>\n\
          <child.Task id=\"t\" output={child.outputs.result}>{() => ({ name, n: ctx.input.n + 1 })}</child.Task>\n\
        </child.Workflow>);\n\
        const { Workflow, Sandbox, smithers } = createSmithers({ output: {} });\n\
        export default smithers((ctx) => <Workflow name=\"outer\">\n\
          <Sandbox id=\"s\" workflow={inner} output=\"output\" />\n\
        </Workflow>);\n";
    let file = world.write("flow.tsx", source);
    let request = world.outside().join("request");
    world.plant(&request.join("README.md"), "{\"status\": \"pending\"}");
    let words = ["debug", "child", file.to_str().unwrap(), "s", request.to_str().unwrap()];
    world.stockade(&words).finish().succeeds();
    // A run that has started is not affected by later changes of the project.
    world.write("name.ts", "export const name = \"changed\";\n");
    let project = world.project.to_str().unwrap();
    let mounts = [
        format!("{}:/opt/stockade/bin:ro", world.path("bin").display()),
        format!("{}:/request:ro", request.display()),
    ];
    let [programs, request] = mounts.each_ref().map(String::as_str);
    let words = ["create", "--workspace", project, "--mount", programs, "--mount", request];
    let made = world.stockade(&words).finish();
    made.succeeds();
    let id = made.stdout.trim_end();
    let up = ["/opt/stockade/bin/stockade", "up", "/request/bundle.tsx", "--in-process"];
    let how = ["--input", "{\"n\": 1}", "--run-id", "inner", "--result", "/result"];
    let done = world.stockade(&[&["exec", id, "--"][..], &up, &how].concat()).finish();
    done.succeeds();
    let result = world.outside().join("result");
    let from = format!("{id}:/result");
    world.stockade(&["cp", &from, result.to_str().unwrap()]).finish().succeeds();
    let report = manifest(&result);
    assert_eq!(report["status"], "finished", "{report}");
    assert_eq!(report["outputs"], json!({ "name": "child", "n": 2 }), "{report}");
    assert!(result.join("artifacts/state/stockade.db").exists());
    // No file of it is in the view of the project.
    let seen = world.stockade(&["exec", id, "--", "ls", "-A", project]).finish();
    let mut seen: Vec<String> = seen.stdout.lines().map(str::to_owned).collect();
    let there = std::fs::read_dir(&world.project).unwrap();
    let mut there: Vec<String> =
        there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for names in [&mut seen, &mut there] {
        names.retain(|name| name != ".git");
        names.sort();
    }
    assert_eq!(seen, there);
}

/// A rendered child in a child run of another run: it gets the values that its parents read.
fn a_child_knows_what_the_workflow_around_it_read(world: &World) {
    let source = "/** @jsxImportSource smithers-orchestrator */\n\
        import { createSmithers } from \"smithers-orchestrator\";\n\
        const { Workflow, Sequence, Task, Sandbox, Subflow, smithers, outputs } = createSmithers({ a: {}, b: {}, output: {} });\n\
        export default smithers((outer) => {\n\
          const middle = smithers((ctx) => <Workflow name=\"middle\"><Sequence>\n\
            <Task id=\"a\" output={outputs.a}>{() => ({ n: ctx.input.n * 10 })}</Task>\n\
            <Task id=\"b\" output={outputs.b}>{() => ({ unread: true })}</Task>\n\
            {ctx.outputMaybe(outputs.a) && <Sandbox id=\"s\" output={outputs.output} input={{ mine: 1 }}>\n\
              {(inner) => <Task id=\"t\" output={outputs.output}>{() => ({\n\
                outer: outer.input.n, a: ctx.output(outputs.a).n, mine: inner.input.mine,\n\
              })}</Task>}\n\
            </Sandbox>}\n\
          </Sequence></Workflow>);\n\
          return <Workflow name=\"outer\"><Subflow id=\"m\" workflow={middle} input={{ n: outer.input.n + 1 }} output={outputs.output} /></Workflow>;\n\
        });\n";
    let file = world.write("flow.tsx", source);
    let words = ["up", file.to_str().unwrap(), "--run-id", "outer", "--input", "{\"n\": 1}"];
    let done = world.stockade(&words).finish();
    done.succeeds();
    assert_eq!(done.json(), json!({ "outer": 1, "a": 20, "mine": 1 }), "{done}");
    let files = world.project.join(".smithers/sandboxes");
    let request = world.on_host("/bin/grep".as_ref(), &["-rl", "unread", files.to_str().unwrap()]);
    assert_eq!(request.finish().stdout.matches("request-bundle").count(), 1, "the module alone");
}

as_root_and_as_user![
    a_child_knows_what_the_workflow_around_it_read,
    a_workflow_is_done_inside_a_sandbox,
    nothing_of_it_is_a_change_of_the_project,
    there_are_no_sandboxes_inside,
    commands_are_executed_in_our_confinement_only,
    a_result_is_a_bundle_beside_what_tasks_left,
    a_result_tells_how_a_run_ended,
    a_run_that_waits_says_for_what_and_goes_on,
    a_child_is_done_in_a_sandbox_and_its_result_comes_out,
];
