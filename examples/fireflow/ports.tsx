/** @jsxImportSource smithers-orchestrator */
// A server in a container, and the nodes that talk to it. `directory` has `port_app.py`. No port is
// named below: the endpoint configuration goes along the chain.
//   stockade up examples/fireflow/ports.tsx --input '{"directory": "/srv/app"}'
import {
  createSmithers,
  SandboxCreateNode,
  SandboxExecuteNode,
  SandboxExecuteStreamNode,
  SandboxHttpRequestNode,
  SandboxHttpStreamNode,
  SandboxKillNode,
  SandboxSyncFromVFSNode,
  SandboxWebSocketNode,
} from "smithers-orchestrator";

const { Workflow, smithers } = createSmithers({
  input: {
    type: "object",
    required: ["directory"],
    properties: { directory: { type: "string" } },
  },
});

const ready = `until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 3000))' 2>/dev/null; do sleep 0.1; done`;

export default smithers((ctx) => (
  <Workflow name="ports">
    <SandboxCreateNode id="create" proxyConfig={{ defaultPort: 3000, exposedPorts: [3000] }} />
    <SandboxSyncFromVFSNode id="app" from="create" directory={ctx.input.directory} path="/tmp/app" />
    <SandboxExecuteStreamNode id="serve" from="app" command={["python3", "/tmp/app/port_app.py", "3000"]} />
    <SandboxExecuteNode id="ready" from="serve" command={ready} timeoutSeconds={60} />
    <SandboxHttpRequestNode id="page" from="ready" path="/html" markdown />
    <SandboxHttpStreamNode id="chunks" from="page" path="/html" />
    <SandboxWebSocketNode id="socket" from="chunks" path="/socket" messages={["one", "two"]} receive={2} />
    <SandboxKillNode id="kill" from="socket" />
  </Workflow>
));
