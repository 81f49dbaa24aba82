// A small implementation of the part of @directive-run/core that snippets use, written from its
// public description: modules with facts, events, derivations, effects, constraints and resolvers.
import { register } from "stockade:systems";

// Only the compiler uses a schema: every chain of refinements evaluates to the same object.
const refinement = new Proxy(() => refinement, {
  get: (target, key) => (typeof key === "symbol" || key === "then" ? undefined : refinement),
  apply: () => refinement,
});
export const t = refinement;

export const createModule = (id, definition) => ({ ...definition, id });
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

// One module of a system, with its facts.
class Unit {
  values = new Map();

  constructor(name, definition, changed) {
    this.name = name;
    this.definition = definition;
    const { values } = this;
    const set = (key, value) => {
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
    this.#abort.abort();
    this.#abort = new AbortController();
  }

  destroy() {
    this.stop();
    this.#watchers.clear();
  }

  async settle(limit = 60_000) {
    if (this.isSettled) return;
    const { promise, resolve } = Promise.withResolvers();
    this.#idle.push(resolve);
    const abort = new AbortController();
    const late = wait(limit, abort.signal).then(() => {
      throw new Error(`the system did not settle within ${limit} ms`);
    });
    late.catch(() => {});
    await Promise.race([promise, late]);
    abort.abort();
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
        if (typeof handler !== "function") throw new Error(`there is no event "${String(name)}"`);
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
      const before = this.#before.get(unit) ?? {};
      const now = Object.fromEntries(unit.values);
      this.#before.set(unit, now);
      for (const effect of Object.values(unit.definition.effects ?? {})) {
        const changed = (key) => !Object.is(now[key], before[key]);
        const keys = effect.deps ?? Object.keys({ ...before, ...now });
        if (keys.some(changed)) effect.run(unit.facts, before);
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
    const key = `${unit.name} ${JSON.stringify(requirement)}`;
    // A resolved requirement is not resolved again until a fact has changed.
    if (this.#flights.has(key) || this.#answered.get(key) === this.#version) return;
    const resolvers = Object.entries(unit.definition.resolvers ?? {});
    const found = resolvers.find(([, { requirement: wanted }]) =>
      typeof wanted === "function" ? wanted(requirement) : wanted === requirement.type,
    );
    if (!found) {
      console.warn(`[Directive] no resolver for the requirement "${requirement.type}"`);
      this.#answered.set(key, this.#version);
      return;
    }
    const [name, resolver] = found;
    const flight = this.#resolve(unit, name, resolver, requirement).finally(() => {
      this.#flights.delete(key);
      this.#answered.set(key, this.#version);
      if (this.#running) this.#schedule();
      else for (const done of this.#idle.splice(0)) done();
    });
    this.#flights.set(key, flight);
  }

  async #resolve(unit, name, resolver, requirement) {
    const { attempts = 1, backoff = "none", initialDelay = 100 } = resolver.retry ?? {};
    const { signal } = this.#abort;
    for (let attempt = 1; ; attempt += 1) {
      try {
        await resolver.resolve(requirement, { facts: unit.facts, derive: unit.derive, signal });
        return;
      } catch (error) {
        if (attempt >= attempts || signal.aborted) {
          console.error(`[Directive] resolver "${name}" failed: ${error?.message ?? error}`);
          return;
        }
        const factor = { exponential: 2 ** (attempt - 1), linear: attempt, none: 0 }[backoff] ?? 0;
        await wait(initialDelay * factor, signal).catch(() => {});
      }
    }
  }
}

export const createSystem = (options) => {
  if (!options?.module && !options?.modules) throw new Error("createSystem requires a module");
  return new System(options);
};
