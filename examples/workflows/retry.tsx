/** @jsxImportSource smithers-orchestrator */
// A task that is retried, one that may fail, and one that times out.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  any: {},
  output: { type: "object", required: ["tries"], properties: { tries: { type: "integer" } } },
});

let tries = 0;

export default smithers((ctx) => (
  <Workflow name="retry">
    <Task id="optional" output={outputs.any} continueOnFail>
      {() => {
        throw new Error("the run continues without it");
      }}
    </Task>
    <Task id="slow" output={outputs.any} timeoutMs={50} noRetry continueOnFail>
      {() => new Promise((done) => setTimeout(() => done({}), 60_000))}
    </Task>
    <Task
      id="flaky"
      label="A service that responds at the third attempt"
      output={outputs.output}
      retries={3}
      retryPolicy={{ backoff: "exponential", initialDelayMs: 10 }}
    >
      {() => {
        tries += 1;
        if (tries < 3) throw new Error("not yet");
        return { tries };
      }}
    </Task>
  </Workflow>
));
