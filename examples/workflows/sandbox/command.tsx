/** @jsxImportSource smithers-orchestrator */
// A command instead of a workflow. Its changes wait for a decision: `stockade diff latest` shows them,
// and `stockade approve RUN edit`, `approve … --only PATH` or `deny` decides. The command does not run
// again. If its standard output is a JSON object, that is the output of the task.
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
