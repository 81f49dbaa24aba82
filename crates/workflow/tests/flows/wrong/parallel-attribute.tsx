// up: parallel-attribute.tsx:9:5 — <Parallel> has no attribute `max` — it has id, label, maxConcurrency, skipIf
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Parallel max={2}><Task id="a" output={outputs.part}>{() => ({})}</Task></Parallel>
  </Workflow>
));
