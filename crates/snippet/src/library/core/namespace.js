// Several modules in one system: the keys of each are written `module::key` in the engine, and its functions get
// objects with its own keys.
import { warnUnlessPlain } from "./facts.js";
import { isReserved } from "./refusal.js";

export const SEPARATOR = "::";
const prefixed = (name, key) => `${name}${SEPARATOR}${key}`;

// The key in the engine of "module.key".
export const internalKey = (key) => (key.includes(".") ? key.split(".").join(SEPARATOR) : key);

// An object whose keys are read and set by functions.
const closed = ({ get, set, has, keys, remove }) => {
  const isKnown = (key) => typeof key === "string" && !isReserved(key) && has(key);
  return new Proxy({}, {
    get: (target, key) => (typeof key === "symbol" || isReserved(key) ? undefined : get(key)),
    set: (target, key, value) => typeof key !== "symbol" && !isReserved(key) && set !== undefined && set(key, value),
    has: (target, key) => isKnown(key),
    deleteProperty: (target, key) => typeof key !== "symbol" && !isReserved(key) && remove !== undefined && remove(key),
    ownKeys: () => keys(),
    getOwnPropertyDescriptor: (target, key) => (isKnown(key) ? { configurable: true, enumerable: true } : undefined),
    defineProperty: () => false,
    getPrototypeOf: () => null,
    setPrototypeOf: () => false,
  });
};

const ownKeys = (object, name) => {
  const start = prefixed(name, "");
  return Object.keys(object).filter((key) => key.startsWith(start)).map((key) => key.slice(start.length));
};

// The facts of one module.
const factsOf = (facts, name) =>
  closed({
    get: (key) => (key === "$store" || key === "$snapshot" ? facts[key] : facts[prefixed(name, key)]),
    set: (key, value) => {
      warnUnlessPlain(`${name}.${key}`, value);
      facts[prefixed(name, key)] = value;
      return true;
    },
    has: (key) => prefixed(name, key) in facts,
    remove: (key) => delete facts[prefixed(name, key)],
    keys: () => ownKeys(facts, name),
  });

// The derivations of one module.
const derivationsOf = (derived, name) =>
  closed({
    get: (key) => derived[prefixed(name, key)],
    has: (key) => prefixed(name, key) in derived,
    keys: () => ownKeys(derived, name),
  });

// What each module has, by its name.
const byName = (names, part) => {
  const parts = new Map();
  return closed({
    get: (name) => {
      if (!names.includes(name)) return undefined;
      if (!parts.has(name)) parts.set(name, part(name));
      return parts.get(name);
    },
    has: (name) => names.includes(name),
    keys: () => names,
  });
};
export const allFacts = (facts, names) => byName(names, (name) => factsOf(facts, name));
export const allDerivations = (derived, names) => byName(names, (name) => derivationsOf(derived, name));
export const allEvents = (events, names) =>
  byName(names, (name) =>
    closed({
      get: (event) => (payload) => events[prefixed(name, event)](payload),
      has: (event) => prefixed(name, event) in events,
      keys: () => ownKeys(events, name),
    }),
  );

// The facts that the functions of a module see: its own, or with dependencies on other modules, its own as
// `self` and those of the others by name.
const scope = (name, { crossModuleDeps }) => {
  const others = Object.keys(crossModuleDeps ?? {});
  const known = new WeakMap();
  return (facts) => {
    if (!known.has(facts)) {
      const own = factsOf(facts, name);
      const all = byName(["self", ...others], (one) => (one === "self" ? own : factsOf(facts, one)));
      const warning = new Proxy(all, {
        get: (target, key) => {
          if (typeof key === "string" && !isReserved(key) && !(key in target)) {
            console.warn(`[Directive] the module "${name}" reads "${key}", which is not in its crossModuleDeps: its own facts are in \`facts.self\``);
          }
          return target[key];
        },
      });
      known.set(facts, others.length === 0 ? own : warning);
    }
    return known.get(facts);
  };
};

// The facts that the resolvers of a module see. Versions of the package differ where there are dependencies: its own
// facts are there by themselves or as `self`; here they are both.
const resolverScope = (name, { crossModuleDeps }) => {
  const others = Object.keys(crossModuleDeps ?? {});
  return (facts) => {
    const own = factsOf(facts, name);
    if (others.length === 0) return own;
    return new Proxy(own, {
      get: (target, key) => {
        if (key === "self") return own;
        return others.includes(key) && !(key in own) ? factsOf(facts, key) : own[key];
      },
    });
  };
};

const mapKeys = (name, parts, change) => Object.fromEntries(Object.entries(parts ?? {}).map(([key, part]) => [prefixed(name, key), change(part)]));

// The definition of a module as the engine takes it.
export const flat = (name, module) => {
  const facts = scope(name, module);
  const scopes = new WeakMap();
  const derived = (all) => {
    if (!scopes.has(all)) scopes.set(all, derivationsOf(all, name));
    return scopes.get(all);
  };
  const keyOf = (key) => (key.includes(SEPARATOR) ? key : prefixed(name, key));
  // A fact of a predicate can be of another module.
  const factKey = (key) => {
    const [first, ...rest] = key.split(".");
    if (rest.length === 0) return prefixed(name, key);
    return prefixed(first === "self" ? name : first, rest.join("."));
  };
  const { init, hooks, meta } = module;
  const resolverFacts = resolverScope(name, module);
  const snapshotOf = (all) => ({ get: (key) => all.get(prefixed(name, key)), has: (key) => all.has(prefixed(name, key)) });
  const context = (given) => ({ ...given, facts: resolverFacts(given.facts), snapshot: () => snapshotOf(given.snapshot()) });
  const scoped = (action) => action && ((required, given) => action(required, context(given)));
  return {
    id: module.id,
    hooks,
    meta,
    schema: mapKeys(name, module.schema.facts, (type) => type),
    init: init && ((all) => init(factsOf(all, name))),
    derive: mapKeys(name, module.derive, (compute) => (all, values) => compute(facts(all), derived(values))),
    events: mapKeys(name, module.events, (handler) => (all, event) => handler(factsOf(all, name), event)),
    effects: mapKeys(name, module.effects, (effect) => ({
      ...effect,
      deps: effect.deps?.map(factKey),
      holds: effect.holds && ((all, before) => effect.holds(facts(all), before ? facts(before) : undefined)),
      run: (all, before, values) => effect.run(facts(all), before ? facts(before) : undefined, derived(values)),
    })),
    constraints: mapKeys(name, module.constraints, (constraint) => ({
      ...constraint,
      deps: constraint.deps?.map((key) => prefixed(name, key)),
      after: constraint.after?.map(keyOf),
      explain: constraint.explain && ((all) => constraint.explain(facts(all))),
      when: (all, values) => constraint.when(facts(all), derived(values)),
      require: typeof constraint.require === "function" ? (all, values) => constraint.require(facts(all), derived(values)) : constraint.require,
    })),
    resolvers: mapKeys(name, module.resolvers, (resolver) => ({
      ...resolver,
      resolve: scoped(resolver.resolve),
      resolveBatch: scoped(resolver.resolveBatch),
      resolveBatchWithResults: scoped(resolver.resolveBatchWithResults),
    })),
  };
};

// The names of modules in an order in which each comes after those that it depends on.
export const inOrder = (modules, order = "auto") => {
  const names = Object.keys(modules);
  if (Array.isArray(order)) {
    const missing = names.filter((name) => !order.includes(name));
    if (missing.length > 0) throw new Error(`[Directive] initOrder is missing modules: ${missing.join(", ")}`);
    return order.filter((name) => names.includes(name));
  }
  if (order === "declaration") return names;
  const done = new Set();
  const path = [];
  const visit = (name) => {
    if (done.has(name)) return;
    if (path.includes(name)) throw new Error(`[Directive] Circular dependency detected: ${[...path.slice(path.indexOf(name)), name].join(" → ")}`);
    path.push(name);
    for (const other of Object.keys(modules[name].crossModuleDeps ?? {})) if (names.includes(other)) visit(other);
    path.pop();
    done.add(name);
  };
  names.forEach(visit);
  return [...done];
};

// Refuses names that could not be distinguished, and warns of dependencies on modules that are not there.
export const checkNames = (modules) => {
  const names = Object.keys(modules);
  for (const [name, module] of Object.entries(modules)) {
    for (const key of [name, ...Object.keys(module.schema.facts)]) {
      if (key.includes(SEPARATOR)) throw new Error(`[Directive] the name "${key}" has "${SEPARATOR}", which parts the names of modules and keys`);
    }
    for (const other of Object.keys(module.crossModuleDeps ?? {})) {
      if (other === name) console.warn(`[Directive] the module "${name}" has itself in crossModuleDeps: its own facts are in \`facts.self\``);
      else if (!names.includes(other)) console.warn(`[Directive] the module "${name}" depends on "${other}", which is not in the system; there are ${names.join(", ")}`);
    }
  }
};
