//! Providers of sandboxes in whole runs: those of Smithers' documentation, and hostile ones.

use serde_json::{Value, json};
use stockade_api::{Decide, Run, RunById, RunStatus, Wait, Workflows as _};

use crate::agents::{self, FakeSandboxes};
use crate::world::World;

async fn world() -> World {
    agents::world(&FakeSandboxes::new(|_, _| (0, String::new()))).await
}

/// A workflow with one sandbox that has these attributes, after the code `before`.
fn flow(before: &str, attributes: &str) -> String {
    format!(
        "/** @jsxImportSource stockade */\n\
         import {{ createSmithers, Sandbox }} from \"stockade\";\n\
         import {{ registerSandboxProvider }} from \"stockade/sandbox\";\n\
         const child = createSmithers({{ input: {{}}, result: {{}}, decided: {{}} }});\n\
         const inner = child.smithers((ctx) => (<child.Workflow name=\"inner\">\n\
           <child.Task id=\"first\" output={{child.outputs.result}}>{{() => {{ console.log(\"first\"); return {{ n: ctx.input.n }}; }}}}</child.Task>\n\
           {{ctx.input.ask && <child.Approval id=\"ok\" output={{child.outputs.decided}} />}}\n\
           {{ctx.input.fails && <child.Task id=\"bad\" retries={{0}} output={{child.outputs.result}}>{{() => {{ throw new Error(\"bad\"); }}}}</child.Task>}}\n\
         </child.Workflow>), {{ output: child.outputs.result }});\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ result: {{}} }});\n\
         {before}\n\
         export default smithers((ctx) => (<Workflow name=\"outer\">\n\
           <Sandbox id=\"box\" workflow={{inner}} input={{{{ n: 7, ...ctx.input }}}} output={{outputs.result}} retries={{0}} {attributes} />\n\
         </Workflow>));\n"
    )
}

/// A provider with this body of `run`, which logs its cleanup.
fn provider(body: &str) -> String {
    let before = format!(
        "const provider = {{ id: \"p\", async run(request) {{ {body} }},\n\
           cleanup(request) {{ console.log(`cleaned ${{request.sandboxId}}`); }} }};\n\
         const childOf = (request, more) => request.executeChildWorkflow(request.parentWorkflow,\n\
           {{ workflow: request.workflow, input: request.input, ...more }});"
    );
    flow(&before, "provider={provider}")
}

/// The lines that a run wrote to its console.
async fn lines(world: &World, run: &Run) -> Vec<String> {
    let events = world.events(run).await;
    let lines = events.iter().filter(|event| event["type"] == "Log");
    lines.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

fn code(run: &Run) -> String {
    let error = run.error.clone().unwrap_or_default();
    error["code"].as_str().unwrap_or_default().to_owned()
}

/// Smithers, "Basic usage", byte for byte.
const BASIC: &str = include_str!("../../../../tests/cases/smithers/001-basic.tsx");

#[tokio::test]
async fn the_seeds_basic_usage_runs_as_it_stands() {
    let world = world().await;
    let at = BASIC.find("<Workflow").unwrap();
    let source = format!(
        "import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ result: {{}} }});\n\
         const child = createSmithers({{ input: {{}}, result: {{}} }});\n\
         const generateCodeWorkflow = child.smithers(() => (<child.Workflow name=\"c\" />));\n\
         const createRemoteVm = async (asked) => ({{ id: \"vm-1\", workspaceId: \"ws\",\n\
           readJson: async (path) => ({{ path, asked }}), diffBundle: async () => undefined }});\n\
         {}\nexport default smithers((ctx) => (\n{}\n));\n",
        &BASIC[..at],
        &BASIC[at..]
    );
    let run = world.run(&source, json!({ "prompt": "hi" })).await;
    let output = run.output.unwrap();
    assert_eq!(output["path"], "/workspace/smithers-result.json");
    assert_eq!(output["asked"]["input"], json!({ "prompt": "hi" }));
    let bundle = output["asked"]["requestBundlePath"].as_str().unwrap();
    let expected = world.path().join(format!(".smithers/sandboxes/{}/generate", run.id));
    assert_eq!(bundle, expected.join("request-bundle").display().to_string());
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(expected.join("request-bundle/README.md")).unwrap())
            .unwrap();
    let pending = json!({ "status": "pending", "sandboxId": "generate", "provider": "remote-vm",
        "runtime": null, "input": { "prompt": "hi" } });
    assert_eq!(manifest, pending);
    let result = std::fs::read(expected.join("result/README.md")).unwrap();
    let result: Value = serde_json::from_slice(&result).unwrap();
    assert_eq!(result["runId"], "vm-1");
}

#[tokio::test]
async fn a_registered_id_means_its_provider() {
    let world = world().await;
    let good = "const provider = { id: \"remote\", run: () => ({ status: \"finished\", output: { ok: 1 } }) };";
    let source = flow(
        &format!("{good} const unregister = registerSandboxProvider(provider);"),
        "provider={provider.id}",
    );
    let run = world.run(&source, json!({})).await;
    assert_eq!(run.output, Some(json!({ "ok": 1 })), "{run:?}");
    let gone = flow(
        &format!("{good} const unregister = registerSandboxProvider(provider); unregister();"),
        "provider=\"remote\"",
    );
    for (source, told) in [
        (gone.as_str(), "Sandbox provider \"remote\" is not registered."),
        (&flow("", "provider={7}"), "must be a registered provider id or a provider object"),
    ] {
        let run = world.run(source, json!({})).await;
        assert_eq!(code(&run), "INVALID_INPUT", "{run:?}");
        assert!(run.error.as_ref().unwrap()["message"].as_str().unwrap().contains(told));
        // No sandbox was created for it.
        let events = world.events(&run).await;
        assert!(events.iter().all(|event| event["type"] != "SandboxCreated"), "{events:?}");
    }
}

#[tokio::test]
async fn hostile_providers_fail_their_task_and_are_cleaned_up() {
    let world = world().await;
    for (body, expected) in [
        ("return null;", "SANDBOX_EXECUTION_FAILED"),
        ("return 7;", "SANDBOX_EXECUTION_FAILED"),
        ("return { output: { missing: \"status\" } };", "SANDBOX_EXECUTION_FAILED"),
        ("return { status: \"running\" };", "SANDBOX_EXECUTION_FAILED"),
        ("return { status: \"finished\", bundlePath: \"/tmp\" };", "SANDBOX_EXECUTION_FAILED"),
        ("return { bundlePath: \"/etc\" };", "TOOL_PATH_ESCAPE"),
        ("return { bundlePath: request.resultBundlePath };", "INVALID_INPUT"),
        ("return { status: \"finished\", streamLogPath: \"/etc/passwd\" };", "TOOL_PATH_ESCAPE"),
        (
            "const output = {}; output.o = output; return { status: \"finished\", output };",
            "SANDBOX_EXECUTION_FAILED",
        ),
        ("return { get status() { throw new Error(\"trap\"); } };", "SANDBOX_EXECUTION_FAILED"),
        ("return { status: \"finished\", output: \"x\".repeat(70000) };", "INVALID_INPUT"),
        (
            "return { status: \"finished\", patches: [{ path: \"patches/../../x\", content: \"\" }] };",
            "TOOL_PATH_ESCAPE",
        ),
        (
            "return { status: \"finished\", artifacts: [{ path: \"README.md\", content: \"\" }] };",
            "TOOL_PATH_ESCAPE",
        ),
        ("return { status: \"failed\", output: {} };", "SANDBOX_EXECUTION_FAILED"),
        ("return { status: \"cancelled\" };", "SANDBOX_EXECUTION_FAILED"),
        ("throw new Error(\"no machine\");", "SANDBOX_EXECUTION_FAILED"),
        ("request.heartbeat(\"x\".repeat(2000000));", "HEARTBEAT_PAYLOAD_TOO_LARGE"),
        ("await childOf(request, { parentRunId: \"other\" });", "INVALID_INPUT"),
    ] {
        let run = world.run(&provider(body), json!({})).await;
        assert_eq!(
            (run.status, code(&run).as_str()),
            (RunStatus::Failed, expected),
            "{body} {run:?}"
        );
        assert_eq!(lines(&world, &run).await, ["cleaned box"], "{body}");
        let last = world.events(&run).await;
        let last =
            last.iter().rfind(|event| event["nodeId"] == "box" && event["data"] != Value::Null);
        assert_eq!(last.unwrap()["data"]["stage"], "failed", "{body}");
    }
}

#[tokio::test]
async fn hostile_ways_to_work_do_no_harm() {
    let world = world().await;
    for (body, times, expected) in [
        (
            "Object.assign(request, { runId: 1, rootDir: \"/\", resultBundlePath: \"/\", input: 2 });\n\
             request.config.x = 3; return { status: \"finished\", output: { ok: 1 } };",
            "",
            Ok(json!({ "ok": 1 })),
        ),
        (
            "const all = await Promise.all(Array.from({ length: 1000 }, () => childOf(request)));\n\
             return { status: \"finished\", output: { count: all.length, last: all[999].output } };",
            "",
            Ok(json!({ "count": 1000, "last": { "n": 7 } })),
        ),
        (
            "for (let n = 0; n < 50000; n += 1) request.heartbeat({ n, text: \"x\".repeat(1000) });\n\
             return { status: \"finished\", output: { ok: 1 } };",
            "",
            Ok(json!({ "ok": 1 })),
        ),
        ("return { then() {} };", "timeoutMs={500}", Err("TASK_TIMEOUT")),
        ("await new Promise(() => {});", "heartbeatTimeoutMs={500}", Err("TASK_HEARTBEAT_TIMEOUT")),
        ("for (;;) {}", "timeoutMs={500}", Err("TASK_TIMEOUT")),
        ("for (;;) { request.heartbeat(1); await null; }", "timeoutMs={500}", Err("TASK_TIMEOUT")),
    ] {
        let source = provider(body)
            .replace("provider={provider}", &format!("provider={{provider}} {times}"));
        let run = world.run(&source, json!({})).await;
        match expected {
            Ok(output) => assert_eq!(run.output, Some(output), "{body} {run:?}"),
            Err(expected) => assert_eq!(code(&run), expected, "{body} {run:?}"),
        }
        let lines = lines(&world, &run).await;
        assert_eq!(lines.last().map(String::as_str), Some("cleaned box"), "{body}: {lines:?}");
        assert!(lines.iter().filter(|line| *line == "first").count() <= 1, "{lines:?}");
    }
}

#[tokio::test]
async fn a_result_may_be_a_bundle_that_was_written() {
    let world = world().await;
    let bundle = world.path().join("made");
    std::fs::create_dir_all(bundle.join("artifacts")).unwrap();
    std::fs::create_dir_all(bundle.join("logs")).unwrap();
    std::fs::write(bundle.join("artifacts/a.txt"), "a").unwrap();
    std::fs::write(bundle.join("logs/stream.ndjson"), "{}\n").unwrap();
    let manifest = json!({ "status": "finished", "outputs": { "made": true }, "runId": "there" });
    std::fs::write(bundle.join("README.md"), manifest.to_string()).unwrap();
    let body = "return { bundlePath: `${request.rootDir}/made`, remoteRunId: \"vm\" };";
    let run = world.run(&provider(body), json!({})).await;
    assert_eq!(run.output, Some(json!({ "made": true })), "{run:?}");
    let kept = world.path().join(format!(".smithers/sandboxes/{}/box/collected", run.id));
    assert_eq!(std::fs::read(kept.join("artifacts/a.txt")).unwrap(), b"a");
    std::os::unix::fs::symlink("/etc/passwd", bundle.join("artifacts/link")).unwrap();
    let run = world.run(&provider(body), json!({})).await;
    assert_eq!(code(&run), "TOOL_PATH_ESCAPE", "{run:?}");
}

#[tokio::test]
async fn children_have_runs_of_their_own_and_are_never_done_twice() {
    let world = world().await;
    let body = "const one = await childOf(request); const two = await childOf(request, { runId: \"two\", input: 5 });\n\
        const bad = await childOf(request, { runId: \"bad\", input: { fails: true } });\n\
        if (request.config.image === undefined) return { status: \"finished\", output: { one, two, bad } };";
    let run = world.run(&provider(body), json!({})).await;
    let output = run.output.clone().unwrap();
    let id = |end: &str| format!("{}:child:box:0{end}", run.id);
    assert_eq!(
        output["one"],
        json!({ "runId": id(""), "status": "finished", "output": { "n": 7 } })
    );
    assert_eq!(output["two"]["runId"], json!(id(":two")));
    assert_eq!(
        (&output["bad"]["status"], &output["bad"]["output"]),
        (&json!("failed"), &Value::Null)
    );
    assert_eq!(output["bad"]["error"]["message"], "bad");
    // A provider that fails is called again; finished tasks of its child are not executed again.
    let body = "const one = await childOf(request); console.log(\"provider\");\n\
        if (globalThis.again === undefined) { globalThis.again = 1; throw new Error(\"once more\"); }\n\
        return { status: \"finished\", output: one.output };";
    let source =
        provider(body).replace("retries={0}", "retries={1} retryPolicy={{ initialDelayMs: 1 }}");
    let run = world.run(&source, json!({})).await;
    let run = if run.status.is_terminal() { run } else { world.ended(&run.id).await };
    assert_eq!(run.output, Some(json!({ "n": 7 })), "{run:?}");
    let lines = lines(&world, &run).await;
    let count = |word: &str| lines.iter().filter(|line| *line == word).count();
    assert_eq!((count("provider"), count("cleaned box")), (2, 2), "{lines:?}");
}

#[tokio::test]
async fn a_provider_goes_on_after_a_crash_with_the_child_that_it_had() {
    let world = world().await;
    let body = "request.heartbeat(\"begun\"); const one = await childOf(request);\n\
        return { status: \"finished\", output: { ...one.output, id: one.runId } };";
    let file = world.write("flow.tsx", &provider(body));
    let run = world.up(&file, json!({ "ask": true })).await.unwrap();
    let decide = || Decide {
        id: run.id.clone(),
        task: "ok".to_owned(),
        approved: true,
        note: None,
        ..serde_json::from_value(json!({ "id": "", "task": "", "approved": true })).unwrap()
    };
    let waits = async |world: &World| {
        let child = RunById { id: format!("{}:child:box:0", run.id) };
        let mut changes = world.workflows.changes();
        loop {
            changes.mark_unchanged();
            if let Ok(found) = world.workflows.inspect(&world.caller, child.clone()).await
                && found.tasks.iter().any(|task| task.status.is_waiting())
            {
                return found;
            }
            changes.changed().await.unwrap();
        }
    };
    waits(&world).await;
    // The parent waits together with the child, and lists the child's wait; its provider is still
    // running.
    let settled = world.settled(&run.id).await;
    assert_eq!(settled.status, RunStatus::Waiting, "{settled:?}");
    let by_id = RunById { id: run.id.clone() };
    let found = world.workflows.inspect(&world.caller, by_id).await.unwrap();
    let nodes: Vec<&str> = found.waits.iter().map(Wait::node).collect();
    assert_eq!(nodes, ["box/ok"]);
    assert!(world.workflows.is_needed().await.unwrap());
    let world = world.restarted().await;
    waits(&world).await;
    world.workflows.decide(&world.caller, decide()).await.unwrap();
    let ended = world.ended(&run.id).await;
    let child = format!("{}:child:box:0", run.id);
    assert_eq!(ended.output, Some(json!({ "n": 7, "id": child })), "{ended:?}");
    let tasks = end_of(&world, &child).await;
    assert_eq!(tasks, json!([["first", 1], ["ok", 1]]));
    let lines = lines(&world, &ended).await;
    let cleaned = lines.iter().filter(|line| *line == "cleaned box").count();
    assert!(cleaned >= 2, "before it began again, and in the end: {lines:?}");
}

/// The tasks of a run, and how often each was started.
async fn end_of(world: &World, run: &str) -> Value {
    let run = RunById { id: run.to_owned() };
    let tasks = world.workflows.inspect(&world.caller, run).await.unwrap().tasks;
    tasks.iter().map(|task| json!([task.id, task.executions])).collect()
}

#[tokio::test]
async fn a_cancelled_run_cleans_up_and_cancels_what_is_below() {
    let world = world().await;
    let body = "await childOf(request); return { status: \"finished\" };";
    let file = world.write("flow.tsx", &provider(body));
    let run = world.up(&file, json!({ "ask": true })).await.unwrap();
    let by_id = |id: &str| RunById { id: id.to_owned() };
    let child = format!("{}:child:box:0", run.id);
    let mut changes = world.workflows.changes();
    loop {
        changes.mark_unchanged();
        if let Ok(found) = world.workflows.inspect(&world.caller, by_id(&child)).await
            && found.tasks.iter().any(|task| task.status.is_waiting())
        {
            break;
        }
        changes.changed().await.unwrap();
    }
    world.workflows.cancel_run(&world.caller, by_id(&run.id)).await.unwrap();
    let ended = world.ended(&run.id).await;
    assert_eq!(ended.status, RunStatus::Cancelled);
    let child = world.workflows.run(&world.caller, by_id(&child)).await.unwrap();
    assert_eq!(child.status, RunStatus::Cancelled);
}

#[tokio::test]
async fn secrets_are_in_nothing_that_is_stored() {
    let world = world().await;
    let before = "const provider = { id: \"p\", run(request) {\n\
          request.heartbeat({ seen: request.egress.env.API, raw: request.config.egress.mine });\n\
          throw new Error(`no: ${request.egress.env.API} ${request.config.env.MY_TOKEN}`); } };";
    let source = flow(
        before,
        "provider={provider} env={{ MY_TOKEN: \"tok-9999\" }} egress={{ env: { API: \"sk-secret-1\" }, mine: \"raw\" }}",
    );
    let run = world.run(&source, json!({})).await;
    assert_eq!(code(&run), "SANDBOX_EXECUTION_FAILED", "{run:?}");
    let stored = format!("{}{:?}", json!(world.events(&run).await), run);
    assert!(!stored.contains("sk-secret-1") && !stored.contains("tok-9999"), "{stored}");
    assert!(stored.contains("no: [redacted] [redacted]"), "{stored}");
}

/// Registers a program as the provider `mine`.
fn grant(world: &World, what: Value) {
    let mut granted = what;
    granted["owners"] = json!(["uid:0"]);
    let file = world.write("providers.json", &json!({ "mine": granted }).to_string());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(file, mode).unwrap();
}

/// Whether a program is on the path; if not, prints that the test is skipped because the program is
/// missing.
fn has(program: &str, test: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    });
    if !found {
        let test = format!("flows::providers::{test}");
        stockade_test_support::skip(&test, &format!("there is no {program}"));
    }
    found
}

const MODULE: &str = "import { appendFileSync } from \"node:fs\";\n\
    const note = (text) => appendFileSync(\"notes\", `${text}\\n`);\n\
    console.log(\"printed, and no word of the protocol\");\n\
    export default {\n\
      id: \"mine\",\n\
      async run(request) {\n\
        request.heartbeat({ phase: \"begun\" });\n\
        const names = Object.keys(process.env).sort();\n\
        if (request.input.way === \"wait\") {\n\
          request.signal.addEventListener(\"abort\", () => note(\"aborted\"));\n\
          await new Promise(() => {});\n\
        }\n\
        if (request.input.way === \"die\") process.exit(3);\n\
        if (request.input.way === \"throw\") throw Object.assign(new Error(\"no\"), { code: \"INVALID_INPUT\" });\n\
        const one = await request.executeChildWorkflow(request.parentWorkflow, { workflow: request.workflow, input: request.input });\n\
        return { status: one.status, output: { ...one.output, names, sandbox: request.sandboxId }, remoteRunId: one.runId };\n\
      },\n\
      cleanup(request) { note(`cleaned ${request.sandboxId}`); },\n\
    };\n";

#[tokio::test]
async fn a_module_of_the_users_is_a_provider_where_it_is_granted() {
    if !has("node", "a_module_of_the_users_is_a_provider_where_it_is_granted") {
        return;
    }
    let world = world().await;
    let module = world.write("provider.mjs", MODULE);
    let source =
        flow("", "provider=\"mine\" timeoutMs={ctx.input.way === \"wait\" ? 3000 : 60000}");
    let run = world.run(&source, json!({})).await;
    assert_eq!(code(&run), "INVALID_INPUT", "{run:?}");
    let message = run.error.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("not registered") && message.contains("providers.json"), "{message}");
    grant(&world, json!({ "module": module, "environment": ["GREETING"] }));
    let run = world.run(&source, json!({})).await;
    let output = run.output.clone().unwrap_or_else(|| panic!("{run:?}"));
    assert_eq!((&output["n"], &output["sandbox"]), (&json!(7), &json!("box")));
    // Its environment contains only the variables that were granted.
    let names = output["names"].as_array().unwrap();
    assert!(names.contains(&json!("GREETING")) && !names.contains(&json!("CARGO")), "{names:?}");
    let events = world.events(&run).await;
    assert!(events.iter().any(|event| event["data"]["phase"] == "begun"), "{events:?}");
    let notes = || std::fs::read_to_string(world.path().join("notes")).unwrap();
    assert_eq!(notes(), "cleaned box\n");
    for (way, expected, noted) in [
        ("wait", "TASK_TIMEOUT", "aborted\ncleaned box\n"),
        ("die", "PROVIDER_ENDED", "cleaned box\n"),
        ("throw", "INVALID_INPUT", "cleaned box\n"),
    ] {
        std::fs::write(world.path().join("notes"), "").unwrap();
        let run = world.run(&source, json!({ "way": way })).await;
        assert_eq!((code(&run).as_str(), notes().as_str()), (expected, noted), "{way} {run:?}");
    }
}

#[tokio::test]
async fn any_command_is_a_provider_where_it_is_granted() {
    let world = world().await;
    let source = flow("", "provider=\"mine\" egress={{ env: { API: \"sk-secret-1\" } }}");
    let seen = "$(tr -d '\\n' < \"$SMITHERS_SANDBOX_REQUEST_PATH\")";
    for (script, expected) in [
        (format!("printf '{{\"status\":\"finished\",\"output\":%s}}' \"{seen}\""), Ok("box")),
        (
            format!(
                "printf '{{\"status\":\"finished\",\"output\":%s}}' \"{seen}\" > \"$SMITHERS_SANDBOX_RESULT_PATH\"; echo done"
            ),
            Ok("box"),
        ),
        ("echo '{\"status\":\"failed\"}'; exit 3".to_owned(), Err("the child failed")),
        ("echo sk-secret-1 >&2; exit 3".to_owned(), Err("exit status: 3: [redacted]")),
        ("true".to_owned(), Err("printed no result")),
        ("echo '{'".to_owned(), Err("is not JSON")),
        ("yes x | head -c 80000000".to_owned(), Err("printed no result")),
    ] {
        grant(&world, json!({ "command": ["/bin/sh", "-c", script] }));
        let run = world.run(&source, json!({})).await;
        match expected {
            Ok(sandbox) => {
                let output = run.output.clone().unwrap_or_else(|| panic!("{run:?}"));
                assert_eq!(output["sandboxId"], sandbox);
                assert_eq!(
                    (&output["runId"], &output["input"]),
                    (&json!(run.id), &json!({ "n": 7 }))
                );
            }
            Err(expected) => {
                let message = run.error.clone().unwrap_or_default()["message"].to_string();
                assert!(message.contains(expected), "{script}: {run:?}");
            }
        }
    }
}

/// The child runs of a provider count as inside its sandbox: a sandbox there gets no more than that
/// sandbox has.
#[tokio::test]
async fn a_sandbox_in_a_providers_child_is_held_to_what_is_around_it() {
    let world = world().await;
    let body = "if (request.sandboxId === \"in\") return { status: \"finished\", output: { inside: true } };\n\
        const nest = child.smithers(() => (<child.Workflow name=\"nest\">\n\
          <Sandbox id=\"in\" workflow={inner} retries={0} output={child.outputs.result} ATTRIBUTES />\n\
        </child.Workflow>), { output: child.outputs.result });\n\
        const run = await childOf(request, { workflow: nest });\n\
        return { status: \"finished\", output: run.output ?? run.error };";
    let other = "provider={{ id: \"q\", run: () => null }}";
    for (attributes, told) in [
        ("provider={provider} allowNested", ""),
        ("provider={provider}", "disabled by default"),
        ("provider={provider} allowNested allowNetwork", "allowNetwork"),
        (&format!("{other} allowNested"), "provider"),
        ("allowNested runtime=\"docker\"", "docker"),
    ] {
        let source = provider(&body.replace("ATTRIBUTES", attributes));
        let run = world.run(&source, json!({})).await;
        let output = run.output.clone().unwrap_or_default();
        if told.is_empty() {
            assert_eq!(output, json!({ "inside": true }), "{run:?}");
            continue;
        }
        assert_eq!(output["code"], "INVALID_INPUT", "{attributes}: {run:?}");
        assert!(output["message"].as_str().unwrap().contains(told), "{attributes}: {output}");
    }
    let source = provider(&body.replace("ATTRIBUTES", "provider={provider} allowNested"));
    let run = world.run(&source, json!({})).await;
    let below = RunById { id: format!("{}:child:box:0", run.id) };
    let found = world.workflows.inspect(&world.caller, below).await.unwrap();
    let own = world.workflows.inspect(&world.caller, RunById { id: run.id }).await.unwrap();
    assert_eq!((own.sandboxes[0].depth, found.sandboxes[0].depth), (0, 1));
    assert!(found.sandboxes[0].parent_sandbox_id.is_some());
}
