// up: unknown-deps.tsx:10:5 — task "b" waits for "biuld", which is not a task — did you mean "build"?
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="build" output={outputs.part}>{{}}</Task>
    <Task id="b" output={outputs.part} deps={{ biuld: outputs.part }}>{(deps) => ({ b: deps.biuld })}</Task>
  </Workflow>
));
