// zod up: createSmithers(): "output" is not a schema, but a function: use z.object({ … }) or a JSON Schema … at zod-not-called.tsx:4:72
import { createSmithers } from "smithers-orchestrator";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ output: z.object });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.output}>{() => ({ prompt: "p" })}</Task>
  </Workflow>
));
