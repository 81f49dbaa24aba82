// up: retry-policy-backoff.tsx:9:5 — <Task> `retryPolicy.backoff` must be "fixed", "linear" or "exponential", not 2
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part} retryPolicy={{ backoff: 2 }}>{() => ({})}</Task>
  </Workflow>
));
