/** @jsxImportSource smithers-orchestrator */
// Your first workflow. Run it:
//   stockade up workflow.tsx --input '{"name": "Ada"}'
// What is finished is never done again: kill it anywhere, then `stockade resume RUN`.
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
