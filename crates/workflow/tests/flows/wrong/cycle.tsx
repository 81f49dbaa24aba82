// up: cycle.tsx:10:7 — tasks wait for each other: "a" waits for "b" waits for "a"
import { createSmithers, Sandbox, Sequence, Parallel, MergeQueue, Branch, Loop, Subflow } from "smithers-orchestrator";
const object = { type: "object" };
const summary = { type: "object", required: ["summary"], properties: { summary: { type: "string" } } };
const { Workflow, Task, smithers, outputs } = createSmithers({ result: summary, part: object });
const child = smithers(() => <Workflow name="child"><Task id="c" output={outputs.result}>{{ summary: "s" }}</Task></Workflow>);
export default smithers((ctx) => (
  <Workflow name="w">
    <Parallel>
      <Task id="a" output={outputs.part} deps={{ b: outputs.part }}>{() => ({})}</Task>
      <Task id="b" output={outputs.part} needs={{ first: "a" }}>{() => ({})}</Task>
    </Parallel>
  </Workflow>
));
