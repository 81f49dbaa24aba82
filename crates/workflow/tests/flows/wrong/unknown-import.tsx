// up: unknown-import.tsx:2:1 — "smithers-orchestrator" exports no `Sequance` — did you mean `Sequence`?
import { createSmithers, Sandbox, Sequance, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sequance><Task id="a" output={outputs.part}>{{}}</Task></Sequance>
  </Workflow>
));
