/** @jsxImportSource smithers-orchestrator */
// Tasks that depend on other tasks by name, independent of their order in the file.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Parallel, smithers, outputs } = createSmithers({
  number: { type: "object", required: ["n"], properties: { n: { type: "integer" } } },
  output: { type: "object", required: ["n"], properties: { n: { type: "integer" } } },
});

export default smithers((ctx) => (
  <Workflow name="needs">
    <Parallel>
      <Task
        id="product"
        output={outputs.output}
        dependsOn={["left", "right"]}
        needs={{ a: "left", b: "right" }}
        meta={{ owner: "examples" }}
      >
        {({ a, b }) => ({ n: a.n * b.n })}
      </Task>
      <Task id="right" output={outputs.number}>{{ n: 7 }}</Task>
      <Task id="left" output={outputs.number}>{() => ({ n: 6 })}</Task>
    </Parallel>
  </Workflow>
));
