//! Children in sandboxes that wait for something from outside: their parents wait with them, any
//! client may answer, and they continue where they were, whichever process is killed meanwhile.

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::World;
use crate::sandbox::{call, events, finished_run, inspect, is_clean};

/// A workflow file whose only task is a sandbox with these attributes, around this child.
fn flow(world: &World, name: &str, attributes: &str, child: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const child = createSmithers({{ a: {{}}, b: {{}}, c: {{}}, result: {{}} }});\n\
         const {{ Workflow, Task, Sequence, Parallel, Loop, Approval, Signal, WaitForEvent, Timer, Subflow, outputs }} = child;\n\
         const later = (ms) => new Promise((done) => setTimeout(done, ms));\n\
         const below = child.smithers((ctx) => <Workflow name=\"below\">\n\
           <WaitForEvent id=\"word\" event=\"go\" output={{outputs.a}} />\n\
           <Task id=\"said\" output={{outputs.result}}>{{() => ctx.output(outputs.a)}}</Task>\n\
         </Workflow>);\n\
         const inner = child.smithers((ctx) => <Workflow name=\"inner\">{child}</Workflow>);\n\
         const parent = createSmithers({{ output: {{}} }});\n\
         export default parent.smithers((ctx) => <parent.Workflow name=\"{name}\">\n\
           <Sandbox id=\"box\" workflow={{inner}} output={{parent.outputs.output}} retries={{0}} {attributes} />\n\
         </parent.Workflow>);\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

/// A child that works, waits for an approval, and continues to work.
const ASKS: &str = "<Task id=\"build\" output={outputs.b}>{() => ({ built: true })}</Task>\n\
    <Approval id=\"deploy\" output={outputs.a} request={{ title: \"Deploy?\", summary: \"It is built.\" }} />\n\
    <Task id=\"end\" output={outputs.result}>{async () => { await later(700); return { note: ctx.output(outputs.a).note }; }}</Task>";

fn up(world: &World, file: &str, run: &str) -> Outcome {
    call(world, &["up", file, "--run-id", run])
}

/// How often the child of a run started each of its tasks, according to its log.
fn count_starts(world: &World, run: &str, task: &str) -> usize {
    let log = format!(".smithers/sandboxes/{run}/box/result/logs/stream.ndjson");
    let log = world.read(&log);
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["type"] == "NodeStarted" && event["nodeId"] == task).count()
}

fn types(world: &World, run: &str) -> Vec<String> {
    let events = events(world, run);
    let types = events.iter().map(|event| event["type"].as_str().unwrap().to_owned());
    types.filter(|name| name != "SandboxHeartbeat").collect()
}

fn finished(world: &World, run: &str, output: &Value) {
    let found = finished_run(world, run);
    assert_eq!(found["run"]["output"], *output, "{found}");
    assert_eq!(
        (&found["waits"], &found["tasks"][0]["attempts"]),
        (&json!([]), &json!(1)),
        "{found}"
    );
    is_clean(world);
}

fn a_parent_waits_with_its_child(world: &World) {
    let file = flow(world, "asks", "timeoutMs={8000}", ASKS);
    let up = world.stockade(&["up", &file, "--run-id", "r"]);
    let outcome = up.env("STOCKADE_SERVER_IDLE_SECONDS", "1").finish();
    outcome.ends_with(3);
    let hint =
        "box/deploy waits for a decision (Deploy? It is built.): stockade approve r box/deploy";
    assert!(outcome.stderr.contains(hint), "{outcome}");
    // No server needs to run for it; the sandbox still exists.
    wait_until("the server ends", || servers(&world.data()).is_empty());
    std::thread::sleep(std::time::Duration::from_secs(8));
    let found = inspect(world, "r");
    let wait = json!({
        "kind": "approval", "node": "box/deploy", "iteration": 0, "title": "Deploy?",
        "summary": "It is built.",
    });
    assert_eq!(found["waits"], json!([wait]), "{found}");
    assert_eq!(found["run"]["status"], "waiting", "{found}");
    assert_eq!(found["tasks"][0]["status"], "waiting-approval", "{found}");
    assert_eq!(found["sandboxes"][0]["status"], "waiting", "{found}");
    assert!(call(world, &["inspect", "r"]).stdout.contains("stockade approve r box/deploy"));
    assert_eq!(call(world, &["ls", "--json"]).json()["sandboxes"].as_array().unwrap().len(), 1);
    let wrong = call(world, &["approve", "r", "box"]);
    wrong.ends_with(1);
    assert!(wrong.stderr.contains("box/deploy"), "{wrong}");
    call(world, &["approve", "r", "box/deploy", "--note", "go"]).succeeds();
    // Its timeout limits the execution, not the wait.
    finished(world, "r", &json!({ "note": "go" }));
    assert_eq!((count_starts(world, "r", "build"), count_starts(world, "r", "end")), (1, 1));
    let expected = [
        "SandboxCreated",
        "SandboxShipped",
        "SandboxWaiting",
        "SandboxResumed",
        "SandboxBundleReceived",
        "SandboxCompleted",
    ];
    assert_eq!(types(world, "r"), expected);
    let result = world.project.join(".smithers/sandboxes/r/box/result");
    assert!(!result.join("waiting.json").exists() && !result.join("answers.json").exists());

    // The name inside the child is enough if it is unique.
    call(world, &["up", &file, "--run-id", "no"]).ends_with(3);
    call(world, &["deny", "no", "deploy", "--note", "not now"]).succeeds();
    let error = finished_run(world, "no")["run"]["error"].clone();
    assert_eq!(error["code"], "APPROVAL_DENIED", "{error}");
    assert!(error["message"].as_str().unwrap().contains("not now"), "{error}");
    is_clean(world);
}

fn signals_reach_a_child_and_what_is_below_it(world: &World) {
    let child = "<Parallel>\n\
          <Signal id=\"one\" schema={outputs.b} />\n\
          <WaitForEvent id=\"two\" event=\"go\" correlationId=\"x\" output={outputs.c} />\n\
          <Subflow id=\"sub\" workflow={below} output={outputs.result} />\n\
        </Parallel>\n\
        <Task id=\"end\" output={outputs.result}>{() => [ctx.output(outputs.b), ctx.output(outputs.c)]}</Task>";
    let file = flow(world, "signals", "", child);
    up(world, &file, "r").ends_with(3);
    let found = inspect(world, "r");
    let waits = found["waits"].as_array().unwrap().clone();
    let nodes: Vec<&Value> = waits.iter().map(|wait| &wait["node"]).collect();
    assert_eq!(nodes, ["box/one", "box/two", "box/sub/word"], "{found}");
    assert_eq!(found["tasks"][0]["status"], "waiting-event", "{found}");
    // A name is enough for a child that waits, and for one that does something else meanwhile.
    for (name, payload) in [("box/sub/go", "{\"n\": 3}"), ("one", "{\"n\": 1}")] {
        call(world, &["signal", "r", name, "--payload", payload]).succeeds();
    }
    let two = ["signal", "r", "go", "--correlation-id", "x", "--payload", "{\"n\": 2}"];
    call(world, &two).succeeds();
    let output = finished_run(world, "r")["run"]["output"].clone();
    assert!(output.to_string().contains("{\"n\":1},{\"n\":2}"), "{output}");
    is_clean(world);
}

fn a_time_that_a_child_waits_for_is_its_parents(world: &World) {
    let child = "<Task id=\"build\" output={outputs.b}>{() => ({})}</Task>\n\
        <Timer id=\"rest\" duration=\"36s\" />\n\
        <Task id=\"end\" output={outputs.result}>{() => ({ rested: true })}</Task>";
    let file = flow(world, "rests", "", child);
    let outcome = up(world, &file, "r");
    if outcome.code() == 3 {
        assert!(outcome.stderr.contains("box/rest waits for a timer"), "{outcome}");
        let found = inspect(world, "r");
        assert_eq!(found["tasks"][0]["status"], "waiting-timer", "{found}");
        assert_eq!(found["run"]["wakeAt"], found["waits"][0]["dueAt"], "{found}");
        kill_server(&world.data());
    }
    finished(world, "r", &json!({ "rested": true }));
    assert_eq!(count_starts(world, "r", "build"), 1);
    assert!(types(world, "r").contains(&"SandboxWaiting".to_owned()));
}

/// Killed at each event: before the child waits, while it waits, between the answer and its effect,
/// during the effect, and after it.
fn nothing_is_done_twice_whenever_the_server_is_killed(world: &World) {
    let file = flow(world, "asks", "", ASKS);
    let at_events = [
        "SandboxCreated",
        "SandboxShipped",
        "SandboxWaiting",
        "Answered",
        "SandboxResumed",
        "SandboxBundleReceived",
        "SandboxCompleted",
    ];
    for event in at_events {
        let happens = |event: &str| {
            wait_until(event, || types(world, event_run(event)).iter().any(|it| it == event));
            kill_server(&world.data());
        };
        let run = event_run(event);
        call(world, &["up", &file, "--run-id", run, "--detach"]).succeeds();
        if ["SandboxCreated", "SandboxShipped", "SandboxWaiting"].contains(&event) {
            happens(event);
        }
        wait_until("it waits", || inspect(world, run)["run"]["status"] == "waiting");
        call(world, &["approve", run, "box/deploy", "--note", run]).succeeds();
        match event {
            "Answered" => kill_server(&world.data()),
            "SandboxResumed" | "SandboxBundleReceived" | "SandboxCompleted" => happens(event),
            _ => {}
        }
        finished(world, run, &json!({ "note": run }));
        assert_eq!(
            (count_starts(world, run, "build"), count_starts(world, run, "end")),
            (1, 1),
            "{run}"
        );
        for kind in ["SandboxWaiting", "SandboxResumed"] {
            let times = types(world, run).iter().filter(|name| *name == kind).count();
            assert_eq!(times, 1, "{run}: {kind}");
        }
    }
}

/// The name of the run in which a server is killed at that event.
fn event_run(event: &str) -> &str {
    event.strip_prefix("Sandbox").unwrap_or(event)
}

fn nothing_is_left_of_a_child_whose_run_is_over(world: &World) {
    let file = flow(world, "asks", "", ASKS);
    up(world, &file, "r").ends_with(3);
    kill_server(&world.data());
    call(world, &["cancel", "r"]).succeeds();
    let found = inspect(world, "r");
    assert_eq!(found["sandboxes"][0]["status"], "cancelled", "{found}");
    is_clean(world);
    // After a resume, it starts from the beginning.
    call(world, &["resume", "r"]).ends_with(3);
    call(world, &["approve", "r", "box/deploy"]).succeeds();
    assert_eq!(finished_run(world, "r")["run"]["status"], "finished");

    let source = "/** @jsxImportSource smithers-orchestrator */\n\
        import { createSmithers } from \"smithers-orchestrator\";\n\
        const { Workflow, Approval, Parallel, Sandbox, smithers, outputs } = createSmithers({ a: {}, output: {} });\n\
        export default smithers((ctx) => <Workflow name=\"w\"><Parallel>\n\
          <Sandbox id=\"box\" output={outputs.output}>{(inner) => <Approval id=\"ok\" output={outputs.a} />}</Sandbox>\n\
          <Approval id=\"other\" output={outputs.a} />\n\
        </Parallel></Workflow>);\n";
    let file = world.write("fails.tsx", source);
    up(world, file.to_str().unwrap(), "f").ends_with(3);
    let found = inspect(world, "f");
    assert_eq!(found["waits"].as_array().unwrap().len(), 2, "{found}");
    call(world, &["deny", "f", "other"]).succeeds();
    assert_eq!(finished_run(world, "f")["run"]["error"]["code"], "APPROVAL_DENIED");
    is_clean(world);
}

/// A child whose sandbox was ended cannot continue; another attempt starts from the beginning, and
/// waits for an approval again.
fn a_child_whose_sandbox_is_gone_is_begun_anew(world: &World) {
    let attributes = "retryPolicy={{ initialDelayMs: 1 }}";
    let file = flow(world, "asks", attributes, ASKS);
    let text = world.read("asks.tsx").replace("retries={0}", "retries={1}");
    world.write("asks.tsx", text);
    up(world, &file, "r").ends_with(3);
    let sandboxes = call(world, &["ls", "--json"]).json()["sandboxes"].clone();
    call(world, &["kill", sandboxes[0]["id"].as_str().unwrap()]).succeeds();
    kill_server(&world.data());
    // The process that continues the run notices that.
    wait_until("it is tried again", || {
        let found = inspect(world, "r");
        found["tasks"][0]["attempts"] == 2 && found["run"]["status"] == "waiting"
    });
    let recorded = json!(events(world, "r")).to_string();
    assert!(recorded.contains("the sandbox of a waiting child no longer exists"), "{recorded}");
    call(world, &["approve", "r", "box/deploy", "--note", "again"]).succeeds();
    assert_eq!(finished_run(world, "r")["run"]["output"], json!({ "note": "again" }));
    is_clean(world);
}

fn a_child_that_waits_takes_no_place(world: &World) {
    let source = "/** @jsxImportSource smithers-orchestrator */\n\
        import { createSmithers } from \"smithers-orchestrator\";\n\
        const { Workflow, Approval, Parallel, Sandbox, smithers, outputs } = createSmithers({ a: {}, output: {} });\n\
        export default smithers((ctx) => <Workflow name=\"w\"><Parallel>{[1, 2, 3].map((n) => (\n\
          <Sandbox id={`box-${n}`} onLimit=\"wait\" retries={0} output={outputs.output}>\n\
            {(inner) => <Approval id=\"ok\" output={outputs.output} />}\n\
          </Sandbox>\n\
        ))}</Parallel></Workflow>);\n";
    let file = world.write("places.tsx", source);
    let words = ["up", file.to_str().unwrap(), "--run-id", "r"];
    let up = world.stockade(&words).env("SMITHERS_MAX_CONCURRENT_SANDBOXES", "1");
    up.finish().ends_with(3);
    assert_eq!(inspect(world, "r")["waits"].as_array().unwrap().len(), 3);
    let ambiguous = call(world, &["approve", "r", "ok"]);
    ambiguous.ends_with(1);
    assert!(ambiguous.stderr.contains("box-1/ok, box-2/ok, box-3/ok"), "{ambiguous}");
    for task in ["box-1/ok", "box-2/ok", "box-3/ok"] {
        call(world, &["approve", "r", task]).succeeds();
    }
    assert_eq!(finished_run(world, "r")["run"]["status"], "finished");
    is_clean(world);
}

/// Any program can wait as a child does.
fn a_command_can_wait_as_well(world: &World) {
    let command = |name: &str, script: &str| {
        let source = format!(
            "/** @jsxImportSource smithers-orchestrator */\n\
             import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
             const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
             export default smithers((ctx) => <Workflow name=\"w\">\n\
               <Sandbox id=\"box\" command={{{}}} retries={{0}} output={{outputs.output}} />\n\
             </Workflow>);\n",
            json!(script)
        );
        world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
    };
    let waits = "{\"run\": \"mine\", \"waits\": [{\"kind\": \"approval\", \"node\": \"ok\"}]}";
    let script = format!(
        "echo x >> begun.txt; \
         if grep -q '\"approved\":true' /result/answers.json; then echo '{{\"n\": 1}}'; exit; fi; \
         echo '{waits}' > /result/waiting.json; exit 3"
    );
    up(world, &command("waits", &script), "r").ends_with(3);
    kill_server(&world.data());
    call(world, &["approve", "r", "ok"]).succeeds();
    wait_until("its changes wait", || {
        let found = inspect(world, "r");
        found["sandboxes"][0]["status"] == "review" && found["run"]["status"] == "waiting"
    });
    call(world, &["approve", "r", "box"]).succeeds();
    finished(world, "r", &json!({ "n": 1 }));
    assert_eq!(world.read("begun.txt"), "x\nx\n");

    for (name, said) in [
        ("words", "nothing".to_owned()),
        ("none", "{\"run\": \"r\", \"waits\": []}".to_owned()),
        ("escape", waits.replace("ok", "\\u001b[2J")),
    ] {
        let script = format!("printf '%s' '{said}' > /result/waiting.json; exit 3");
        up(world, &command(name, &script), name).ends_with(1);
        let error = inspect(world, name)["run"]["error"].clone();
        assert_eq!(error["code"], "INVALID_INPUT", "{name}: {error}");
        is_clean(world);
    }
    up(world, &command("link", "ln -s /etc/passwd /result/waiting.json; exit 3"), "link")
        .ends_with(1);
    let error = inspect(world, "link")["run"]["error"].clone();
    assert_eq!(error["code"], "SANDBOX_EXECUTION_FAILED", "{error}");
    is_clean(world);
}

as_root_and_as_user![
    a_parent_waits_with_its_child,
    signals_reach_a_child_and_what_is_below_it,
    a_time_that_a_child_waits_for_is_its_parents,
    nothing_is_done_twice_whenever_the_server_is_killed,
    nothing_is_left_of_a_child_whose_run_is_over,
    a_child_whose_sandbox_is_gone_is_begun_anew,
    a_child_that_waits_takes_no_place,
    a_command_can_wait_as_well,
];
