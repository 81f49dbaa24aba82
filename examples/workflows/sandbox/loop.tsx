/** @jsxImportSource smithers-orchestrator */
// A sandbox in a loop: its changes are applied each time, so that the next sandbox starts with them.
import { createSmithers, Loop, Sandbox, Task } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({
  step: { type: "object", required: ["lines"], properties: { lines: { type: "integer" } } },
  output: { type: "object", required: ["lines"], properties: { lines: { type: "integer" } } },
});

export default smithers((ctx) => {
  const lines = ctx.latest(outputs.step, "grow")?.lines ?? 0;
  return (
    <Workflow name="loop">
      <Loop id="until-long" until={lines >= 3} maxIterations={5}>
        <Sandbox
          id="grow"
          command={`echo line >> long.txt; printf '{"lines": %d}' "$(wc -l < long.txt)"`}
          autoAcceptDiffs
          output={outputs.step}
        />
      </Loop>
      <Task id="end" output={outputs.output}>{() => ({ lines })}</Task>
    </Workflow>
  );
});
