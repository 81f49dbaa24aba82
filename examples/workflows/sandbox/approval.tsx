/** @jsxImportSource smithers-orchestrator */
// A child workflow with an approval. Its process ends when it can continue only with a decision; the
// sandbox is retained, and the parent waits: `stockade approve RUN release/publish`, or `deny`. Then
// the child continues from the same point in the same sandbox: finished tasks do not run again.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const child = createSmithers({
  built: { type: "object", required: ["version"] },
  decision: { type: "object", required: ["approved"] },
  result: { type: "object", required: ["version", "published"] },
});

const release = child.smithers((ctx) => (
  <child.Workflow name="release">
    <child.Task id="build" output={child.outputs.built}>
      {() => ({ version: ctx.input.version })}
    </child.Task>
    <child.Approval
      id="publish"
      output={child.outputs.decision}
      request={{ title: "Publish?", summary: `Version ${ctx.input.version} is built.` }}
      onDeny="continue"
    />
    <child.Task id="result" output={child.outputs.result}>
      {() => ({
        version: ctx.output(child.outputs.built, { nodeId: "build" }).version,
        published: ctx.output(child.outputs.decision, { nodeId: "publish" }).approved,
      })}
    </child.Task>
  </child.Workflow>
));

const parent = createSmithers({
  output: { type: "object", required: ["version", "published"] },
});

export default parent.smithers((ctx) => (
  <parent.Workflow name="approval">
    <Sandbox
      id="release"
      workflow={release}
      input={{ version: ctx.input.version ?? "2.0.0" }}
      output={parent.outputs.output}
    />
  </parent.Workflow>
));
