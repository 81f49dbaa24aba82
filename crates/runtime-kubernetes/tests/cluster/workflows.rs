//! `<Sandbox runtime="kubernetes">`: a command and a child workflow in pods of the double, with the whole program.

use std::process::Command;

use stockade_runtime::conformance;
use stockade_test_support::program;

use crate::double::Agents;
use crate::doubled::{Fixture, with_double};

const FLOW: &str = r#"/** @jsxImportSource smithers-orchestrator */
import { createSmithers, Sandbox, Sequence } from "smithers-orchestrator";
const inner = createSmithers({ result: { type: "object" } });
const child = inner.smithers((ctx) => (
  <inner.Workflow name="child">
    <inner.Task id="next" output={inner.outputs.result}>{() => ({ n: ctx.input.n + 1 })}</inner.Task>
  </inner.Workflow>
));
const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" }, lines: { type: "object" } });
export default smithers((ctx) => (
  <Workflow name="pods">
    <Sequence>
      <Sandbox id="command" runtime="kubernetes" image="image:1" retries={0} autoAcceptDiffs output={outputs.lines}
        command={`echo two >> notes.txt; printf '{"lines": %d}' "$(wc -l < notes.txt)"`} />
      <Sandbox id="child" runtime="kubernetes" image="image:1" retries={0} output={outputs.output}
        workflow={child} input={{ n: 41 }} />
    </Sequence>
  </Workflow>
));
"#;

#[test]
fn a_command_and_a_child_run_in_pods() {
    with_double(Agents::None, 0, async |fixture: &Fixture| {
        let top = tempfile::tempdir().unwrap();
        let project = top.path().join("project");
        std::fs::create_dir_all(project.join(".git")).unwrap();
        std::fs::write(project.join("notes.txt"), "one\n").unwrap();
        std::fs::write(project.join("flow.tsx"), FLOW).unwrap();
        let mut up = Command::new(program("stockade"));
        up.args(["up", "flow.tsx", "--in-process"])
            .current_dir(&project)
            .env("STOCKADE_DATA_DIR", top.path().join("data"))
            .env("STOCKADE_KUBECONFIG", fixture.double.kubeconfig())
            .env("STOCKADE_KUBERNETES_IMAGE", "stockade:test");
        let ran = tokio::task::spawn_blocking(move || up.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        if said.contains("is not part of this server") {
            let feature = "stockade-server was built without the feature `kubernetes`";
            return conformance::skipped(feature);
        }
        assert!(ran.status.success(), "{said}");
        let output: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(output, serde_json::json!({ "n": 42 }), "{said}");
        assert_eq!(std::fs::read_to_string(project.join("notes.txt")).unwrap(), "one\ntwo\n");
        assert!(fixture.names("pods").is_empty());
    });
}
