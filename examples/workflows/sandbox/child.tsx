/** @jsxImportSource smithers-orchestrator */
// A workflow that runs in a sandbox: without network access, without host files except a copy-on-write
// view of this project, and without access to this process. Its result is the output of the task.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const child = createSmithers({
  input: { type: "object", required: ["prompt"] },
  result: { type: "object", required: ["summary"], properties: { summary: { type: "string" } } },
});

const summarize = child.smithers((ctx) => (
  <child.Workflow name="summarize">
    <child.Task id="summarize" output={child.outputs.result}>
      {() => ({ summary: `Processed: ${ctx.input.prompt}` })}
    </child.Task>
  </child.Workflow>
));

const parent = createSmithers({
  result: { type: "object", required: ["summary"], properties: { summary: { type: "string" } } },
});

export default parent.smithers((ctx) => (
  <parent.Workflow name="child">
    <Sandbox
      id="inside"
      workflow={summarize}
      input={{ prompt: ctx.input.prompt ?? "hello" }}
      output={parent.outputs.result}
    />
  </parent.Workflow>
));
