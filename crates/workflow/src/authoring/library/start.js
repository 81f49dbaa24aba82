// What the host calls. Each function takes a text of JSON and answers with one, in a promise.
import "stockade:environment";
import { now, tell } from "stockade:host";
import * as entry from "stockade:entry";
import { Run } from "stockade:context";
import { placeOf, settle } from "stockade:places";
import { functionOf, given, renderingOf, schemaNumber, schemasFrom, useZods } from "stockade:render";
import { answered as answeredAsk, callOf, cleanUp as cleanUpAfter, provide as provideFor, resolve } from "stockade:sandbox";
import { Element } from "stockade:elements";
import { SmithersError, isWorkflow, isZod } from "stockade:smithers";
import * as zods from "stockade:zods";

useZods(zods);
settle();

const runs = new Map();

const listening = (take) => (text) => {
  const answer = (async () => JSON.stringify((await take(JSON.parse(text))) ?? null))();
  // Whoever called looks at it later.
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

// The file's own workflow, one that a rendering of another run has, or one that a provider gave.
const definitionOf = ({ within, workflow, call }) => {
  if (within === undefined) return entry.default;
  return call === undefined ? functionOf(runOf(within), workflow) : callOf(call).workflows[workflow];
};

// What a file exports that exports no workflow.
const exported = () => {
  const named = Object.entries(entry).find(([name, value]) => name !== "default" && isWorkflow(value))?.[0];
  if (named !== undefined) return `it exports \`${named}\`, but not as its default`;
  if (entry.default === undefined) return "it has no default export";
  return entry.default instanceof Element ? "its default export is an element, which smithers() has to be given" : "its default export is something else";
};

// A workflow is begun.
export const open = listening(({ run, input, ...where }) => {
  const definition = definitionOf(where);
  if (!isWorkflow(definition)) {
    throw new SmithersError("INVALID_INPUT", `the file must export a workflow, as in \`export default smithers((ctx) => …)\`: ${exported()}`);
  }
  runs.set(run, new Run(run, definition, given(definition, input)));
  const about = described(definition);
  return { ...about, schemas: schemasFrom(0) };
});

// `number` names the rendering that the host keeps; null for one that it does not. Of that which has the
// name `before` it needs no more than the differences.
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

// Where a workflow is from, a run's own or the one of an element: the place where a module made it,
// and the element.
export const origin = listening(({ run: id, node, workflow: number }) => {
  const run = runOf(id);
  if (node === null && number === null) return { place: placeOf(run.workflow) ?? null, node: null };
  const found = [...run.nodes].find(([known, element]) => known === number || element === node);
  if (found === undefined) throw new SmithersError("INVALID_INPUT", `there is no workflow of "${node}"`);
  return { place: placeOf(functionOf(run, found[0])) ?? null, node: found[1] };
});

// What is given to a function: the values of tasks by names, or nothing.
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

// How often a function is heard, however often it tells that it is alive.
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

export const ask = listening(({ run: id, call, changes, agent, prompt, function: number, inputs }) => {
  const run = runOf(id);
  run.take(changes);
  return running(call, async (signal) => {
    const text = prompt ?? (await functionOf(run, number)(inputsOf(run, inputs)));
    return functionOf(run, agent)(text, signal, beating(call));
  });
});

// What an agent wrote that is a command.
export const read = listening(({ run: id, call, changes, function: number, text }) => {
  const run = runOf(id);
  run.take(changes);
  return running(call, () => functionOf(run, number)(text));
});

export const provider = listening(({ run: id, changes, sandbox }) => {
  const run = runOf(id);
  run.take(changes);
  return resolve(run.sandboxes.get(sandbox));
});

// A provider works. What it says meanwhile goes its own way.
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

export const abort = listening(({ call }) => aborts.get(call)?.abort());

export const close = listening(({ run }) => void runs.delete(run));
