// up: there is no output of task "a" in "part" yet; ctx.outputMaybe() returns undefined instead … at output-before-it-is-there.tsx:10:57
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part}>{{ n: 1 }}</Task>
    <Task id="b" output={outputs.part}>{{ n: ctx.output(outputs.part, { nodeId: "a" }).n }}</Task>
  </Workflow>
));
