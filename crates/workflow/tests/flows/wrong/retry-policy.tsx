// up: retry-policy.tsx:9:5 — <Task> `retryPolicy` has no `backof` — did you mean `backoff`? … retry-policy.tsx:9:5 — <Task> `retryPolicy` has no `initialDelay` — did you mean `initialDelayMs`?
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part} retryPolicy={{ backof: "fixed", initialDelay: 5 }}>{() => ({})}</Task>
  </Workflow>
));
