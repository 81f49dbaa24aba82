//! `<Sandbox runtime="codeplane">` and `create --runtime codeplane`, with a local double of Codeplane and a
//! real server of OpenSSH.

#[expect(dead_code, reason = "the tests of the runtime use the rest")]
#[path = "../runtime/codeplane/double.rs"]
mod double;
#[path = "../runtime/codeplane/machine.rs"]
mod machine;

use crate::call::{Call, Outcome};
use crate::harness::World;
use crate::sandbox::inspect;

use double::{Double, KEY, REPOSITORY};

const FLOW: &str = r#"/** @jsxImportSource smithers-orchestrator */
import { createSmithers, Sandbox } from "smithers-orchestrator";
const { Workflow, smithers, outputs } = createSmithers({ output: {} });
export default smithers((ctx) => (
  <Workflow name="elsewhere">
    <Sandbox id="box" output={outputs.output} retries={0} runtime="codeplane" allowNetwork
      workspace={{ name: "runner", persistence: "sticky", idleTimeoutSecs: 300 }}
      autoAcceptDiffs env={{ GREETING: "hello" }}
      command={'cat file >&2; echo $GREETING > new; rm gone; echo more >> file; env >&2; touch ~/kept; echo "{}"'} />
  </Workflow>
));
"#;

const PARENT: &str = r#"/** @jsxImportSource smithers-orchestrator */
import { createSmithers, Sandbox } from "smithers-orchestrator";
const child = createSmithers({ output: {} });
const inner = child.smithers((ctx) => (
  <child.Workflow name="inner">
    <child.Task id="t" output={child.outputs.output}>{() => ({ told: ctx.input.text })}</child.Task>
  </child.Workflow>
));
const { Workflow, smithers, outputs } = createSmithers({ output: {} });
export default smithers((ctx) => (
  <Workflow name="outer">
    <Sandbox id="box" output={outputs.output} retries={0} runtime="codeplane" allowNetwork
      workspace={{ name: "runner" }} workflow={inner} input={{ text: "hello" }} timeoutMs={60000} />
  </Workflow>
));
"#;

/// A command with the variables of the double.
fn with_codeplane(double: &Double, call: Call) -> Call {
    call.env("CODEPLANE_API_URL", &double.url)
        .env("CODEPLANE_API_KEY", KEY)
        .env("CODEPLANE_REPOSITORY", REPOSITORY)
}

fn started(name: &str) -> Option<Double> {
    match Double::start() {
        Ok(double) => Some(double),
        Err(reason) => {
            crate::harness::skip(name, &reason);
            None
        }
    }
}

fn a_sandbox_of_a_workflow_runs_in_a_workspace_and_its_changes_are_applied(world: &World) {
    let Some(double) = started("codeplane::a_sandbox_of_a_workflow") else { return };
    world.write("file", "of the host\n");
    world.write("gone", "");
    let file = world.write("elsewhere.tsx", FLOW);
    let words = ["up", file.to_str().unwrap(), "--run-id", "one"];
    let outcome = with_codeplane(&double, world.stockade(&words)).finish();
    outcome.succeeds();
    assert_eq!(world.read("file"), "of the host\nmore\n");
    assert_eq!(world.read("new"), "hello\n");
    assert!(!world.has("gone"));
    assert!(!outcome.stderr.contains(KEY) && !outcome.stdout.contains(KEY), "{outcome}");
    assert!(!inspect(world, "one").to_string().contains(KEY));
    assert!(world.files_with(&world.data(), KEY).is_empty());
    assert_eq!(double.workspaces(), [("runner".to_owned(), "suspended")]);
}

fn a_child_workflow_runs_in_a_workspace(world: &World) {
    let Some(double) = started("codeplane::a_child_workflow") else { return };
    world.write("file", "of the host\n");
    let file = world.write("outer.tsx", PARENT);
    let words = ["up", file.to_str().unwrap(), "--run-id", "outer"];
    let outcome = with_codeplane(&double, world.stockade(&words)).finish();
    outcome.succeeds();
    assert_eq!(inspect(world, "outer")["run"]["output"]["told"], "hello", "{outcome}");
    assert!(double.workspaces().is_empty());
}

fn a_workspace_is_created_used_and_deleted(world: &World) {
    let Some(double) = started("codeplane::a_workspace_is_created") else { return };
    let call =
        |words: &[&str]| -> Outcome { with_codeplane(&double, world.stockade(words)).finish() };
    let create = ["create", "--id", "box", "--runtime", "codeplane", "--remote-workspace", "w"];
    call(&create).succeeds();
    let outcome = call(&["exec", "box", "--", "sh", "-c", "id -un; exit 7"]);
    outcome.ends_with(7);
    assert_eq!(outcome.stdout, "developer\n");
    let limited = ["create", "--runtime", "codeplane", "--memory", "1g"];
    let refused = call(&limited);
    assert!(refused.stderr.contains("Codeplane decides how large"), "{refused}");
    let elsewhere = call(&["create", "--runtime", "native", "--remote-workspace", "w"]);
    assert!(elsewhere.stderr.contains("remoteWorkspace"), "{elsewhere}");
    assert_eq!(double.workspaces().len(), 1);
    call(&["kill", "box"]).succeeds();
    assert!(double.workspaces().is_empty());
}

as_root_and_as_user![
    a_sandbox_of_a_workflow_runs_in_a_workspace_and_its_changes_are_applied,
    a_child_workflow_runs_in_a_workspace,
    a_workspace_is_created_used_and_deleted,
];
