// up: the second argument of createSmithers() has no `dbpath` — did you mean `dbPath`?
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object }, { dbpath: "x" });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part}>{() => ({})}</Task>
  </Workflow>
));
