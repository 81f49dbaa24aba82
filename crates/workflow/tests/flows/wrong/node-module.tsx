// up: node-module.tsx:2:1 — "node:fs" is not available: a workflow file has no access to files, programs or the network of the host; use a command instead, as agent={{ command: … }} or <Sandbox command=…>
import { readFileSync } from "node:fs";
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.part}>{() => ({ text: readFileSync("notes.md", "utf8") })}</Task>
  </Workflow>
));
