/** @jsxImportSource smithers-orchestrator */
// The child workflow is a module of its own. The sandbox receives only this module and its imports.
import { createSmithers, Sandbox } from "smithers-orchestrator";
import greet from "./children/greet";

const { Workflow, smithers, outputs } = createSmithers({
  output: { type: "object", required: ["text"], properties: { text: { type: "string" } } },
});

export default smithers((ctx) => (
  <Workflow name="imported">
    <Sandbox id="greet" workflow={greet} input={{ name: ctx.input.name ?? "world" }} output={outputs.output} />
  </Workflow>
));
