/** @jsxImportSource smithers-orchestrator */
// Tasks that are done by agents. These agents are functions in the file, which return JSON.
import { createSmithers } from "smithers-orchestrator";

const { Workflow, Task, smithers, outputs } = createSmithers({
  plan: { type: "object", required: ["steps"], properties: { steps: { type: "array" } } },
  output: { type: "object", required: ["summary"], properties: { summary: { type: "string" } } },
});

// A prompt is the text of the task, and then what the answer must be.
const asked = (prompt) => prompt.split("\n\n")[0];

const planner = {
  async generate({ prompt }) {
    const topic = asked(prompt).replace("Plan: ", "");
    return { text: "```json\n" + JSON.stringify({ steps: [`read about ${topic}`, "write"] }) + "\n```" };
  },
};

const writer = async ({ prompt }) => JSON.stringify({ summary: asked(prompt).toUpperCase() });

export default smithers((ctx) => (
  <Workflow name="agent">
    <Task id="plan" output={outputs.plan} agent={planner}>
      Plan: {ctx.input.topic ?? "jails"}
    </Task>
    <Task id="write" output={outputs.output} agent={writer} deps={{ plan: outputs.plan }}>
      {({ plan }) => plan.steps.join(", then ")}
    </Task>
  </Workflow>
));
