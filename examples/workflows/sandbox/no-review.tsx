/** @jsxImportSource smithers-orchestrator */
// Changes that are applied without any review: no approval and no event requests a decision.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

export default smithers((ctx) => (
  <Workflow name="no-review">
    <Sandbox
      id="format"
      command={`printf 'a\\nb\\n' > sorted.txt && echo '{"sorted": true}'`}
      reviewDiffs={false}
      output={outputs.output}
    />
  </Workflow>
));
