/** @jsxImportSource smithers-orchestrator */
// The environment of processes in the sandbox: `env`, then the variables of `egress`. The certificate
// is in the file that `NODE_EXTRA_CA_CERTS` names. None of these values is stored with the run.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

export default smithers((ctx) => (
  <Workflow name="egress">
    <Sandbox
      id="look"
      env={{ LEVEL: "info" }}
      egress={{
        env: { API_KEY: "sk-placeholder" },
        httpsProxy: "http://127.0.0.1:8080",
        noProxy: ["127.0.0.1", "localhost"],
        caCertPem: "-----BEGIN CERTIFICATE-----\n",
        secretBindings: { "sk-placeholder": "provider" },
      }}
      command={`printf '{"level": "%s", "key": "%s", "proxy": "%s", "except": "%s", "ca": "%s"}' "$LEVEL" "$API_KEY" "$HTTPS_PROXY" "$NO_PROXY" "$(head -c 10 "$NODE_EXTRA_CA_CERTS")"`}
      output={outputs.output}
    />
  </Workflow>
));
