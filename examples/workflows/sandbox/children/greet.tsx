/** @jsxImportSource smithers-orchestrator */
// An ordinary workflow: `stockade up` runs it by itself, and `imported.tsx` runs it in a sandbox.
import { createSmithers } from "smithers-orchestrator";
import { greeting } from "./words";

const { Workflow, Task, smithers, outputs } = createSmithers({
  greeting: { type: "object", required: ["text"], properties: { text: { type: "string" } } },
});

export default smithers((ctx) => (
  <Workflow name="greet">
    <Task id="greet" output={outputs.greeting}>
      {() => ({ text: greeting(ctx.input.name) })}
    </Task>
  </Workflow>
));
