/** @jsxImportSource smithers-orchestrator */
// A sandbox that may connect to one host only, whatever method a program uses. Other connections are
// denied at once, and `stockade events --type network` lists them. Without `allowHosts`, every public
// host is allowed, but not this machine, its networks and metadata services.
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
