/** @jsxImportSource smithers-orchestrator */
// A command instead of a workflow. What it changes waits: `stockade diff latest` shows it, and
// `stockade approve RUN edit`, `approve … --only PATH` or `deny` decides. The command is not run
// again. What it writes to its standard output, where that is an object, is the task's output.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({
  output: { type: "object", required: ["edited"], properties: { edited: { type: "integer" } } },
});

export default smithers((ctx) => (
  <Workflow name="command">
    <Sandbox
      id="edit"
      command={`echo '- reviewed' >> notes.md && echo new > added.md && echo '{"edited": 2}'`}
      output={outputs.output}
    />
  </Workflow>
));
