// up: node-module.tsx:2:1 — "node:fs" is not there: a workflow file has no files, programs or network of the host; a task gets at them by a command, as agent={{ command: … }} or <Sandbox command=…>
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
