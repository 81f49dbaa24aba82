/** @jsxImportSource smithers-orchestrator */
// Several sandboxes in parallel. STOCKADE_MAX_CONCURRENT_SANDBOXES (default: 10) limits their number.
// At the limit another one fails at once, unless it has `onLimit="wait"`.
import { createSmithers, Parallel, Sandbox, Task } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({
  part: { type: "object", required: ["n"], properties: { n: { type: "number" } } },
  output: { type: "object", required: ["sum"], properties: { sum: { type: "number" } } },
});

export default smithers((ctx) => (
  <Workflow name="parallel">
    <Parallel>
      {[1, 2, 3, 4].map((n) => (
        <Sandbox id={`part-${n}`} command={`echo '{"n": ${n * 10}}'`} onLimit="wait" output={outputs.part} />
      ))}
    </Parallel>
    <Task id="sum" output={outputs.output}>
      {() => ({ sum: ctx.outputRows(outputs.part).reduce((sum, row) => sum + row.n, 0) })}
    </Task>
  </Workflow>
));
