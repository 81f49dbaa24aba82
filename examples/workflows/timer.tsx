/** @jsxImportSource smithers-orchestrator */
// Waits for a time, also across restarts of the process that executes the run.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Timer, smithers, outputs } = createSmithers({
  output: { type: "object", required: ["rested"], properties: { rested: { type: "boolean" } } },
});

export default smithers((ctx) => (
  <Workflow name="timer">
    <Timer id="rest" duration="200ms" />
    <Timer id="past" until="2020-01-01T00:00:00Z" />
    <Task id="after" output={outputs.output}>{{ rested: true }}</Task>
  </Workflow>
));
