/** @jsxImportSource smithers-orchestrator */
// Repeats a task until its result is good enough, at most five times.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Loop, smithers, outputs } = createSmithers({
  draft: { type: "object", required: ["score"], properties: { score: { type: "integer" } } },
  output: { type: "object", required: ["rounds"], properties: { rounds: { type: "integer" } } },
});

export default smithers((ctx) => (
  <Workflow name="loop">
    <Loop
      id="improve"
      until={(ctx.latest(outputs.draft, "draft")?.score ?? 0) >= 30}
      maxIterations={5}
    >
      <Task id="draft" output={outputs.draft}>
        {() => ({ score: ((ctx.latest(outputs.draft, "draft")?.score ?? 0) + 10) })}
      </Task>
    </Loop>
    <Task id="count" output={outputs.output}>
      {() => ({ rounds: ctx.iterationCount(outputs.draft, "draft") })}
    </Task>
  </Workflow>
));
