// up: async-component.tsx:10:5 — a promise is not allowed between elements: a component must not be async, only functions of tasks can be
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
const Steps = async () => <Task id="a" output={outputs.part}>{{}}</Task>;
export default smithers((ctx) => (
  <Workflow name="w">
    <Steps />
  </Workflow>
));
