/** @jsxImportSource smithers-orchestrator */
// Waits until a user decides: `stockade approve RUN deploy`, or `deny`.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Approval, smithers, outputs } = createSmithers({
  decision: { type: "object", required: ["approved"], properties: { approved: { type: "boolean" } } },
  output: { type: "object", required: ["deployed"], properties: { deployed: { type: "boolean" } } },
});

export default smithers((ctx) => (
  <Workflow name="approval">
    <Approval
      id="deploy"
      output={outputs.decision}
      request={{ title: "Deploy?", summary: "Version 2 passed its tests." }}
      onDeny="continue"
    />
    <Task id="result" output={outputs.output}>
      {() => ({ deployed: ctx.output(outputs.decision, { nodeId: "deploy" }).approved })}
    </Task>
  </Workflow>
));
