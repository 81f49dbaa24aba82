// The functions that the host calls. Each of them takes JSON text and returns a promise of JSON text.
import "stockade:environment";
import { now, tell } from "stockade:host";
import * as entry from "stockade:entry";
import { Run } from "stockade:context";
import { placeOf, settle } from "stockade:places";
import { connection, modelAnswered as modelHasAnswered } from "stockade:models";
import { functionOf, renderingOf } from "stockade:render";
import { answered as answeredAsk, callOf, cleanUp as cleanUpAfter, provide as provideFor, resolve } from "stockade:sandbox";
import { given, schemaNumber, schemasFrom, useZods } from "stockade:schemas";
import { Element } from "stockade:elements";
import { SmithersError, isWorkflow, isZod } from "stockade:smithers";
import * as zods from "stockade:zods";

useZods(zods);
settle();

const runs = new Map();

const listening = (take) => (text) => {
  const answer = (async () => JSON.stringify((await take(JSON.parse(text))) ?? null))();
  // The caller handles a rejection later.
  answer.catch(() => {});
  return answer;
};

const runOf = (id) => {
  const run = runs.get(id);
  if (run === undefined) throw new SmithersError("INVALID_INPUT", `there is no run ${id} here`);
  return run;
};

const described = (workflow) => {
  const schema = workflow.schemas?.input;
  const output = workflow.opts?.output;
  let table;
  if (output !== undefined) table = Object.entries(workflow.schemas ?? {}).find(([, known]) => known === output)?.[0] ?? output;
  return {
    input: schema === undefined || isZod(schema) ? null : schemaNumber(schema),
    output: typeof table === "string" ? table : null,
  };
};

// The file's own workflow, one in a rendering of another run, or one that a provider requested.
const definitionOf = ({ within, workflow, call }) => {
  if (within === undefined) return entry.default;
  return call === undefined ? functionOf(runOf(within), workflow) : callOf(call).workflows[workflow];
};

// A description of the exports of a file that does not export a workflow.
const exported = () => {
  const named = Object.entries(entry).find(([name, value]) => name !== "default" && isWorkflow(value))?.[0];
  if (named !== undefined) return `it exports \`${named}\`, but not as its default export`;
  if (entry.default === undefined) return "it has no default export";
  return entry.default instanceof Element ? "its default export is an element: pass a function that returns it to smithers()" : "its default export is not a workflow";
};

// Opens a run of a workflow.
export const open = listening(({ run, input, ...where }) => {
  const definition = definitionOf(where);
  if (!isWorkflow(definition)) {
    throw new SmithersError("INVALID_INPUT", `the file must export a workflow, as in \`export default smithers((ctx) => …)\`: ${exported()}`);
  }
  runs.set(run, new Run(run, definition, given(definition, input)));
  const about = described(definition);
  return { ...about, schemas: schemasFrom(0) };
});

// `number` identifies the rendering if the host stores it, or else is null. If the
// last rendering has the number `before`, only the differences to it are needed.
const rendered = ({ run: id, changes, schemas, before, number }) => {
  const run = runOf(id);
  run.take(changes);
  const { rendering, read } = renderingOf(run);
  const tree = number === null ? null : rendering.text(before !== null && before === run.rendering);
  rendering.keep(run);
  run.rendering = number;
  return `{"tree":${tree},"read":${JSON.stringify(read)},"schemas":${JSON.stringify(schemasFrom(schemas))}}`;
};

export const render = (text) => {
  const answer = (async () => rendered(JSON.parse(text)))();
  answer.catch(() => {});
  return answer;
};

// Where a workflow of a run, or of one of its elements, was created: the position
// at which a module created it, and the element.
export const origin = listening(({ run: id, node, workflow: number }) => {
  const run = runOf(id);
  if (node === null && number === null) return { place: placeOf(run.workflow) ?? null, node: null };
  const found = [...run.nodes].find(([known, element]) => known === number || element === node);
  if (found === undefined) throw new SmithersError("INVALID_INPUT", `the element "${node}" has no workflow`);
  return { place: placeOf(functionOf(run, found[0])) ?? null, node: found[1] };
});

// The argument of a function: the values of tasks by name, or undefined.
const inputsOf = (run, inputs) =>
  inputs === null || inputs === undefined
    ? undefined
    : Object.fromEntries(Object.entries(inputs).map(([name, node]) => [name, run.valueOf(node)]));

const aborts = new Map();

const running = async (id, call) => {
  const controller = new AbortController();
  aborts.set(id, controller);
  try {
    return await call(controller.signal);
  } finally {
    aborts.delete(id);
  }
};

// The minimum interval between the heartbeats of a function that are sent.
const BEAT_PAUSE_MS = 10;

const beating = (call) => {
  let last = -Infinity;
  return () => {
    const at = now();
    if (!aborts.has(call) || (at >= last && at - last < BEAT_PAUSE_MS)) return;
    last = at;
    tell(call, "heartbeat", "null");
  };
};

export const compute = listening(({ run: id, call, changes, function: number, inputs }) => {
  const run = runOf(id);
  run.take(changes);
  const given = inputsOf(run, inputs);
  return running(call, (signal) => functionOf(run, number)(given, { signal, heartbeat: beating(call) }));
});

export const ask = listening(({ run: id, call, changes, agent, prompt, demand, function: number, inputs }) => {
  const run = runOf(id);
  run.take(changes);
  return running(call, async (signal) => {
    const text = prompt ?? (await functionOf(run, number)(inputsOf(run, inputs)));
    const spent = (usage) => tell(call, "usage", JSON.stringify(usage));
    return functionOf(run, agent)(text, demand ?? "", signal, beating(call), spent, connection(call, signal));
  });
});

// Reads the answer of an agent that is a command, or makes the row of a raw answer.
export const read = listening(({ run: id, call, changes, function: number, value }) => {
  const run = runOf(id);
  run.take(changes);
  return running(call, () => functionOf(run, number)(value));
});

export const provider = listening(({ run: id, changes, sandbox }) => {
  const run = runOf(id);
  run.take(changes);
  return resolve(run.sandboxes.get(sandbox));
});

// Calls a provider. Its messages are sent separately while it runs.
export const provide = listening(({ run: id, call, changes, sandbox, request }) => {
  const run = runOf(id);
  run.take(changes);
  return running(call, (signal) => provideFor(call, run.workflow, run.sandboxes.get(sandbox), request, signal));
});

export const cleanUp = listening(({ run: id, changes, sandbox, request }) => {
  const run = runOf(id);
  run.take(changes);
  return cleanUpAfter(run.workflow, run.sandboxes.get(sandbox), request);
});

export const answered = listening(answeredAsk);

export const modelAnswered = listening(modelHasAnswered);

export const abort = listening(({ call }) => aborts.get(call)?.abort());

export const close = listening(({ run }) => void runs.delete(run));
