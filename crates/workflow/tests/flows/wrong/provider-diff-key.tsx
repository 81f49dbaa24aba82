// run: has no `baseref` — did you mean `baseRef`?
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sandbox id="s" workflow={child} output={outputs.result} retries={0} provider={{ id: "p", run: async () => ({ status: "finished", output: { summary: "s" }, diffBundle: { seq: 1, baseref: "HEAD", patches: [] } }) }} />
  </Workflow>
));
