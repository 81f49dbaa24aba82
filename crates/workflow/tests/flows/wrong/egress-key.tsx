// up: egress-key.tsx:9:5 — <Sandbox> `egress` has no `allowHost` — did you mean `allowHosts`?
import { createSmithers, Sandbox, Approval, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Sandbox id="s" workflow={child} output={outputs.result} allowNetwork egress={{ allowHost: ["example.invalid"] }} />
  </Workflow>
));
