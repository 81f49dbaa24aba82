// What the published package has and this implementation does not: it is refused by its name, where it is used.

export const refuse = (what) => {
  throw new Error(`${what} is not in the core library that is built in: install @directive-run/core, and pass its directory with --libraries`);
};

// A function that refuses to be called.
export const absent = (what) => () => refuse(what);

// What the package exports, and refuses to be called or read.
export const absentExport = (what) =>
  new Proxy(function () {}, {
    apply: () => refuse(what),
    construct: () => refuse(what),
    get: (target, key) => (typeof key === "symbol" || key === "prototype" ? target[key] : refuse(what)),
  });

// How definitions of a kind are changed while a system runs.
const DYNAMIC = ["register", "assign", "unregister", "call", "isDynamic", "listDynamic"];
export const dynamic = (kind) => Object.fromEntries(DYNAMIC.map((name) => [name, absent(`system.${kind}.${name}()`)]));

// Refuses what an object has beyond what is known.
export const only = (what, object, known) => {
  const other = Object.keys(object ?? {}).find((key) => !known.includes(key) && object[key] !== undefined);
  if (other !== undefined) refuse(`\`${other}\` of ${what}`);
};

// Keys that no fact, derivation or module may have.
const RESERVED = new Set(["__proto__", "constructor", "prototype"]);
export const isReserved = (key) => RESERVED.has(key);

// Whether a value has no reserved key at any depth.
export const isSafe = (value, depth = 0) => {
  if (typeof value !== "object" || value === null) return true;
  if (depth > 50) return false;
  return Object.keys(value).every((key) => !isReserved(key) && isSafe(value[key], depth + 1));
};
