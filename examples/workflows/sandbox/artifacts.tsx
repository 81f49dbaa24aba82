/** @jsxImportSource smithers-orchestrator */
// A command that writes a whole result bundle: README.md with its outputs, files under artifacts/
// and a log. The request is at /request; its input is /request/input.json.
import { createSmithers, Sandbox } from "smithers-orchestrator";

const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });

const program = [
  "set -e",
  "mkdir -p /result/artifacts /result/logs",
  "wc -c < /request/input.json > /result/artifacts/length.txt",
  `echo '{"event": "counted"}' > /result/logs/stream.ndjson`,
  `printf '{"status": "finished", "runId": "by-hand", "outputs": {"bytes": %d}}' "$(cat /result/artifacts/length.txt)" > "$SMITHERS_SANDBOX_RESULT_PATH"`,
].join("\n");

export default smithers((ctx) => (
  <Workflow name="artifacts">
    <Sandbox id="count" command={program} input={{ word: "sandbox" }} output={outputs.output} />
  </Workflow>
));
