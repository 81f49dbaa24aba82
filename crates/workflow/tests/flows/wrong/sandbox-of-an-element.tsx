// up: sandbox-of-an-element.tsx:9:5 — <Sandbox> `workflow` must be the result of `smithers(…)`, not an element
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sandbox id="s" output={outputs.result} workflow={<Workflow name="c" />} />
  </Workflow>
));
