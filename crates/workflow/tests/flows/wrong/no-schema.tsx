// up: createSmithers(): "result" is not a schema, but "string": use z.object({ … }) or a JSON Schema … at no-schema.tsx:3:47
import { createSmithers } from "smithers-orchestrator";
const { Workflow, Task, smithers, outputs } = createSmithers({ result: "string" });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.result}>{() => ({})}</Task>
  </Workflow>
));
