// up: agent-misspelt.tsx:10:5 — <Task> `agent` must be a function, an object with `generate`, or a command, as in { command: "…" }, not undefined
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
const agents = { code: async ({ prompt }) => ({ summary: prompt }) };
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.result} agent={agents.coder}>Generate code</Task>
  </Workflow>
));
