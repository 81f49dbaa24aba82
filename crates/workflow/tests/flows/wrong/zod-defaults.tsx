// zod ok: {"tries": 3, "tags": []}
import { createSmithers } from "smithers-orchestrator";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ output: z.object({ tries: z.number().default(3), tags: z.array(z.string()).default([]) }) });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.output}>{() => ({})}</Task>
  </Workflow>
));
