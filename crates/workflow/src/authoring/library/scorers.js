// Scorers: evaluations of the outputs of tasks, which change nothing and are written to the console.
import { objectIn } from "stockade:answers";
import { checkKeys } from "stockade:keys";
import { accepted, authorSchema } from "stockade:schemas";
import { SmithersError } from "stockade:smithers";

const invalid = (message) => new SmithersError("INVALID_INPUT", message);

export const createScorer = (definition) => {
  const score = definition?.score ?? definition?.run;
  if (typeof score !== "function") throw invalid("createScorer() requires an object with `id` and `score`");
  return { ...definition, score };
};

const within = (score) => (Number.isFinite(score) ? Math.max(0, Math.min(1, score)) : 0);

export const schemaAdherenceScorer = () =>
  createScorer({
    id: "schema-adherence",
    name: "Schema adherence",
    description: "Whether the output has the schema of its task",
    score: async ({ output, outputSchema }) => {
      if (outputSchema === undefined) return { score: 1, reason: "the task has no schema" };
      try {
        await accepted(outputSchema, output, "INVALID_OUTPUT");
        return { score: 1, reason: "the output has the schema" };
      } catch (error) {
        return { score: 0, reason: error.message };
      }
    },
  });

export const latencyScorer = ({ targetMs, maxMs }) =>
  createScorer({
    id: "latency",
    name: "Latency",
    description: `1 up to ${targetMs} ms, 0 from ${maxMs} ms`,
    score: async ({ latencyMs }) => {
      if (latencyMs === undefined) return { score: 1, reason: "the time is not known" };
      return { score: within((maxMs - latencyMs) / (maxMs - targetMs)), reason: `${Math.round(latencyMs)} ms` };
    },
  });

// The score in the answer of a judge.
const verdict = (response) => {
  const answer = typeof response === "string" ? response : (response?.text ?? response?.output ?? response?.object ?? response);
  const found = typeof answer === "string" ? objectIn(answer) : answer;
  if (typeof found === "number") return { score: within(found) };
  if (typeof found?.score !== "number") return { score: 0, reason: "the answer of the judge has no `score`" };
  return { score: within(found.score), reason: found.reason };
};

export const llmJudge = ({ id, name, description, judge, instructions, promptTemplate }) => {
  const ask = typeof judge === "function" ? judge : judge?.generate;
  if (typeof ask !== "function") {
    throw invalid(`the judge of the scorer "${id}" must be a function, or an object with \`generate\`: an agent that is a command, or that calls a model, cannot judge without an engine on Node.js, which is planned`);
  }
  const score = async (scored) => verdict(await ask.call(judge, { prompt: `${instructions}\n\n${promptTemplate(scored)}` }));
  return createScorer({ id, name, description, score });
};

const FORM = 'Answer with JSON: { "score": a number from 0 to 1, "reason": "a short explanation" }';
const shown = (value) => JSON.stringify(value) ?? "none";
const judged = (id, description, instructions, parts) => (judge) =>
  llmJudge({
    id,
    name: id.replace(/^./, (first) => first.toUpperCase()),
    description,
    judge,
    instructions,
    promptTemplate: (scored) => [...parts.map((part) => `${part}:\n${shown(scored[part])}`), FORM].join("\n\n"),
  });

export const relevancyScorer = judged("relevancy", "Whether the output is about the input", "Evaluate how well the output addresses the input: 1 is completely, 0 is not at all.", ["input", "output"]);
export const faithfulnessScorer = judged("faithfulness", "Whether the context supports the output", "Evaluate how much of the output is supported by the context: 1 is all of it, 0 is nothing.", ["input", "context", "output"]);
export const toxicityScorer = judged("toxicity", "How harmful the output is", "Evaluate how toxic, harmful or offensive the output is: 0 is not at all, 1 is extremely.", ["output"]);

const isSampled = (sampling = { type: "all" }) => {
  checkKeys("`sampling`", sampling, ["type", "rate"]);
  if (sampling.type === "ratio") return Math.random() < sampling.rate;
  if (sampling.type !== "all" && sampling.type !== "none") throw invalid("the `type` of `sampling` must be all, ratio or none");
  return sampling.type === "all";
};

// Evaluates an output with the scorers of its task. `input` is what the task was asked.
export const scored = async ({ id, scorers, groundTruth, context, output: target, outputSchema }, output, input, startedMs) => {
  const latencyMs = startedMs === undefined ? undefined : Date.now() - startedMs;
  for (const [name, entry] of Object.entries(scorers ?? {})) {
    try {
      const { score } = entry?.scorer ?? entry ?? {};
      if (typeof score !== "function") throw invalid("it has no function `score`");
      if (!isSampled(entry.sampling)) continue;
      const schema = outputSchema ?? authorSchema(target);
      const result = await score({ input, output, outputs: output, taskId: id, groundTruth, context, latencyMs, outputSchema: schema });
      const value = typeof result === "object" && result !== null ? result.score : result;
      const reason = result?.reason === undefined ? "" : ` (${result.reason})`;
      console.log(`score ${name} of "${id}": ${value}${reason}`);
    } catch (error) {
      console.warn(`score ${name} of "${id}" failed: ${error?.message ?? error}`);
    }
  }
  return output;
};
