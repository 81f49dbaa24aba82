// up: runtime-without-the-project.tsx:8:5 — the runtime `opensandbox` executes no <Sandbox>: a directory of this host cannot be shown on another one
/** @jsxImportSource smithers-orchestrator */
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ result: {} });
export default smithers(() => (
  <Workflow name="w">
    <Sandbox id="s" output={outputs.result} runtime="opensandbox" command="true" />
  </Workflow>
));
