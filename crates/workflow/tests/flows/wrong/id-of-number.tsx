// up: id-of-number.tsx:9:24 — <Task> `id` must be a string, not 1 … id-of-number.tsx:9:24 — <Task> `id` must be a string, not 2
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    {[1, 2].map((n) => <Task id={n} output={outputs.part}>{{}}</Task>)}
  </Workflow>
));
