// zod up: /prompt: Invalid input: expected string, received undefined
import { createSmithers } from "smithers-orchestrator";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ input: z.object({ prompt: z.string() }), output: z.object({ prompt: z.string() }) });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.output}>{() => ({ prompt: ctx.input.prompt })}</Task>
  </Workflow>
));
