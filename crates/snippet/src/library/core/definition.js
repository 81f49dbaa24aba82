// Definitions of modules: what is checked and warned of when one is created, and what is refused.
import { applyPatch, evaluatePredicate, evaluatePredicateExplained, evaluateTemplate, extractDeps, hasOperator, isPredicate, isTemplate } from "./predicate.js";
import { only, refuse } from "./refusal.js";

// What a module may define.
const DEFINITION = ["schema", "init", "derive", "derivations", "events", "effects", "constraints", "resolvers", "hooks", "meta", "history", "crossModuleDeps", "id", "name"];
// What the parts of a definition may have.
const PARTS = {
  effects: ["run", "deps", "on", "meta"],
  constraints: ["when", "require", "priority", "async", "deps", "timeout", "after", "meta"],
  resolvers: ["requirement", "resolve", "resolveBatch", "resolveBatchWithResults", "batch", "key", "retry", "timeout", "meta"],
};
const RETRY = ["attempts", "backoff", "initialDelay", "maxDelay", "shouldRetry"];
const BATCH = ["enabled", "windowMs", "maxSize", "timeoutMs"];
const HOOKS = ["onInit", "onStart", "onStop", "onError", "onResolverError"];
const checkParts = (definition) => {
  for (const [kind, known] of Object.entries(PARTS)) {
    for (const [name, part] of Object.entries(definition[kind] ?? {})) {
      const what = `the ${kind.slice(0, -1)} "${name}"`;
      only(what, part, known);
      only(`\`retry\` of ${what}`, part.retry, RETRY);
      only(`\`batch\` of ${what}`, part.batch, BATCH);
    }
  }
};

const isData = (value) => typeof value === "object" && value !== null && isPredicate(value);
const mapParts = (parts, change) => parts && Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, change(part, name)]));

// A derivation: a function, or an object with one, a predicate or a template.
const derivation = (part, name) => {
  const compute = typeof part === "function" ? part : part?.compute;
  if (typeof compute === "function") return compute;
  if (isTemplate(compute)) return (facts) => evaluateTemplate(compute, facts);
  if (isData(compute)) return (facts) => evaluatePredicate(compute, facts);
  return refuse(`"${name}" in \`derive\` that is neither a function nor data`);
};
// The handler of an event: a function, or an object with one or with a patch.
const handler = (part, name) => {
  const handle = typeof part === "function" ? part : part?.handler;
  if (typeof handle === "function") return handle;
  const patch = part?.patch;
  if (typeof patch?.$set === "object" && patch.$set !== null) return (facts, event) => applyPatch(patch, facts, event);
  return refuse(`"${name}" in \`events\` that is neither a function nor a patch`);
};
// A condition that is data reads facts as a function does.
const constraint = (part, name) => {
  const { when } = part;
  if (typeof when === "function") return part;
  if (!isData(when)) refuse(`\`when\` of the constraint "${name}" that is neither a function nor data`);
  if (hasOperator(when, "$changed")) throw new Error(`[Directive] constraint "${name}": $changed is for effects alone`);
  if (part.async || part.deps) console.warn(`[Directive] the constraint "${name}" has data as \`when\`: \`async\` and \`deps\` mean nothing there`);
  return {
    ...part,
    async: undefined,
    deps: undefined,
    spec: when,
    when: (facts) => evaluatePredicate(when, facts),
    explain: (facts) => evaluatePredicateExplained(when, facts),
  };
};
// An effect with a condition runs when a fact of it changes and it holds.
const effect = (part, name) => {
  if (part.on === undefined || part.deps) return part;
  if (!isData(part.on)) throw new Error(`[Directive] effect "${name}": \`on\` must be a predicate; got ${typeof part.on}`);
  return { ...part, deps: [...extractDeps(part.on)], holds: (facts, before) => evaluatePredicate(part.on, facts, before) };
};

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
  const derive = mapParts(definition.derive ?? definition.derivations ?? {}, derivation);
  const events = mapParts(definition.events ?? {}, handler);
  const effects = mapParts(definition.effects, effect);
  const constraints = mapParts(definition.constraints, constraint);
  warnOf(id, { ...definition, derive, events });
  const { schema, init, resolvers, hooks, meta, history, crossModuleDeps } = definition;
  return { id, schema, init, derive, events, effects, constraints, resolvers, hooks, meta, history, crossModuleDeps };
};

export const createModuleFactory = (definition) => (id) => createModule(id, definition);
