//! `<Sandbox runtime="opensandbox">`: the sandbox of a workflow at another server, here another Stockade.

use super::{Server, key};
use crate::call::Outcome;
use crate::harness::World;

/// A flow with these attributes of its sandbox.
fn flow(attributes: &str) -> String {
    format!(
        r#"/** @jsxImportSource smithers-orchestrator */
import {{ createSmithers, Sandbox }} from "smithers-orchestrator";
const inner = createSmithers({{ result: {{ type: "object" }} }});
const child = inner.smithers((ctx) => (
  <inner.Workflow name="child">
    <inner.Task id="next" output={{inner.outputs.result}}>{{() => ({{ n: ctx.input.n + 1 }})}}</inner.Task>
  </inner.Workflow>
));
const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{ type: "object" }} }});
export default smithers((ctx) => (
  <Workflow name="elsewhere">
    <Sandbox id="box" output={{outputs.output}} retries={{0}} runtime="opensandbox" {attributes} />
  </Workflow>
));
"#
    )
}

/// Runs a flow on a data directory of its own, whose sandboxes the server has.
fn up(world: &World, server: &Server, key: &str, attributes: &str) -> Outcome {
    let file = world.write("elsewhere.tsx", flow(attributes));
    let words = ["--server", "local", "up", file.to_str().unwrap(), "--in-process"];
    world
        .stockade(&words)
        .env("STOCKADE_DATA_DIR", world.path("elsewhere"))
        .env("OPENSANDBOX_DOMAIN", format!("127.0.0.1:{}", server.port))
        .env("OPENSANDBOX_API_KEY", key)
        .finish()
}

fn a_sandbox_of_a_workflow_has_its_project_at_another_server(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &[]);
    world.write("file", "of the host\n");
    world.write("gone", "");
    let refused = up(world, &server, &mine, "command=\"true\"");
    assert!(refused.stderr.contains("needs `allowNetwork`"), "{refused}");
    let command = "cat file >&2; echo more >> file; echo $GREETING > new; rm gone; echo '{}'";
    let attributes = format!(
        "allowNetwork autoAcceptDiffs env={{{{ GREETING: \"hello\" }}}} command={{`{command}`}}"
    );
    up(world, &server, &mine, &attributes).succeeds();
    assert_eq!(world.read("file"), "of the host\nmore\n");
    assert_eq!(world.read("new"), "hello\n");
    assert!(!world.has("gone"));
    let left = world.stockade(&["ls", "--json"]).finish();
    assert_eq!(left.succeeds().json()["sandboxes"].as_array().unwrap().len(), 0);
}

/// Programs of some hundred megabytes are copied, where they are built for tests.
fn a_child_runs_at_another_server(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &[]);
    let done = up(world, &server, &mine, "allowNetwork workflow={child} input={{ n: 41 }}");
    assert_eq!(done.succeeds().json()["n"], 42, "{done}");
}

as_root_and_as_user![
    a_sandbox_of_a_workflow_has_its_project_at_another_server,
    a_child_runs_at_another_server,
];
