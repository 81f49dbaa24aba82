// zod up: createSmithers(): "output" is not a schema, but an object of schemas: use z.object({ … }) or a JSON Schema … at raw-shape.tsx:4:84
import { createSmithers } from "smithers-orchestrator";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ output: { prompt: z.string() } });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.output}>{() => ({ prompt: "p" })}</Task>
  </Workflow>
));
