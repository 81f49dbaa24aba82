// up: port-key.tsx:9:5 — <Sandbox> `ports[0]` has no `conatiner` — did you mean `container`?
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sandbox id="s" workflow={child} output={outputs.result} ports={[{ host: 3000, conatiner: 3000 }]} />
  </Workflow>
));
