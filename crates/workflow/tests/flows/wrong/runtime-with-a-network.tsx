// up: runtime-with-a-network.tsx:8:5 — the runtime `opensandbox` needs `allowNetwork`: its sandboxes may reach the network, and nothing on this machine can prevent that
/** @jsxImportSource smithers-orchestrator */
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ result: {} });
export default smithers(() => (
  <Workflow name="w">
    <Sandbox id="s" output={outputs.result} runtime="opensandbox" command="true" />
  </Workflow>
));
