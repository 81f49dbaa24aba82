/** @jsxImportSource smithers-orchestrator */
// A sandbox that may reach one host and no other, by whatever way a program takes: what is refused is
// answered at once, and told by `stockade events --type network`. Without `allowHosts` every public
// host is reached; this machine, its networks and metadata services are not.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

export default smithers((ctx) => (
  <Workflow name="network">
    <Sandbox
      id="ask"
      allowNetwork
      egress={{ allowHosts: ["registry.example:443"] }}
      command={`getent hosts other.example >&2 && echo '{ "found": true }' || echo '{ "found": false }'`}
      output={outputs.output}
    />
  </Workflow>
));
