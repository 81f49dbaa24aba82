// ok: {"n": 2}
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <MergeQueue>
      <Parallel>
        <Task id="a" output={outputs.part}>{() => ({})}</Task>
        <Task id="b" output={outputs.part}>{() => ({})}</Task>
      </Parallel>
    </MergeQueue>
    <Task id="end" output="output">{() => ({ n: ctx.outputs.part.length })}</Task>
  </Workflow>
));
