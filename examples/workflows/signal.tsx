/** @jsxImportSource smithers-orchestrator */
// Waits for a signal from outside: `stockade signal RUN review --payload '{"ok": true}'`.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, Signal, WaitForEvent, smithers, outputs } = createSmithers({
  review: { type: "object", required: ["ok"], properties: { ok: { type: "boolean" } } },
  build: { type: "object" },
  output: { type: "object", required: ["ok"], properties: { ok: { type: "boolean" } } },
});

export default smithers((ctx) => (
  <Workflow name="signal">
    <Signal id="review" schema={outputs.review} />
    <WaitForEvent
      id="build"
      event="build-finished"
      correlationId={ctx.input.build ?? "main"}
      output={outputs.build}
      timeoutMs={86_400_000}
      onTimeout="skip"
    />
    <Task id="result" output={outputs.output}>
      {() => ({ ok: ctx.output(outputs.review, { nodeId: "review" }).ok })}
    </Task>
  </Workflow>
));
