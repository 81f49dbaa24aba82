// up: the function passed to smithers() must return one <Workflow>, but returned nothing: a function with braces needs `return` … at nothing-returned.tsx:7:16
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => {
  <Workflow name="w"><Task id="a" output={outputs.part}>{{}}</Task></Workflow>;
});
