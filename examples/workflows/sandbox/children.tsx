/** @jsxImportSource smithers-orchestrator */
// A bound <Sandbox>: the content between its tags is the child workflow. Its tasks are not tasks of
// this run; they run in the sandbox, one after another.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Sandbox, smithers, outputs } = createSmithers({
  part: { type: "object", required: ["n"], properties: { n: { type: "number" } } },
  output: { type: "object", required: ["n"], properties: { n: { type: "number" } } },
});

export default smithers((ctx) => {
  const start = ctx.input.start ?? 20;
  return (
    <Workflow name="children">
      <Sandbox id="sum" output={outputs.output}>
        {(inside) => (
          <>
            <Task id="first" output={outputs.part}>{{ n: start }}</Task>
            <Task id="twice" output={outputs.output}>
              {() => ({ n: inside.output(outputs.part, { nodeId: "first" }).n * 2 + 2 })}
            </Task>
          </>
        )}
      </Sandbox>
    </Workflow>
  );
});
