// up: the function passed to smithers() must return one <Workflow>, not 2 elements … at two-workflows.tsx:7:16
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <>
    <Workflow name="v"><Task id="a" output={outputs.part}>{{}}</Task></Workflow>
    <Workflow name="w"><Task id="b" output={outputs.part}>{{}}</Task></Workflow>
  </>
));
