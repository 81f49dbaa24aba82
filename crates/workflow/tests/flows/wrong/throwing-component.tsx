// up: TypeError: cannot read property 'map' of undefined … at Steps (throwing-component.tsx:7:30)
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
const Steps = ({ names }) => names.map((name) => <Task id={name} output={outputs.part}>{{}}</Task>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Steps />
  </Workflow>
));
