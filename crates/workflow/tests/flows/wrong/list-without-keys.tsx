// ok: {"n": 2}
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    {["a", "b"].map((id) => <Task id={id} output={outputs.part}>{{ id }}</Task>)}
    <Task id="end" output="output">{() => ({ n: ctx.outputs(outputs.part).length })}</Task>
  </Workflow>
));
