/** @jsxImportSource smithers-orchestrator */
// Works on one page in each run, and continues as a new run until there is no page left. The new run has
// the input of the first one, and none of its rows.
import { ContinueAsNew, createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  output: { type: "object", required: ["page"], properties: { page: { type: "integer" } } },
});

const LAST = 3;

export default smithers((ctx) => {
  const page = ctx.input.__smithersContinuation?.payload?.page ?? 1;
  return (
    <Workflow name="continue-as-new">
      <Task id="work" output={outputs.output}>
        {() => ({ page })}
      </Task>
      {page < LAST && <ContinueAsNew state={{ page: page + 1 }} />}
    </Workflow>
  );
});
