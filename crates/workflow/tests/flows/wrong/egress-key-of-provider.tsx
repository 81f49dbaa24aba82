// up: egress-key-of-provider.tsx:9:5 — <Sandbox> `egress` has no `httpProxi` — did you mean `httpProxy`?
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sandbox id="s" workflow={child} output={outputs.result} provider={{ id: "p", run: async () => ({ status: "finished" }) }} egress={{ httpProxi: "http://proxy.example", vendor: true }} />
  </Workflow>
));
