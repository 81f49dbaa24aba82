// up: retry-policy-of-text.tsx:9:5 — <Task> `retryPolicy.initialDelayMs` must be a number of milliseconds
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part} retryPolicy={{ initialDelayMs: "1s" }}>{() => ({})}</Task>
  </Workflow>
));
