/** @jsxImportSource smithers-orchestrator */
// An agent that is a command. It reads the prompt on its standard input and writes JSON. It is
// executed in a sandbox of its own, on a copy of the project, without network access.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  output: {
    type: "object",
    required: ["words"],
    properties: { words: { type: "integer" }, where: { type: "string" } },
  },
});

const counter = {
  command: ["/bin/sh", "-c", `printf '{"words": %d, "where": "%s"}' "$(head -n 1 | wc -w)" "$PWD"`],
  timeoutMs: 30_000,
};

export default smithers((ctx) => (
  <Workflow name="command">
    <Task id="count" output={outputs.output} agent={counter}>
      {ctx.input.text ?? "one two three"}
    </Task>
  </Workflow>
));
