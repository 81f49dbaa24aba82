// Systems with one module, and with several by their names: how keys are written, and what is set at the start.
import { allDerivations, allEvents, allFacts, checkNames, flat, inOrder, internalKey, SEPARATOR } from "./namespace.js";
import { isReserved } from "./refusal.js";

const setFacts = (facts, given, keyOf) => {
  for (const [key, value] of Object.entries(given ?? {})) if (!isReserved(key)) facts[keyOf(key)] = value;
};

export const single = (options) => {
  const { module } = options;
  if (Object.keys(module.crossModuleDeps ?? {}).length > 0) console.warn("[Directive] crossModuleDeps means nothing in a system with one module: use createSystem({ modules })");
  return {
    mode: "single",
    modules: [{ ...module, schema: module.schema.facts }],
    keyOf: (key) => key,
    reported: (engine) => [{ space: false, name: module.id, derivations: Object.keys(engine.definitions.derive) }],
    setAll: (facts, given) => setFacts(facts, given, (key) => key),
    views: (engine, derive, events) => ({ facts: engine.facts, derive, events }),
    keysOf: () => [],
    tick: (engine) => (Object.hasOwn(engine.events, "tick") ? "tick" : undefined),
  };
};
export const several = (options) => {
  const { modules } = options;
  checkNames(modules);
  const names = Object.keys(modules);
  return {
    mode: "namespaced",
    modules: inOrder(modules, options.initOrder).map((name) => flat(name, modules[name])),
    keyOf: internalKey,
    reported: () => names.map((name) => ({ space: true, name, derivations: Object.keys(modules[name].derive ?? {}) })),
    setAll: (facts, given) => {
      for (const [name, own] of Object.entries(given ?? {})) {
        if (names.includes(name)) setFacts(facts, own, (key) => `${name}${SEPARATOR}${key}`);
        else console.warn(`[Directive] initialFacts/hydrate has "${name}", which is no module; there are ${names.join(", ")}`);
      }
    },
    views: (engine, derive, events) => ({ facts: allFacts(engine.facts, names), derive: allDerivations(derive, names), events: allEvents(events, names) }),
    keysOf: (name) => (names.includes(name) ? [...Object.keys(modules[name].schema.facts), ...Object.keys(modules[name].schema.derivations ?? {})].map((key) => `${name}${SEPARATOR}${key}`) : undefined),
    tick: (engine) => Object.keys(engine.events).find((key) => key.endsWith(`${SEPARATOR}tick`)),
  };
};

