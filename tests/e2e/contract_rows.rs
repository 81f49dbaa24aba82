//! The rows of the pages about `<Sandbox>`, one case each: what a local sandbox makes of an attribute. What
//! needs a decision, a provider or a second run is in `sandbox`, `smithers_pages` and `nested_sandboxes`.

use serde_json::{Value, json};

use crate::harness::World;
use crate::sandbox::{call, inspect};

/// How a row ends.
enum Expected {
    Output(&'static str),
    Error(&'static str),
    Skipped,
}
use Expected::{Error, Output, Skipped};

/// The row, its attributes and what it gives. `c` gives its input and its environment.
const ROWS: &[(&str, &str, Expected)] = &[
    ("command", "command=\"echo '{}'\"", Output("{}")),
    (
        "command-in-prose",
        "command={\"echo starting; echo '{\\\"ok\\\": 1}'\"}",
        Output("{\"ok\":1}"),
    ),
    ("command-without-json", "command=\"echo no\" retries={0}", Error("INVALID_OUTPUT")),
    ("command-that-fails", "command=\"exit 3\" retries={0}", Error("SANDBOX_EXECUTION_FAILED")),
    ("workflow", "workflow={c}", Output("{\"input\":{},\"x\":null,\"y\":null,\"proxy\":null}")),
    (
        "input-object",
        "workflow={c} input={{ a: 1 }}",
        Output("{\"input\":{\"a\":1},\"x\":null,\"y\":null,\"proxy\":null}"),
    ),
    (
        "input-text",
        "workflow={c} input=\"t\"",
        Output("{\"input\":{\"value\":\"t\"},\"x\":null,\"y\":null,\"proxy\":null}"),
    ),
    (
        "input-list",
        "workflow={c} input={[1]}",
        Output("{\"input\":{\"value\":[1]},\"x\":null,\"y\":null,\"proxy\":null}"),
    ),
    (
        "env-workflow",
        "workflow={c} env={{ X: \"one\" }}",
        Output("{\"input\":{},\"x\":\"one\",\"y\":null,\"proxy\":null}"),
    ),
    (
        "egress-env-workflow",
        "workflow={c} env={{ Y: \"old\" }} egress={{ env: { Y: \"two\" } }}",
        Output("{\"input\":{},\"x\":null,\"y\":\"two\",\"proxy\":null}"),
    ),
    (
        "proxy-workflow",
        "workflow={c} egress={{ httpsProxy: \"http://proxy.example:1\" }}",
        Output("{\"input\":{},\"x\":null,\"y\":null,\"proxy\":\"http://proxy.example:1\"}"),
    ),
    ("env-command", "env={{ X: \"one\" }} command={show(\"$X\")}", Output("{\"v\":\"one\"}")),
    (
        "egress-env-command",
        "egress={{ env: { X: \"two\" } }} command={show(\"$X\")}",
        Output("{\"v\":\"two\"}"),
    ),
    (
        "proxies",
        "egress={{ httpProxy: \"http://p.example:1\", noProxy: [\"a\", \"b\"] }} command={show(\"$HTTP_PROXY $NO_PROXY\")}",
        Output("{\"v\":\"http://p.example:1 a,b\"}"),
    ),
    (
        "ca-pem",
        "egress={{ caCertPem: \"PEM\" }} command={show(\"$(cat $NODE_EXTRA_CA_CERTS)\")}",
        Output("{\"v\":\"PEM\"}"),
    ),
    (
        "ca-path",
        "egress={{ caCertPath: \"/ca.crt\" }} command={show(\"$NODE_EXTRA_CA_CERTS\")}",
        Output("{\"v\":\"/ca.crt\"}"),
    ),
    (
        "no-network",
        "command={show(\"$(grep -o '[a-z0-9]*:' /proc/net/dev | tr -d ':[:space:]')\")}",
        Output("{\"v\":\"lo\"}"),
    ),
    ("runtime", "runtime=\"bubblewrap\" command={show(\"ran\")}", Output("{\"v\":\"ran\"}")),
    (
        "volume",
        "volumes={[{ host: \"/usr/share\", container: \"/shared\" }]} command={show(\"$(touch /shared/x 2>/dev/null && echo written || echo readonly)\")}",
        Output("{\"v\":\"readonly\"}"),
    ),
    ("bad-memory", "memoryLimit=\"much\" command=\"true\"", Error("INVALID_INPUT")),
    ("skipped", "skipIf={true} command=\"exit 1\"", Skipped),
    ("too-slow", "timeoutMs={1500} retries={0} command=\"sleep 60\"", Error("TASK_TIMEOUT")),
    ("label-and-meta", "label=\"Shown\" meta={{ of: \"us\" }} command=\"echo '{}'\"", Output("{}")),
    ("after", "dependsOn={[\"command\"]} command=\"echo '{}'\"", Output("{}")),
    ("needing", "needs={{ before: \"command\" }} command=\"echo '{}'\"", Output("{}")),
    ("nested", "workflow={nest}", Error("INVALID_INPUT")),
];

fn every_row_does_what_it_says(world: &World) {
    // A row whose attributes can never work is refused at load: it has a file of its own.
    let head = "/** @jsxImportSource smithers-orchestrator */\n\
        import { createSmithers, Sandbox } from \"smithers-orchestrator\";\n\
        const { Workflow, Parallel, Task, smithers, outputs } = createSmithers({ output: {} });\n\
        const show = (text) => `printf '{\"v\": \"%s\"}' \"${text}\"`;\n\
        const c = smithers((ctx) => <Workflow name=\"c\"><Task id=\"t\" output={outputs.output}>{() => ({ input: ctx.input,\n\
          x: process.env.X ?? null, y: process.env.Y ?? null, proxy: process.env.HTTPS_PROXY ?? null })}</Task></Workflow>);\n\
        const nest = smithers((ctx) => <Workflow name=\"n\"><Sandbox id=\"in\" command=\"echo '{}'\" output={outputs.output} /></Workflow>);\n";
    let element = |(id, attributes, _): &(&str, &str, Expected)| {
        format!(
            "<Sandbox id=\"{id}\" continueOnFail onLimit=\"wait\" output={{outputs.output}} {attributes} />\n"
        )
    };
    let file = |rows: &str| {
        format!(
            "{head}export default smithers((ctx) => <Workflow name=\"w\"><Parallel maxConcurrency={{4}}>{rows}</Parallel></Workflow>);\n"
        )
    };
    let is_late = |row: &&(&str, &str, Expected)| !row.0.starts_with("bad-");
    let all: String = ROWS.iter().filter(is_late).map(element).collect();
    let path = world.write("rows.tsx", file(&all));
    let run = call(world, &["up", path.to_str().unwrap(), "--run-id", "rows"]);
    run.succeeds();
    let inspected = inspect(world, "rows");
    let tasks = inspected["tasks"].as_array().unwrap();
    for row @ (id, _, expected) in ROWS {
        if !is_late(&row) {
            let path = world.write("row.tsx", file(&element(row)));
            let refused = call(world, &["up", path.to_str().unwrap()]);
            refused.ends_with(4);
            assert!(refused.stderr.contains("row.tsx:"), "{id}: {refused}");
            continue;
        }
        let task = tasks.iter().find(|task| task["id"] == *id);
        match expected {
            Output(text) => {
                let output: Value = serde_json::from_str(text).unwrap();
                assert_eq!(task.unwrap()["output"], output, "{id}: {task:?}");
            }
            Error(code) => {
                assert_eq!(task.unwrap()["error"]["code"], *code, "{id}: {task:?}");
                assert_eq!(task.unwrap()["attempts"], 1, "{id}");
            }
            Skipped => assert!(task.is_none_or(|task| task["output"].is_null()), "{id}"),
        }
    }
    let events = call(world, &["events", "rows", "--json"]).stdout;
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let made = |event: &&Value| {
        event["type"] == "SandboxCreated" && event["sandboxId"] == "label-and-meta"
    };
    assert_eq!(events.iter().find(made).unwrap()["meta"], json!({ "of": "us" }));
    let place = |kind: &str, id: &str| {
        events.iter().position(|event| event["type"] == kind && event["nodeId"] == id).unwrap()
    };
    for id in ["after", "needing"] {
        assert!(place("NodeFinished", "command") < place("NodeStarted", id), "{id}");
    }
}

as_root_and_as_user![every_row_does_what_it_says];
