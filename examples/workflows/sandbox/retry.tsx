/** @jsxImportSource smithers-orchestrator */
// Each attempt has a sandbox of its own, which starts with the current project: the changes of the
// previous attempt are deleted, so both attempts fail in the same way, and the run fails.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

export default smithers((ctx) => (
  <Workflow name="retry">
    <Sandbox
      id="fresh"
      command={`test ! -e dirty || echo dirty; touch dirty; exit 3`}
      retries={1}
      retryPolicy={{ backoff: "fixed", initialDelayMs: 10 }}
      timeoutMs={60_000}
      output={outputs.output}
    />
  </Workflow>
));
