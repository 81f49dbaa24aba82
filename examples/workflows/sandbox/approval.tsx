/** @jsxImportSource smithers-orchestrator */
// A child that asks from inside its sandbox. It ends when it can go on only with an answer; the
// sandbox is kept, and the parent waits: `stockade approve RUN release/publish`, or `deny`. Then the
// child goes on where it was, in the same sandbox: what it has built is not built again.
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
