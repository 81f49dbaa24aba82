// up: the function passed to smithers() must not be async: it only declares the tasks, whose functions do the work … at async-workflow.tsx:7:25
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers(async (ctx) => (
  <Workflow name="w"><Task id="a" output={outputs.part}>{{}}</Task></Workflow>
));
