/** @jsxImportSource smithers-orchestrator */
// Changes that need no approval: they are applied at once, all of them or none. Files that tools of
// the host would execute by themselves, such as git hooks, still wait for a decision.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

export default smithers((ctx) => (
  <Workflow name="auto-accept">
    <Sandbox
      id="generate"
      command={`mkdir -p generated && echo "export const answer = 42;" > generated/answer.ts && echo '{"files": 1}'`}
      autoAcceptDiffs
      output={outputs.output}
    />
  </Workflow>
));
