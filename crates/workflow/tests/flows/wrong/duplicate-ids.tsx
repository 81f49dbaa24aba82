// up: duplicate-ids.tsx:10:5 — two tasks have the id "build", the first at duplicate-ids.tsx:9:5
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="build" output={outputs.part}>{{}}</Task>
    <Sandbox id="build" workflow={child} output={outputs.result} />
  </Workflow>
));
