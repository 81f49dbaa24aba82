/** @jsxImportSource smithers-orchestrator */
// A task whose output is cached for other runs. It runs again if the value of `by`, the version or
// its code differs, or after an hour.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  output: { type: "object", required: ["primes"], properties: { primes: { type: "integer" } } },
});

const primes = (below) => {
  const found = [];
  for (let n = 2; n < below; n += 1) if (found.every((prime) => n % prime !== 0)) found.push(n);
  return found.length;
};

export default smithers((ctx) => (
  <Workflow name="cache">
    <Task
      id="count"
      output={outputs.output}
      cache={{ by: (ctx) => ctx.input.below, version: "1", ttlMs: 3_600_000 }}
    >
      {() => ({ primes: primes(ctx.input.below ?? 100) })}
    </Task>
  </Workflow>
));
