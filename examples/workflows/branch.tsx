/** @jsxImportSource smithers-orchestrator */
// The output of a task selects one of two branches. The last task is skipped.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Branch, smithers, outputs } = createSmithers({
  check: { type: "object", required: ["large"], properties: { large: { type: "boolean" } } },
  output: { type: "object", required: ["way"], properties: { way: { type: "string" } } },
});

export default smithers((ctx) => (
  <Workflow name="branch">
    <Task id="check" output={outputs.check}>
      {() => ({ large: (ctx.input.size ?? 0) > 100 })}
    </Task>
    <Branch
      if={ctx.outputMaybe(outputs.check, { nodeId: "check" })?.large === true}
      then={<Task id="long" output={outputs.output}>{{ way: "long" }}</Task>}
      else={<Task id="short" output={outputs.output}>{{ way: "short" }}</Task>}
    />
    <Task id="never" output={outputs.output} skipIf={true}>
      {() => {
        throw new Error("a skipped task does not run");
      }}
    </Task>
  </Workflow>
));
