/** @jsxImportSource smithers-orchestrator */
// Your first workflow. Run it:
//   stockade up workflow.tsx --input '{"name": "Ada"}'
// A finished task never runs again: kill the run at any point, then `stockade resume RUN`.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  input: { type: "object", properties: { name: { type: "string" } } },
  output: { type: "object", required: ["text"], properties: { text: { type: "string" } } },
});

export default smithers((ctx) => (
  <Workflow name="first">
    <Task id="greet" output={outputs.output}>
      {() => ({ text: `Hello, ${ctx.input.name ?? "world"}!` })}
    </Task>
  </Workflow>
));
