/** @jsxImportSource smithers-orchestrator */
// Each try has a sandbox of its own, which begins with the project as it is: what the one before
// changed is gone with it.
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
