/** @jsxImportSource smithers-orchestrator */
// A command whose output is a stream, and the splitter of the stream.
//   stockade up examples/fireflow/stream.tsx
import {
  createSmithers,
  SandboxCreateNode,
  SandboxExecuteStreamNode,
  SandboxKillNode,
  SandboxStreamSplitterNode,
} from "smithers-orchestrator";

const { Workflow, smithers } = createSmithers({});

export default smithers(() => (
  <Workflow name="stream">
    <SandboxCreateNode id="create" />
    <SandboxExecuteStreamNode
      id="start"
      from="create"
      command={["sh", "-c", "echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c; exit 3"]}
    />
    <SandboxStreamSplitterNode id="split" from="start" />
    <SandboxKillNode id="kill" from="split" />
  </Workflow>
));
