// Identifies workflows in every realm of the same program: those that are created while
// modules are evaluated are numbered for each module, in the order of their creation.

const FRAME = /^\s*at (?:.*? \()?(.+?):\d+(?::\d+)?\)?$/;

const made = new Map();
const places = new WeakMap();
let evaluates = true;

// The module that is being evaluated: the outermost file on the stack.
const evaluated = () => {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = Infinity;
  const frames = new Error().stack.split("\n");
  Error.stackTraceLimit = stackTraceLimit;
  const files = frames.map((frame) => FRAME.exec(frame)?.[1]);
  return files.filter((file) => file !== undefined && !file.startsWith("stockade:")).at(-1);
};

export const place = (definition) => {
  const module = evaluates ? evaluated() : undefined;
  if (module === undefined) return;
  if (!made.has(module)) made.set(module, []);
  places.set(definition, { module, number: made.get(module).length });
  made.get(module).push(definition);
};

// All modules are evaluated: workflows that are created from now on have no number.
export const settle = () => {
  evaluates = false;
};

export const placeOf = (definition) => places.get(definition);
export const placedAt = (module, number) => made.get(module)?.[number];
