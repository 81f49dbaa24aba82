// up: schema-of-another-kind.tsx:6:5 — the output of task "a" … its schema is not a valid JSON Schema: "objct" is not valid under any of the schemas listed in the 'anyOf' keyword
import { createSmithers } from "smithers-orchestrator";
const { Workflow, Task, smithers, outputs } = createSmithers({ result: { type: "objct" } });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.result}>{() => ({})}</Task>
  </Workflow>
));
