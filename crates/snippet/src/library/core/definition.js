// Definitions of modules: what is checked and warned of when one is created, and what is refused.
import { only, refuse } from "./refusal.js";

// What a module may define.
const DEFINITION = ["schema", "init", "derive", "derivations", "events", "effects", "constraints", "resolvers", "hooks", "meta", "history", "crossModuleDeps", "id", "name"];
// What the parts of a definition may have.
const PARTS = {
  effects: ["run", "deps", "meta"],
  constraints: ["when", "require", "priority", "async", "deps", "timeout", "after", "meta"],
  resolvers: ["requirement", "resolve", "resolveBatch", "resolveBatchWithResults", "batch", "key", "retry", "timeout", "meta"],
};
const RETRY = ["attempts", "backoff", "initialDelay", "maxDelay", "shouldRetry"];
const BATCH = ["enabled", "windowMs", "maxSize", "timeoutMs"];
const HOOKS = ["onInit", "onStart", "onStop", "onError", "onResolverError"];
// Parts that are functions here, and could be data in the package.
const FUNCTIONS = { effects: "run", constraints: "when" };

const checkParts = (definition) => {
  for (const [kind, known] of Object.entries(PARTS)) {
    for (const [name, part] of Object.entries(definition[kind] ?? {})) {
      const what = `the ${kind.slice(0, -1)} "${name}"`;
      only(what, part, known);
      only(`\`retry\` of ${what}`, part.retry, RETRY);
      only(`\`batch\` of ${what}`, part.batch, BATCH);
      const action = FUNCTIONS[kind];
      if (action && typeof part?.[action] !== "function") refuse(`\`${action}\` of ${what} that is no function`);
    }
  }
};

// A function, or an object with a function and `meta`.
const functionsOf = (kind, member, parts) =>
  Object.fromEntries(
    Object.entries(parts ?? {}).map(([name, part]) => {
      const action = typeof part === "function" ? part : part?.[member];
      if (typeof action !== "function") refuse(`"${name}" in \`${kind}\` that is no function`);
      return [name, action];
    }),
  );

const warnOfDifferences = (declared, defined, undeclared, missing) => {
  for (const key of Object.keys(defined)) if (!Object.hasOwn(declared, key)) console.warn(`[Directive] ${undeclared(key)}`);
  for (const key of Object.keys(declared)) if (!Object.hasOwn(defined, key)) console.warn(`[Directive] ${missing(key)}`);
};

const warnOf = (id, { schema, derive, events, resolvers }) => {
  if (!id || typeof id !== "string") console.warn("[Directive] the id of a module must be a text that is not empty");
  else if (!/^[a-z][a-z0-9-]*$/i.test(id)) console.warn(`[Directive] the module id "${id}" should be letters, digits and hyphens`);
  if (!schema) console.warn("[Directive] Module schema is required");
  else if (!schema.facts) console.warn("[Directive] Module schema.facts is required");
  if (schema?.derivations) warnOfDifferences(
    schema.derivations, derive,
    (key) => `the derivation "${key}" is not in schema.derivations`,
    (key) => `schema.derivations has "${key}", which is not in \`derive\``,
  );
  if (schema?.events) warnOfDifferences(
    schema.events, events,
    (key) => `the event "${key}" is not in schema.events`,
    (key) => `schema.events has "${key}", which is not in \`events\``,
  );
  if (!schema?.requirements) return;
  for (const [name, { requirement }] of Object.entries(resolvers ?? {})) {
    if (typeof requirement === "string" && !Object.hasOwn(schema.requirements, requirement)) {
      console.warn(`[Directive] the resolver "${name}" is for "${requirement}", which is not in schema.requirements`);
    }
  }
};

// Names by which functions reach other facts than their own.
const PIVOTS = ["self", "prev", "current"];
const checkFacts = (id, { schema, crossModuleDeps }) => {
  const taken = [...PIVOTS, ...Object.keys(crossModuleDeps ?? {})];
  const key = Object.keys(schema?.facts ?? {}).find((fact) => taken.includes(fact));
  if (key !== undefined) throw new Error(`[Directive] module "${id}": no fact may be called "${key}", which is a name for other facts`);
};

export const createModule = (id, definition) => {
  const other = Object.keys(definition).find((key) => !DEFINITION.includes(key) && definition[key] !== undefined);
  if (other !== undefined) refuse(`\`${other}\` of a module`);
  checkParts(definition);
  checkFacts(id, definition);
  only("`hooks` of a module", definition.hooks, HOOKS);
  const derive = functionsOf("derive", "compute", definition.derive ?? definition.derivations);
  const events = functionsOf("events", "handler", definition.events);
  warnOf(id, { ...definition, derive, events });
  const { schema, init, effects, constraints, resolvers, hooks, meta, history, crossModuleDeps } = definition;
  return { id, schema, init, derive, events, effects, constraints, resolvers, hooks, meta, history, crossModuleDeps };
};

export const createModuleFactory = (definition) => (id) => createModule(id, definition);
