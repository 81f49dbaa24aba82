// up: element-of-html.tsx:9:5 — there is no element <div> — there are Workflow, Task, Sequence, Parallel, MergeQueue, Branch, Loop, Approval, Timer, WaitForEvent, Signal, Subflow, Sandbox
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <div><Task id="a" output={outputs.part}>{() => ({})}</Task></div>
  </Workflow>
));
