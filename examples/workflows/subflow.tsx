/** @jsxImportSource smithers-orchestrator */
// A workflow in a workflow: a child run, whose result is the output of a task.
import { createSmithers, Subflow } from "smithers-orchestrator";

const child = createSmithers({
  input: { type: "object", required: ["words"] },
  result: { type: "object", required: ["count"], properties: { count: { type: "integer" } } },
});

const counting = child.smithers((ctx) => (
  <child.Workflow name="counting">
    <child.Task id="count" output={child.outputs.result}>
      {() => ({ count: ctx.input.words.split(" ").length })}
    </child.Task>
  </child.Workflow>
));

const parent = createSmithers({
  output: { type: "object", required: ["count"], properties: { count: { type: "integer" } } },
});

export default parent.smithers((ctx) => (
  <parent.Workflow name="subflow">
    <Subflow
      id="counted"
      workflow={counting}
      input={{ words: ctx.input.words ?? "one two three" }}
      output={parent.outputs.output}
    />
  </parent.Workflow>
));
