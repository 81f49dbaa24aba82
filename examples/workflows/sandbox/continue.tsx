/** @jsxImportSource smithers-orchestrator */
// The run continues although a sandbox fails, and none of its changes are applied. A skipped sandbox
// is never created.
import { createSmithers, Sandbox, Task } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({
  tried: { type: "object" },
  output: { type: "object", required: ["tried"] },
});

export default smithers((ctx) => (
  <Workflow name="continue">
    <Sandbox id="broken" command="echo lost > lost.txt; exit 7" continueOnFail output={outputs.tried} />
    <Sandbox id="skipped" command="true" skipIf={true} output={outputs.tried} />
    <Task id="end" output={outputs.output}>
      {() => ({ tried: ctx.outputMaybe(outputs.tried, { nodeId: "broken" }) ?? "nothing" })}
    </Task>
  </Workflow>
));
