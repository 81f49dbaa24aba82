/** @jsxImportSource smithers-orchestrator */
// The smallest workflow: a task with a fixed value, and a task with a function that uses it.
//   stockade up examples/workflows/hello.tsx --input '{"name": "Ada"}'
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  input: { type: "object", properties: { name: { type: "string" } } },
  greeting: {
    type: "object",
    required: ["text"],
    properties: { text: { type: "string" } },
  },
  output: {
    type: "object",
    required: ["text", "letters"],
    properties: { text: { type: "string" }, letters: { type: "integer" } },
  },
});

export default smithers((ctx) => (
  <Workflow name="hello">
    <Task id="greet" output={outputs.greeting}>
      {{ text: `Hello, ${ctx.input.name ?? "world"}!` }}
    </Task>
    <Task id="count" output={outputs.output} deps={{ greet: outputs.greeting }}>
      {({ greet }) => ({ text: greet.text, letters: greet.text.length })}
    </Task>
  </Workflow>
));
