/** @jsxImportSource smithers-orchestrator */
// A secret of the vault becomes a file of the container, which only the command's user can read.
// `secret` is the name of a secret that `stockade secrets set deploy` has stored.
//   stockade up examples/fireflow/secret.tsx --input '{"secret": "deploy"}'
import {
  createSmithers,
  SandboxCreateNode,
  SandboxKillNode,
  SandboxWriteSecretFileNode,
} from "smithers-orchestrator";

const { Workflow, smithers } = createSmithers({
  input: { type: "object", required: ["secret"], properties: { secret: { type: "string" } } },
});

export default smithers((ctx) => (
  <Workflow name="secret">
    <SandboxCreateNode id="create" />
    <SandboxWriteSecretFileNode id="write" from="create" secret={ctx.input.secret} path="/run/secrets/key" noRetry />
    <SandboxKillNode id="kill" from="write" />
  </Workflow>
));
