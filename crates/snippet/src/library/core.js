// A small implementation of the part of @directive-run/core that snippets use, written from its
// public description: modules with facts, events, derivations, effects, constraints and resolvers.
import { register } from "stockade:systems";

// The check of a type; the chain of its refinements keeps it.
const CHECK = Symbol("check");
const isMap = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const checkOf = (type) => type?.[CHECK] ?? (() => true);

// What the installed package has and this implementation does not is refused by its name.
const refuse = (what) => {
  throw new Error(`${what} is not in the core library that is built in: install @directive-run/core, and pass its directory with --libraries`);
};

// How much a value is, for limits of its type.
const size = (value) => (typeof value === "number" ? value : value?.length);
// The refinements that limit the values of a type.
const REFINEMENTS = {
  nullable: (check) => () => typed((value) => value === null || check(value)),
  optional: (check) => () => typed((value) => value === undefined || check(value)),
  min: (check) => (least) => typed((value) => check(value) && size(value) >= least),
  max: (check) => (most) => typed((value) => check(value) && size(value) <= most),
  validate: (check) => (test) => typed((value) => check(value) && test(value)),
  refine: (check) => (test) => typed((value) => check(value) && test(value)),
  default: () => () => refuse("`default` of a type"),
  transform: () => () => refuse("`transform` of a type"),
};
const typed = (check) =>
  new Proxy(() => typed(check), {
    get: (target, key) => {
      if (key === CHECK) return check;
      if (Object.hasOwn(REFINEMENTS, key)) return REFINEMENTS[key](check);
      return typeof key === "symbol" || key === "then" ? undefined : typed(check);
    },
    apply: () => typed(check),
  });
const TYPES = {
  string: () => typed((value) => typeof value === "string"),
  number: () => typed((value) => typeof value === "number"),
  boolean: () => typed((value) => typeof value === "boolean"),
  bigint: () => typed((value) => typeof value === "bigint"),
  date: () => typed((value) => value instanceof Date),
  array: (item) => typed((value) => Array.isArray(value) && value.every((one) => checkOf(item)(one))),
  tuple: (...items) => typed((value) => Array.isArray(value) && value.length === items.length && items.every((item, at) => checkOf(item)(value[at]))),
  object: (shape) => typed((value) => isMap(value) && Object.entries(isMap(shape) ? shape : {}).every(([key, type]) => checkOf(type)(value[key]))),
  record: (type) => typed((value) => isMap(value) && Object.values(value).every((one) => checkOf(type)(one))),
  enum: (...values) => typed((value) => values.flat().includes(value)),
  literal: (expected) => typed((value) => Object.is(value, expected)),
  union: (...types) => typed((value) => types.flat().some((type) => checkOf(type)(value))),
  nullable: (type) => typed((value) => value === null || checkOf(type)(value)),
  optional: (type) => typed((value) => value === undefined || checkOf(type)(value)),
  any: () => typed(() => true),
};
export const t = new Proxy(TYPES, {
  get: (types, key) => (Object.hasOwn(types, key) ? types[key] : typeof key === "symbol" || key === "then" ? undefined : () => typed(() => true)),
});

// What a module may define.
const DEFINITION = ["schema", "init", "derive", "derivations", "events", "effects", "constraints", "resolvers", "id", "meta", "name"];
// What the parts of a definition may have. Those that are functions have no other form here.
const PARTS = {
  effects: ["run", "deps", "meta"],
  constraints: ["when", "require", "priority", "async", "deps", "meta"],
  resolvers: ["requirement", "resolve", "key", "retry", "timeout", "meta"],
};
const RETRY = ["attempts", "backoff", "initialDelay", "maxDelay"];
const FUNCTIONS = { effects: "run", constraints: "when", resolvers: "resolve" };
const only = (what, object, known) => {
  const other = Object.keys(object ?? {}).find((key) => !known.includes(key) && object[key] !== undefined);
  if (other !== undefined) refuse(`\`${other}\` of ${what}`);
};
const checkParts = (definition) => {
  for (const [kind, known] of Object.entries(PARTS)) {
    for (const [name, part] of Object.entries(definition[kind] ?? {})) {
      const what = `the ${kind.slice(0, -1)} "${name}"`;
      only(what, part, known);
      if (typeof part?.[FUNCTIONS[kind]] !== "function") refuse(`\`${FUNCTIONS[kind]}\` of ${what} that is no function`);
      only(`\`retry\` of ${what}`, part.retry, RETRY);
    }
  }
  for (const kind of ["events", "derive", "derivations"]) {
    for (const [name, part] of Object.entries(definition[kind] ?? {})) {
      if (typeof part !== "function") refuse(`"${name}" in \`${kind}\` that is no function`);
    }
  }
};
export const createModule = (id, definition) => {
  const other = Object.keys(definition).find((key) => !DEFINITION.includes(key));
  if (other !== undefined) refuse(`\`${other}\` of a module`);
  checkParts(definition);
  return { ...definition, derive: definition.derive ?? definition.derivations, id };
};
export const createModuleFactory = (definition) => (id) => createModule(id, definition);

// How often the constraints of a system may be evaluated before the system is stopped.
const MAX_ROUNDS = 1000;

const wait = (delay, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, delay);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

// The result of some work, which fails after a time in milliseconds if that is given.
const within = async (limit, work, message) => {
  if (limit === undefined) return work;
  const abort = new AbortController();
  const late = wait(limit, abort.signal).then(() => {
    throw new Error(message);
  });
  late.catch(() => {});
  try {
    return await Promise.race([work, late]);
  } finally {
    abort.abort();
  }
};

// Requirements with the same key are one: by default those with the same content, otherwise those with the same
// values of some members, or for which a function gives the same.
const keyOf = (key, requirement) => {
  if (typeof key === "function") return `${requirement.type} ${key(requirement)}`;
  const members = Array.isArray(key) ? Object.fromEntries(key.map((name) => [name, requirement[name]])) : requirement;
  return `${requirement.type} ${JSON.stringify(members)}`;
};

// One module of a system, with its facts.
class Unit {
  values = new Map();

  constructor(name, definition, changed) {
    this.name = name;
    this.definition = definition;
    const { values } = this;
    const types = definition.schema?.facts ?? {};
    const isChecked = Object.keys(types).length > 0;
    const set = (key, value) => {
      if (isChecked && !Object.hasOwn(types, key)) throw new TypeError(`there is no fact "${String(key)}" in the schema of the module "${name}"`);
      if (isChecked && !checkOf(types[key])(value)) throw new TypeError(`the fact "${String(key)}" of the module "${name}" is not of the type in its schema`);
      if (values.has(key) && Object.is(values.get(key), value)) return;
      const before = values.get(key);
      values.set(key, value);
      changed(this, key, value, before);
    };
    const store = {
      get: (key) => values.get(key),
      set,
      has: (key) => values.has(key),
      keys: () => [...values.keys()],
      toObject: () => Object.fromEntries(values),
      batch: (action) => action(),
    };
    this.facts = new Proxy({}, {
      get: (target, key) => {
        if (key === "$store") return store;
        if (key === "$snapshot") return store.toObject;
        this.reads?.add(key);
        return values.get(key);
      },
      set: (target, key, value) => {
        set(key, value);
        return true;
      },
      deleteProperty: (target, key) => {
        const before = values.get(key);
        if (values.delete(key)) changed(this, key, undefined, before);
        return true;
      },
      has: (target, key) => values.has(key),
      ownKeys: () => [...values.keys()],
      getOwnPropertyDescriptor: (target, key) =>
        values.has(key)
          ? { value: values.get(key), writable: true, enumerable: true, configurable: true }
          : undefined,
    });
    const derivations = definition.derive ?? {};
    this.derive = new Proxy({}, {
      get: (target, key) =>
        Object.hasOwn(derivations, key) ? derivations[key](this.facts, this.derive) : undefined,
      has: (target, key) => Object.hasOwn(derivations, key),
      ownKeys: () => Object.keys(derivations),
      getOwnPropertyDescriptor: (target, key) =>
        Object.hasOwn(derivations, key) ? { enumerable: true, configurable: true } : undefined,
    });
  }

  derivations() {
    return Object.keys(this.definition.derive ?? {});
  }

  init(facts) {
    this.definition.init?.(this.facts);
    for (const [key, value] of Object.entries(facts ?? {})) this.facts[key] = value;
  }
}

class System {
  #units;
  #space;
  #options;
  #running = false;
  #started = false;
  #scheduled = false;
  #rounds = 0;
  #version = 0;
  #flights = new Map();
  #answered = new Map();
  #idle = [];
  #watchers = new Set();
  #before = new Map();
  // What each effect has read, and what is to be called before it runs again.
  #effects = new Map();
  #abort = new AbortController();

  constructor(options) {
    this.#options = options;
    this.#space = options.modules !== undefined;
    const modules = this.#space ? Object.entries(options.modules) : [["", options.module]];
    const changed = (unit, key, value, before) => this.#changed(unit, key, value, before);
    this.#units = modules.map(([name, module]) => new Unit(name || module.id, module, changed));
    const spaced = (part) => Object.fromEntries(this.#units.map((unit) => [unit.name, part(unit)]));
    if (this.#space) {
      const toObject = () => spaced((unit) => Object.fromEntries(unit.values));
      const facts = spaced((unit) => unit.facts);
      const hidden = { $store: { value: { toObject } }, $snapshot: { value: toObject } };
      this.facts = Object.defineProperties(facts, hidden);
      this.derive = spaced((unit) => unit.derive);
      this.events = spaced((unit) => this.#events(unit));
    } else {
      [{ facts: this.facts, derive: this.derive }] = this.#units;
      this.events = this.#events(this.#units[0]);
    }
    const told = (unit) => ({
      space: this.#space,
      name: unit.name,
      derivations: unit.derivations(),
    });
    register(this, this.#units.map(told));
  }

  get isRunning() {
    return this.#running;
  }

  get isSettled() {
    return !this.#scheduled && this.#flights.size === 0;
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    if (!this.#started) {
      this.#started = true;
      const { initialFacts } = this.#options;
      for (const unit of this.#units) {
        unit.init(this.#space ? initialFacts?.[unit.name] : initialFacts);
      }
    }
    this.#schedule();
  }

  stop() {
    this.#running = false;
    for (const effect of this.#effects.values()) this.#cleanUp(effect);
    this.#abort.abort();
    this.#abort = new AbortController();
  }

  destroy() {
    this.stop();
    this.#watchers.clear();
  }

  get settled() {
    return this.isSettled;
  }

  async whenReady() {
    await this.settle();
  }

  async settle(limit = 60_000) {
    if (this.isSettled) return;
    const { promise, resolve } = Promise.withResolvers();
    this.#idle.push(resolve);
    await within(limit, promise, `the system did not settle within ${limit} ms`);
  }

  dispatch({ type, ...payload }) {
    const [name, event] = this.#space ? type.split(/[.:/]+/, 2) : ["", type];
    (this.#space ? this.events[name] : this.events)[event](payload);
  }

  batch(action) {
    return action();
  }

  read(key) {
    const unit = this.#units.find(({ derive, values }) => key in derive || values.has(key));
    return unit && (key in unit.derive ? unit.derive[key] : unit.values.get(key));
  }

  subscribe(keys, listener) {
    return this.#watch(keys.map((key) => [key, this.read(key)]), () => listener());
  }

  watch(key, listener) {
    return this.#watch([[key, this.read(key)]], listener);
  }

  when(predicate) {
    return new Promise((resolve) => {
      if (predicate(this.facts)) return resolve();
      const stop = this.#watch([], () => {
        if (!predicate(this.facts)) return;
        stop();
        resolve();
      });
    });
  }

  getSnapshot() {
    return { facts: this.facts.$store.toObject() };
  }

  #events(unit) {
    return new Proxy({}, {
      get: (target, name) => (payload = {}) => {
        const handler = unit.definition.events?.[name];
        if (typeof handler !== "function") {
          console.warn(`[Directive] there is no event "${String(name)}"`);
          return;
        }
        handler(unit.facts, payload);
      },
      has: (target, name) => name in (unit.definition.events ?? {}),
    });
  }

  #watch(values, listener) {
    const watcher = { values: new Map(values), listener };
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  #changed() {
    this.#version += 1;
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled || !this.#running) return;
    this.#scheduled = true;
    Promise.resolve().then(() => this.#reconcile());
  }

  async #reconcile() {
    this.#rounds += 1;
    if (this.#rounds > MAX_ROUNDS) {
      this.stop();
      console.error(`[Directive] the constraints never settle: the system was stopped after ${MAX_ROUNDS} rounds`);
    }
    if (this.#running) {
      this.#tell();
      for (const unit of this.#units) await this.#require(unit);
    }
    this.#scheduled = false;
    if (this.#flights.size > 0) return;
    for (const done of this.#idle.splice(0)) done();
  }

  // Runs effects, and notifies watchers whose values have changed.
  #tell() {
    for (const unit of this.#units) {
      const before = this.#before.get(unit) ?? null;
      const now = Object.fromEntries(unit.values);
      this.#before.set(unit, now);
      for (const effect of Object.values(unit.definition.effects ?? {})) {
        const known = this.#effects.get(effect);
        const changed = (key) => !Object.is(now[key], before?.[key]);
        // An effect without dependencies depends on what it has read.
        const keys = effect.deps ?? known?.reads ?? [];
        if (known === undefined || [...keys].some(changed)) this.#affect(unit, effect, before);
      }
    }
    for (const { values, listener } of [...this.#watchers]) {
      if (values.size === 0) listener();
      for (const [key, before] of values) {
        const now = this.read(key);
        if (Object.is(now, before)) continue;
        values.set(key, now);
        listener(now, before);
      }
    }
  }

  // Runs an effect, and keeps what it gives to clean up.
  #affect(unit, effect, before) {
    const known = this.#effects.get(effect) ?? {};
    this.#cleanUp(known);
    const reads = new Set();
    unit.reads = reads;
    try {
      const given = effect.run(unit.facts, before);
      known.cleanUp = typeof given === "function" ? given : undefined;
    } finally {
      unit.reads = undefined;
      known.reads = reads;
      this.#effects.set(effect, known);
    }
  }

  #cleanUp(known) {
    const { cleanUp } = known;
    known.cleanUp = undefined;
    cleanUp?.();
  }

  // Starts a resolver for each active requirement that has no running resolver.
  async #require(unit) {
    const byPriority = (a, b) => (b[1].priority ?? 0) - (a[1].priority ?? 0);
    for (const [, constraint] of Object.entries(unit.definition.constraints ?? {}).sort(byPriority)) {
      const held = constraint.when(unit.facts, unit.derive);
      if (!(held instanceof Promise ? await held : held)) continue;
      const { require } = constraint;
      const wanted = typeof require === "function" ? require(unit.facts, unit.derive) : require;
      for (const requirement of [wanted].flat()) {
        if (requirement) this.#meet(unit, requirement);
      }
    }
  }

  #meet(unit, requirement) {
    const resolvers = Object.entries(unit.definition.resolvers ?? {});
    const found = resolvers.find(([, { requirement: wanted }]) =>
      typeof wanted === "function" ? wanted(requirement) : wanted === requirement.type,
    );
    const key = `${unit.name} ${keyOf(found?.[1].key, requirement)}`;
    // A resolved requirement is not resolved again until a fact has changed.
    if (this.#flights.has(key) || this.#answered.get(key) === this.#version) return;
    if (!found) {
      console.warn(`[Directive] no resolver for the requirement "${requirement.type}"`);
      this.#answered.set(key, this.#version);
      return;
    }
    const [name, resolver] = found;
    const flight = this.#resolve(unit, name, resolver, requirement, key).finally(() => {
      this.#flights.delete(key);
      this.#answered.set(key, this.#version);
      if (this.#running) this.#schedule();
      else for (const done of this.#idle.splice(0)) done();
    });
    this.#flights.set(key, flight);
  }

  async #resolve(unit, name, resolver, requirement, key) {
    const { attempts = 1, backoff = "none", initialDelay = 100, maxDelay = Infinity } = resolver.retry ?? {};
    const { signal } = this.#abort;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const snapshot = Object.freeze(Object.fromEntries(unit.values));
        const requeue = () => this.#answered.delete(key);
        const work = resolver.resolve(requirement, { facts: unit.facts, derive: unit.derive, signal, snapshot, requeue });
        await within(resolver.timeout, work, `it took longer than ${resolver.timeout} ms`);
        return;
      } catch (error) {
        if (attempt >= attempts || signal.aborted) {
          console.error(`[Directive] resolver "${name}" failed: ${error?.message ?? error}`);
          return;
        }
        const factor = { exponential: 2 ** (attempt - 1), linear: attempt, none: 0 }[backoff] ?? 0;
        await wait(Math.min(initialDelay * factor, maxDelay), signal).catch(() => {});
      }
    }
  }
}

for (const name of ["history", "explain", "inspect", "observe", "trace", "restore", "hydrate", "registerModule", "constraints", "effects", "debug"]) {
  Object.defineProperty(System.prototype, name, { get: () => refuse(`system.${name}`), configurable: true });
}

// The options of a system.
const OPTIONS = ["module", "modules", "initialFacts", "name"];
export const createSystem = (options) => {
  if (!options?.module && !options?.modules) throw new Error("createSystem requires a module");
  const isNothing = (value) => value === undefined || value === false || (Array.isArray(value) && value.length === 0);
  const other = Object.keys(options).find((key) => !OPTIONS.includes(key) && !isNothing(options[key]));
  if (other !== undefined) refuse(`the option \`${other}\` of createSystem()`);
  return new System(options);
};
