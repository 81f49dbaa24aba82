// zod run: /files: Invalid input: expected array, received string; /summary: Invalid input: expected string, received number … at zod-mismatch.tsx:7:5
import { createSmithers } from "smithers-orchestrator";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ result: z.object({ files: z.array(z.string()), summary: z.string() }) });
export default smithers((ctx) => (
  <Workflow name="w">
    <Task id="a" output={outputs.result}>{() => ({ files: "a.ts", summary: 7 })}</Task>
  </Workflow>
));
