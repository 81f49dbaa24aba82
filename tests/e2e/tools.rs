//! The limits of the tools of a `<Sandbox>`: its command, and the commands of the agents of its
//! workflow. A tool that times out ends with all its processes; output beyond its limit never
//! becomes a result.

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::World;
use crate::sandbox::{call, inspect, is_clean};

/// A workflow file whose only task is a sandbox with these attributes, and a workflow with this body.
fn flow(world: &World, name: &str, body: &str, attributes: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Sequence, Task, Timer, smithers, outputs }} = createSmithers({{ a: {{}}, b: {{}}, output: {{}} }});\n\
         const inner = smithers((ctx) => (<Workflow name=\"inner\"><Sequence>{body}</Sequence></Workflow>), {{ output: outputs.b }});\n\
         export default smithers((ctx) => (<Workflow name=\"{name}\">\n\
           <Sandbox id=\"box\" output={{outputs.output}} retries={{0}} reviewDiffs={{false}} {attributes} />\n\
         </Workflow>));\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

fn up(world: &World, name: &str, file: &str, options: &[&str]) -> Outcome {
    call(world, &[&["up", file, "--run-id", name], options].concat())
}

fn error(world: &World, run: &str) -> (String, String) {
    let error = inspect(world, run)["run"]["error"].clone();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (text("code"), text("message"))
}

fn a_command_has_its_time_and_its_output(world: &World) {
    let say = |bytes: u32| format!("head -c {bytes} /dev/zero | tr '\\0' ' '; echo '{{\"n\": 1}}'");
    let manifest = "echo '{\"status\": \"finished\", \"outputs\": {\"n\": 2}}' > /result/README.md";
    let late = "(setsid sh -c 'sleep 2; touch /workspace/late' &); touch early; sleep 60";
    let limits = |limits: &'static [&'static str]| limits;
    for (name, command, attributes, options, expected) in [
        ("little", say(100_000), "", limits(&[]), Ok(1)),
        ("much", say(300_000), "", &[], Err("maxOutputBytes is 200000")),
        ("allowed", say(300_000), "maxOutputBytes={400_000}", &[], Ok(1)),
        (
            "least",
            say(3_000),
            "maxOutputBytes={4_000}",
            &["--max-output-bytes", "2000"],
            Err("maxOutputBytes is 2000"),
        ),
        ("manifest", format!("{manifest}; {}", say(3_000_000)), "", &[], Ok(2)),
        ("late", late.to_owned(), "toolTimeoutMs={700}", &[], Err("toolTimeoutMs, 700 ms")),
        (
            "flag",
            late.to_owned(),
            "toolTimeoutMs={9_000}",
            &["--tool-timeout-ms", "600"],
            Err("toolTimeoutMs, 600 ms"),
        ),
        (
            "ignores",
            format!("trap '' TERM INT HUP; {late}"),
            "toolTimeoutMs={700}",
            &[],
            Err("toolTimeoutMs, 700 ms"),
        ),
    ] {
        let attributes = format!("command={{{}}} {attributes}", json!(command));
        let file = flow(world, name, "", &attributes);
        let outcome = up(world, name, &file, options);
        match expected {
            Ok(n) => {
                outcome.succeeds();
                assert_eq!(outcome.json(), json!({ "n": n }), "{name}: {outcome}");
            }
            Err(reported) => {
                outcome.ends_with(1);
                let (code, message) = error(world, name);
                assert_eq!(code, "SANDBOX_EXECUTION_FAILED", "{name}: {message}");
                assert!(message.contains(reported), "{name}: {message}");
            }
        }
    }
    assert!(!world.has("late") && !world.has("early"), "changes of a failed command were applied");
    let config = |run: &str| inspect(world, run)["sandboxes"][0]["config"].clone();
    let reported =
        |run: &str| [config(run)["maxOutputBytes"].clone(), config(run)["toolTimeoutMs"].clone()];
    assert_eq!(reported("little"), [json!(200_000), Value::Null]);
    assert_eq!(reported("least"), [json!(2_000), Value::Null]);
    assert_eq!(reported("flag"), [json!(200_000), json!(600)]);
    is_clean(world);
}

/// The commands of agents inside, in the same sandbox as their workflow, which continues after
/// them.
fn an_agent_inside_has_its_time_and_its_output(world: &World) {
    let agent = |id: &str, command: &str, more: &str| {
        let command = json!(command);
        format!(
            "<Task id=\"{id}\" output={{outputs.{id}}} retries={{0}} {more} agent={{{{ command: {command} }}}}>Do</Task>"
        )
    };
    let late = "(setsid sh -c 'sleep 1.5; touch late' &); sleep 60";
    let noisy = "trap '' TERM; (setsid sh -c 'sleep 1.5; touch late' &); yes; sleep 60";
    let look = "test -e late && echo '{\"left\": true}' || echo '{\"left\": false}'";
    let wait = "<Timer id=\"wait\" duration=\"3s\" />";
    let body = |first: &str| {
        format!("{}{wait}{}", agent("a", first, "continueOnFail"), agent("b", look, ""))
    };
    let failed = |run: &str| {
        let result = format!(".smithers/sandboxes/{run}/box/result/logs/stream.ndjson");
        let log = world.read(&result);
        let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let failed: Vec<_> = events.filter(|event| event["type"] == "NodeFailed").collect();
        let [event] = failed.as_slice() else { panic!("{log}") };
        (event["error"]["code"].clone(), event["error"]["message"].as_str().unwrap().to_owned())
    };
    for (name, first, limit, code, told) in [
        ("late", late, "toolTimeoutMs={700}", "TASK_TIMEOUT", "timed out"),
        ("noisy", noisy, "maxOutputBytes={5_000}", "AGENT_FAILED", "exceeded its output limit"),
    ] {
        let file = flow(world, name, &body(first), &format!("workflow={{inner}} {limit}"));
        let outcome = up(world, name, &file, &[]);
        outcome.succeeds();
        assert_eq!(outcome.json(), json!({ "left": false }), "{name}: {outcome}");
        let (is, message) = failed(name);
        assert_eq!(is, code, "{name}: {message}");
        assert!(message.contains(told), "{name}: {message}");
        assert!(!world.has("late"), "{name}");
    }
    is_clean(world);
}

/// A provider can give its child lower limits than the sandbox has, but not higher ones.
fn a_child_of_a_provider_has_no_more_than_its_sandbox(world: &World) {
    let body =
        "<Task id=\"b\" output={outputs.b} retries={0} agent={{ command: \"sleep 60\" }}>Do</Task>";
    let provider = "provider={{ id: \"p\", async run(request) {\n\
        const ask = (more) => request.executeChildWorkflow(request.parentWorkflow, { workflow: request.workflow, input: {}, ...more });\n\
        const wider = await ask({ toolTimeoutMs: request.toolTimeoutMs + 1 }).catch((error) => error.code);\n\
        const child = await ask({ toolTimeoutMs: 500 });\n\
        return { status: \"finished\", output: { wider, has: request.toolTimeoutMs, code: child.error.code } };\n\
      } }}";
    let file = flow(
        world,
        "narrow",
        body,
        &format!("workflow={{inner}} {provider} toolTimeoutMs={{9_000}}"),
    );
    let outcome = up(world, "narrow", &file, &[]);
    outcome.succeeds();
    let expected = json!({ "wider": "INVALID_INPUT", "has": 9_000, "code": "TASK_TIMEOUT" });
    assert_eq!(outcome.json(), expected, "{outcome}");
    is_clean(world);
}

as_root_and_as_user![
    a_command_has_its_time_and_its_output,
    an_agent_inside_has_its_time_and_its_output,
    a_child_of_a_provider_has_no_more_than_its_sandbox,
];
