//! Tests of correct and hostile providers in real realms.

use super::*;
use crate::engine::user_code::testing::{RecordingHost, recording_host, request, user_code};
use crate::sync::lock;

/// The outcome of a provider with this body of `run`.
async fn run_provider(body: &str) -> (Result<Value, Error>, RecordingHost) {
    let user_code = user_code(
        &format!("const provider = {{ id: \"p\", async run(request) {{ {body} }} }};"),
        "provider",
    )
    .await;
    let host = recording_host(&user_code);
    let outcome = user_code.provide("run", "box", &request(), &host).await;
    (outcome, host)
}

/// The code and message of the error that was thrown.
fn error_of(outcome: Result<Value, Error>) -> (String, String) {
    match outcome {
        Err(Error::Threw(failure)) => (failure.code.unwrap_or_default(), failure.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_has_the_documented_fields() {
    let body = "const plain = JSON.parse(JSON.stringify(request));\n\
        return { status: \"finished\", output: { names: Object.keys(request).sort(), plain,\n\
          types: [typeof request.workflow.build, typeof request.parentWorkflow.build, \n\
            typeof request.executeChildWorkflow, typeof request.heartbeat, request.signal instanceof AbortSignal] } };";
    let (outcome, _) = run_provider(body).await;
    let output = outcome.unwrap();
    let mut expected: Vec<&str> = vec![
        "allowNetwork",
        "config",
        "egress",
        "executeChildWorkflow",
        "heartbeat",
        "input",
        "maxOutputBytes",
        "parentWorkflow",
        "requestBundlePath",
        "resultBundlePath",
        "rootDir",
        "runId",
        "sandboxId",
        "signal",
        "toolTimeoutMs",
        "workflow",
    ];
    expected.sort_unstable();
    assert_eq!(output["output"]["names"], json!(expected));
    assert_eq!(output["status"], "finished");
    let types = json!(["function", "function", "function", "function", true]);
    assert_eq!(output["output"]["types"], types);
    for (name, value) in request().as_object().unwrap() {
        assert_eq!(output["output"]["plain"][name], *value, "{name}");
    }
    assert_eq!(output["output"]["plain"]["input"], json!({ "n": 7 }));
}

#[tokio::test]
async fn heartbeats_are_heard_twice_a_second_at_most() {
    let (outcome, host) = run_provider(
        "for (let n = 0; n < 100000; n += 1) request.heartbeat({ n });\n\
         request.heartbeat();\n\
         await new Promise((done) => setTimeout(done, 700));\n\
         return { status: \"finished\" };",
    )
    .await;
    outcome.unwrap();
    let heartbeats = lock(&host.heartbeats).clone();
    assert_eq!(heartbeats.first(), Some(&json!({ "n": 0 })));
    // The last heartbeat is sent at the end of the pause.
    assert_eq!(heartbeats.last(), Some(&Value::Null), "{heartbeats:?}");
    for (data, code) in [
        ("'x'.repeat(1000001)", "HEARTBEAT_PAYLOAD_TOO_LARGE"),
        ("'é'.repeat(600000)", "HEARTBEAT_PAYLOAD_TOO_LARGE"),
        ("{ get x() { throw new Error('no') } }", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"),
        ("(() => 1)", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"),
        ("1n", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"),
        ("request", "HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE"),
    ] {
        let body = format!("request.self = request; request.heartbeat({data});");
        assert_eq!(error_of(run_provider(&body).await.0).0, code, "{data}");
    }
}

#[tokio::test]
async fn children_are_asked_for_once() {
    let body = "const ask = (input, more) => request.executeChildWorkflow(request.parentWorkflow, { workflow: request.workflow, input, ...more });\n\
        const all = await Promise.all(Array.from({ length: 1000 }, () => ask(request.input)));\n\
        const other = await ask([1], { runId: \"other\", parentRunId: request.runId, rootDir: request.rootDir, signal: request.signal, maxOutputBytes: 10, toolTimeoutMs: request.toolTimeoutMs });\n\
        return { status: all[0].status, output: [all.length, all[999], other] };";
    let (outcome, host) = run_provider(body).await;
    let output = outcome.unwrap()["output"].clone();
    let answer = |number, input: Value| {
        json!({ "runId": format!("run:child:box:0:{number}"), "status": "finished",
            "output": { "given": input } })
    };
    let expected = json!([1000, answer(0, json!({ "n": 7 })), answer(1, json!({ "value": [1] }))]);
    assert_eq!(output, expected);
    let names: Vec<_> = lock(&host.children).iter().map(|child| child.name.clone()).collect();
    assert_eq!(names, [None, Some("other".to_owned())]);
    // Limits are sent if they are narrower.
    let children = lock(&host.children);
    let limits = children.iter().map(|child| (child.max_output_bytes, child.tool_timeout_ms));
    assert_eq!(limits.collect::<Vec<_>>(), [(None, None), (Some(10), None)]);
}

#[tokio::test]
async fn children_that_cannot_be_had_are_refused() {
    for (options, code) in [
        ("undefined", "INVALID_INPUT"),
        ("{ input: {} }", "INVALID_INPUT"),
        ("{ workflow: {}, input: {} }", "INVALID_INPUT"),
        ("{ workflow, parentRunId: \"other\" }", "INVALID_INPUT"),
        ("{ workflow, rootDir: \"/\" }", "INVALID_INPUT"),
        ("{ workflow, runId: \"../x\" }", "INVALID_INPUT"),
        ("{ workflow, runId: 7 }", "INVALID_INPUT"),
        ("{ workflow, allowNetwork: true }", "INVALID_INPUT"),
        ("{ workflow, toolTimeoutMs: 60_001 }", "INVALID_INPUT"),
        ("{ workflow, maxOutputBytes: Infinity }", "INVALID_INPUT"),
        ("{ workflow, maxOutputBytes: 0 }", "INVALID_INPUT"),
        ("{ workflow, input: { x: 1n } }", "INVALID_INPUT"),
        ("{ workflow, input: { x: \"x\".repeat(5 << 20) } }", "INVALID_INPUT"),
        ("{ workflow, input: { n: \"wrong\" } }", "INVALID_INPUT"),
        ("{ workflow, signal: AbortSignal.abort() }", ""),
        ("{ workflow, input: { n: \"never\" }, signal: AbortSignal.timeout(20) }", ""),
    ] {
        let body = format!(
            "const {{ workflow }} = request;\n\
             await request.executeChildWorkflow(undefined, {options});"
        );
        assert_eq!(error_of(run_provider(&body).await.0).0, code, "{options}");
    }
    let many = "const { workflow } = request;\n\
        for (let n = 0; n < 17; n += 1) await request.executeChildWorkflow(null, { workflow, runId: `r${n}` });";
    assert!(error_of(run_provider(many).await.0).1.contains("at most 16 child runs"));
}

#[tokio::test]
async fn what_providers_give_is_plain_or_an_error() {
    for (body, expected) in [
        ("return null;", Ok(Value::Null)),
        ("return 7;", Ok(Value::Null)),
        ("return [{ status: \"finished\" }];", Ok(Value::Null)),
        ("return { status: \"odd\", x: () => 1 };", Ok(json!({ "status": "odd" }))),
        ("return { get status() { throw new Error(\"trap\"); } };", Err("trap")),
        ("const output = {}; output.output = output; return { output };", Err("circular")),
        ("return { output: 1n };", Err("BigInt")),
        ("return { output: \"x\".repeat(200 << 20) };", Err("")),
        ("return { output: \"x\".repeat(49 << 20) };", Err("more than 50331648 bytes")),
        ("throw new Error(\"no machine\");", Err("no machine")),
        (
            "Object.assign(request, { runId: 1, workflow: 2, signal: 3 }); request.config.image = 4;\n\
             return { status: \"finished\" };",
            Ok(json!({ "status": "finished" })),
        ),
    ] {
        match (run_provider(body).await.0, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected, "{body}"),
            (Err(error), Err(expected)) => {
                let message = error_of(Err(error)).1;
                assert!(
                    message.to_lowercase().contains(&expected.to_lowercase()),
                    "{body}: {message}"
                );
            }
            (other, _) => panic!("{body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn ids_mean_what_is_registered_when_they_are_used() {
    let good = "{ id: \" p \", run: () => ({ status: \"finished\" }) }";
    for (before, provider, expected) in [
        (format!("registerSandboxProvider({good});"), "\"p\"", ""),
        (
            format!("registerSandboxProvider({good})();"),
            "\"p\"",
            "provider \"p\" is not registered.",
        ),
        (String::new(), "\"gone\"", "provider \"gone\" is not registered."),
        (String::new(), "7", "must be a registered provider id or a provider object"),
        (String::new(), "{ id: \"x\" }", "must be a registered provider id or a provider object"),
        (
            format!(
                "const off = registerSandboxProvider({good}); registerSandboxProvider({{ id: \"p\", run: () => ({{ status: \"failed\" }}) }}); off();"
            ),
            "\"p\"",
            "",
        ),
    ] {
        let user_code = user_code(&before, provider).await;
        let outcome =
            user_code.provide("run", "box", &request(), &recording_host(&user_code)).await;
        match expected {
            "" => assert!(outcome.is_ok(), "{before}: {outcome:?}"),
            expected => {
                let (code, message) = error_of(outcome);
                assert_eq!(code, "INVALID_INPUT", "{message}");
                assert!(message.contains(expected), "{message}");
            }
        }
    }
    for wrong in ["null", "{}", "{ run: 1 }", "{ run() {} }", "{ id: \" \", run() {} }"] {
        let before = format!(
            "let why = {{}}; try {{ registerSandboxProvider({wrong}); }} catch (error) {{ why = {{ code: error.code, message: error.message }}; }}\n\
             const provider = {{ run: () => ({{ output: why }}) }};"
        );
        let user_code = user_code(&before, "provider").await;
        let output =
            user_code.provide("run", "box", &request(), &recording_host(&user_code)).await.unwrap();
        assert_eq!(output["output"]["code"], "INVALID_INPUT", "{wrong}: {output}");
    }
}

const CLEANING_PROVIDER: &str = "const provider = {\n\
      id: \"p\",\n\
      async run(request) {\n\
        if (request.config.again) return { output: seen };\n\
        seen.request = request;\n\
        request.signal.addEventListener(\"abort\", () => { seen.aborted = true; });\n\
        if (request.config.spin) for (;;) {}\n\
        await request.executeChildWorkflow(null, { workflow: request.workflow, input: { n: \"never\" } })\n\
          .catch((error) => { seen.child = error.name; });\n\
        await new Promise(() => {});\n\
      },\n\
      cleanup(request) {\n\
        seen.cleaned = [request === seen.request, request.sandboxId, request.input.n, request.signal.aborted];\n\
        delete seen.request;\n\
        if (request.config.thrown) throw new Error(\"cannot clean\");\n\
      },\n\
    };";

#[tokio::test]
async fn who_does_not_answer_is_told_and_cleans_up() {
    let user_code = user_code(CLEANING_PROVIDER, "provider").await;
    let host = recording_host(&user_code);
    let mut request = request();
    let work = user_code.provide("run", "box", &request, &host);
    assert!(tokio::time::timeout(Duration::from_secs(2), work).await.is_err());
    user_code.clean_up("run", "box", &request).await.unwrap();
    let mut again = request.clone();
    again["config"]["again"] = true.into();
    let seen = user_code.provide("run", "box", &again, &host).await.unwrap();
    let expected =
        json!({ "aborted": true, "child": "AbortError", "cleaned": [true, "box", 7, true] });
    assert_eq!(seen["output"], expected);
    // A function that never returns ends its realm; its provider cleans up in the next realm.
    request["config"]["spin"] = true.into();
    let work = user_code.provide("run", "box", &request, &host);
    assert!(tokio::time::timeout(Duration::from_secs(1), work).await.is_err());
    user_code.kill_if_stuck().await;
    user_code.clean_up("run", "box", &request).await.unwrap();
    let seen = user_code.provide("run", "box", &again, &host).await.unwrap();
    assert_eq!(seen["output"], json!({ "cleaned": [false, "box", 7, true] }));
    request["config"]["thrown"] = true.into();
    let error = user_code.clean_up("run", "box", &request).await.unwrap_err();
    assert!(error.to_string().contains("cannot clean"), "{error}");
}

/// A provider of the kit whose session answers every command with `ended`, and whose file contains
/// `file`.
fn kit(ended: &str, file: &str) -> String {
    format!(
        "import {{ createCommandSandboxProvider }} from \"smithers-orchestrator/sandbox\";\n\
         const session = {{\n\
           remoteId: \"vm-1\",\n\
           writeFile(path, content) {{ seen[path] = content; }},\n\
           readFile: (path) => path === \"/workspace/.smithers/sandbox-result.json\" ? {file} : undefined,\n\
           exec(command, {{ signal, ...options }}) {{ Object.assign(seen, {{ command, options }}); return {ended}; }},\n\
           destroy() {{ seen.destroyed = true; }},\n\
         }};\n\
         const provider = createCommandSandboxProvider({{ id: \"kit\", env: {{ API_TOKEN: \"hunter2\" }},\n\
           createSession: () => session }});"
    )
}

#[tokio::test]
async fn a_command_is_a_provider() {
    let done = "JSON.stringify({ status: \"finished\", output: seen })";
    let printed = format!("{{ exitCode: 3, stdout: {done}, stderr: \"\" }}");
    let user_code = user_code(&kit(&printed, "null"), "provider").await;
    let host = recording_host(&user_code);
    let mut custom_request = request();
    custom_request["egress"] = json!({ "httpProxy": "http://user:pass@proxy", "caCertPem": "PEM",
        "env": { "KEY": "sk-1" }, "secretBindings": { "sk-1": "real" } });
    let output = user_code.provide("run", "box", &custom_request, &host).await.unwrap();
    for name in ["remoteRunId", "workspaceId", "containerId"] {
        assert_eq!(output[name], "vm-1", "{name}");
    }
    let seen = &output["output"];
    let request_seen: Value =
        serde_json::from_str(seen["/workspace/.smithers/sandbox-request.json"].as_str().unwrap())
            .unwrap();
    let redacted = json!({ "httpProxy": "[redacted]", "caCertPem": "[redacted]",
        "env": { "KEY": "[redacted]" }, "secretBindings": { "binding_1": "[redacted]" } });
    let expected = json!({ "runId": "run", "sandboxId": "box", "input": { "n": 7 },
        "config": { "image": "x" }, "allowNetwork": false, "maxOutputBytes": 200_000,
        "egress": redacted });
    assert_eq!(request_seen, expected);
    assert_eq!(seen["/workspace/.smithers/egress/ca.crt"], "PEM");
    let environment = json!({ "API_TOKEN": "hunter2", "KEY": "sk-1",
        "HTTP_PROXY": "http://user:pass@proxy",
        "NODE_EXTRA_CA_CERTS": "/workspace/.smithers/egress/ca.crt",
        "SMITHERS_SANDBOX_REQUEST_PATH": "/workspace/.smithers/sandbox-request.json",
        "SMITHERS_SANDBOX_RESULT_PATH": "/workspace/.smithers/sandbox-result.json" });
    let options = json!({ "cwd": "/workspace", "timeoutMs": 60_000, "env": environment });
    assert_eq!(seen["options"], options);
    assert_eq!(seen["command"], "node /workspace/run-smithers-sandbox.js");
    user_code.clean_up("run", "box", &custom_request).await.unwrap();
}

#[tokio::test]
async fn what_a_command_gives_is_its_output_or_its_file() {
    for (ended, file, expected) in [
        ("{ exitCode: 0, stdout: \"ok\" }", "'{\"status\":\"failed\"}'", Ok("failed")),
        ("{ exitCode: 0 }", "' '", Err("no result JSON")),
        ("{ exitCode: 0 }", "'{hunter2'", Err("Raw output: {[redacted]")),
        ("{ exitCode: 0 }", "'7'", Err("must be an object")),
        ("{ stdout: '{\"status\":\"finished\",\"bundlePath\":\"/x\"}' }", "''", Err("not both")),
        (
            "{ exitCode: 2, stderr: \"bad hunter2\" }",
            "''",
            Err("exited with code 2: bad [redacted]"),
        ),
        ("Promise.reject(new Error(\"hunter2 refused\"))", "''", Err("[redacted] refused")),
    ] {
        let user_code = user_code(&kit(ended, file), "provider").await;
        match (
            user_code.provide("run", "box", &request(), &recording_host(&user_code)).await,
            expected,
        ) {
            (Ok(output), Ok(status)) => assert_eq!(output["status"], status),
            (Err(error), Err(message)) => {
                let (code, actual) = error_of(Err(error));
                assert_eq!(code, "SANDBOX_EXECUTION_FAILED");
                assert!(actual.contains(message) && !actual.contains("hunter2"), "{actual}");
            }
            (other, _) => panic!("{ended}: {other:?}"),
        }
    }
}
