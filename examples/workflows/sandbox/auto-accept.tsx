/** @jsxImportSource smithers-orchestrator */
// Changes that need nobody's yes: they are applied at once, all of them or none. What tools of the
// host would run by themselves, such as git hooks, waits for somebody all the same.
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
