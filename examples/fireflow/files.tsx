/** @jsxImportSource smithers-orchestrator */
// Files go into a container and come back. `directory` and `results` are absolute paths of the server's
// machine; with `workspaceId` in their places they are files of a workspace.
//   stockade up examples/fireflow/files.tsx --input '{"directory": "/srv/in", "results": "/srv/out"}'
import {
  createSmithers,
  SandboxCreateNode,
  SandboxExecuteNode,
  SandboxKillNode,
  SandboxSyncFromVFSNode,
  SandboxSyncToVFSNode,
} from "smithers-orchestrator";

const { Workflow, smithers } = createSmithers({
  input: {
    type: "object",
    required: ["directory", "results"],
    properties: { directory: { type: "string" }, results: { type: "string" } },
  },
});

export default smithers((ctx) => (
  <Workflow name="files">
    <SandboxCreateNode id="create" />
    <SandboxSyncFromVFSNode
      id="send"
      from="create"
      directory={ctx.input.directory}
      path="/tmp/work"
      exclude={["*.log"]}
      keepEmptyDirs
    />
    <SandboxExecuteNode
      id="work"
      from="send"
      workingDirectory="/tmp/work"
      command="mkdir results && ls > results/names.txt"
    />
    <SandboxSyncToVFSNode
      id="receive"
      from="work"
      path="/tmp/work/results"
      directory={ctx.input.results}
      mirror
    />
    <SandboxKillNode id="kill" from="receive" />
  </Workflow>
));
