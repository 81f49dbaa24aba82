/** @jsxImportSource smithers-orchestrator */
// FireFlow's nodes from creation to termination. `from` passes `sandboxId`, the access rules and the
// endpoint configuration of an earlier node through.
//   stockade up examples/fireflow/lifecycle.tsx
import {
  createSmithers,
  SandboxCreateNode,
  SandboxExecuteNode,
  SandboxKillNode,
  SandboxPauseNode,
  SandboxRenewNode,
  SandboxResumeNode,
  SandboxStatusNode,
} from "smithers-orchestrator";

const { Workflow, smithers } = createSmithers({});

export default smithers(() => (
  <Workflow name="lifecycle">
    <SandboxCreateNode
      id="create"
      env={{ GREETING: "hello" }}
      accessRules={[
        { effect: "allow", level: "readwrite", path: "/" },
        { effect: "allow", level: "execute", path: "/" },
        { effect: "deny", level: "read", path: "/tmp/private" },
      ]}
      timeoutSeconds={600}
    />
    <SandboxExecuteNode id="run" from="create" command="echo $GREETING; echo oops >&2; exit 3" />
    <SandboxRenewNode id="renew" from="run" timeoutSeconds={1200} />
    <SandboxPauseNode id="pause" from="renew" />
    <SandboxResumeNode id="resume" from="pause" />
    <SandboxStatusNode id="status" from="resume" includeMetrics />
    <SandboxKillNode id="kill" from="status" />
    <SandboxStatusNode id="ended" from="kill" />
  </Workflow>
));
