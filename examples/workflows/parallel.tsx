/** @jsxImportSource smithers-orchestrator */
// Parallel tasks, two at a time; then tasks in a queue, one at a time.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Sequence, Parallel, MergeQueue, smithers, outputs } = createSmithers({
  part: { type: "object", required: ["n"], properties: { n: { type: "integer" } } },
  output: { type: "object", required: ["sum"], properties: { sum: { type: "integer" } } },
});

const later = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export default smithers((ctx) => (
  <Workflow name="parallel">
    <Sequence>
      <Parallel maxConcurrency={2}>
        {[1, 2, 3, 4].map((n) => (
          <Task id={`part-${n}`} output={outputs.part}>
            {async () => {
              await later(10);
              return { n };
            }}
          </Task>
        ))}
      </Parallel>
      <MergeQueue>
        <Task id="first" output={outputs.part}>{{ n: 10 }}</Task>
        <Task id="second" output={outputs.part}>{{ n: 20 }}</Task>
      </MergeQueue>
      <Task id="sum" output={outputs.output}>
        {() => ({ sum: ctx.outputs(outputs.part).reduce((sum, row) => sum + row.n, 0) })}
      </Task>
    </Sequence>
  </Workflow>
));
