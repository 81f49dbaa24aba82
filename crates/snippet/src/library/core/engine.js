// The engine of a system: after facts have changed, effects run, conditions are evaluated, and resolvers start for
// new requirements, until nothing is left to do.
import { createBoundary } from "./boundary.js";
import { createConstraints } from "./constraints.js";
import { createDerivations } from "./derivations.js";
import { createEffects } from "./effects.js";
import { createStore, viewOf } from "./facts.js";
import { createHistory } from "./history.js";
import { createPlugins } from "./plugins.js";
import { isReserved } from "./refusal.js";
import { keyFunction, RequirementSet } from "./requirements.js";
import { createResolvers } from "./resolvers.js";
import { derivationKey } from "./tracking.js";

const KINDS = ["derive", "effects", "constraints", "resolvers", "events"];

// The definitions of all modules in one. No name may be defined twice.
const merge = (modules) => {
  const merged = { schema: Object.create(null), derive: {}, effects: {}, constraints: {}, resolvers: {}, events: {} };
  const owners = new Map();
  for (const module of modules) {
    for (const [key, type] of Object.entries(module.schema)) {
      if (isReserved(key)) throw new Error(`[Directive] the module "${module.id}" has the fact "${key}", which no fact may be called`);
      if (key.startsWith("$")) throw new Error(`[Directive] the module "${module.id}" has the fact "${key}": names with "$" are for $store and $snapshot`);
      if (Object.hasOwn(merged.schema, key)) throw new Error(`[Directive] Schema collision: Fact "${key}" is defined in two modules`);
      merged.schema[key] = type;
    }
    for (const kind of KINDS) {
      for (const [key, part] of Object.entries(module[kind] ?? {})) {
        if (isReserved(key)) throw new Error(`[Directive] the module "${module.id}" has "${key}" in \`${kind}\`, which nothing may be called`);
        const owner = owners.get(key);
        if (owner !== undefined && owner !== module.id) throw new Error(`[Directive] Definition collision: "${key}" in \`${kind}\` is defined in both module "${owner}" and "${module.id}"`);
        owners.set(key, module.id);
        merged[kind][key] = part;
      }
    }
  }
  for (const key of Object.keys(merged.derive)) {
    if (Object.hasOwn(merged.schema, key)) console.warn(`[Directive] "${key}" is the name of a fact and of a derivation`);
  }
  return merged;
};

export const createEngine = ({ modules, plugins: given, errorBoundary, history: historyOption, afterInit }) => {
  const { schema, derive, effects: effectDefinitions, constraints: constraintDefinitions, resolvers: resolverDefinitions, events } = merge(modules);
  const plugins = createPlugins(given);
  const { handle, later } = createBoundary(errorBoundary, plugins, () => schedule());
  const state = { isRunning: false, isReconciling: false, isScheduled: false, isInitializing: false, isInitialized: false, isReady: false, isDestroyed: false };
  const changed = new Set();
  const requeued = new Set();
  const settledListeners = new Set();
  let requirements = new RequirementSet();
  let resolveReady;
  const ready = new Promise((resolve) => (resolveReady = resolve));
  let release = () => {};

  const notifySettled = () => settledListeners.forEach((listener) => listener());
  const schedule = () => {
    if (!state.isRunning || state.isScheduled || state.isInitializing) return;
    state.isScheduled = true;
    notifySettled();
    queueMicrotask(() => {
      state.isScheduled = false;
      if (state.isRunning && !state.isInitializing) reconcile().catch((error) => console.error("[Directive] Unexpected error in reconcile:", error));
    });
  };
  const recordChanges = (keys) => {
    if (history.isRestoring) return;
    keys.forEach((key) => changed.add(key));
    schedule();
  };

  const store = createStore(schema, {
    changed: (key, value, before) => {
      plugins.emit("onFactSet", key, value, before);
      derivations.invalidate([key]);
      recordChanges([key]);
    },
    batched: (changes) => {
      plugins.emit("onFactsBatch", changes);
      const keys = changes.map(({ key }) => key);
      derivations.invalidate(keys);
      release();
      recordChanges(keys);
    },
    written: (key) => derivations.invalidate([key]),
    opened: () => (release = derivations.hold()),
    closed: () => release(),
  });
  const facts = viewOf(store, schema);
  const derivations = createDerivations(derive, facts, {
    computed: (id, value, reads) => plugins.emit("onDerivationCompute", id, value, reads),
    invalidated: (id) => plugins.emit("onDerivationInvalidate", id),
    failed: (id, error) => handle("derivation", id, error),
  });
  const history = createHistory(historyOption, facts, store, plugins);
  const names = {
    asDerivation: (name) => {
      if (!derivations.isKnown(name) || Object.hasOwn(schema, name)) return undefined;
      derivations.observe(name);
      return derivationKey(name);
    },
  };
  const effects = createEffects(effectDefinitions, facts, store, derivations.view, names, {
    ran: (id) => plugins.emit("onEffectRun", id),
    failed: (id, error) => {
      const strategy = handle("effect", id, error);
      plugins.emit("onEffectError", id, error);
      if (strategy === "disable") effects.disable(id);
      if (strategy === "retry") schedule();
    },
  });
  const keys = Object.create(null);
  for (const { key, requirement } of Object.values(resolverDefinitions)) {
    if (key && typeof requirement === "string") keys[requirement] = keyFunction(key);
  }
  const constraints = createConstraints(constraintDefinitions, facts, derivations.view, keys, names, {
    evaluated: (id, isActive, clauses) => plugins.emit("onConstraintEvaluate", id, isActive, clauses),
    failed: (id, error) => {
      const strategy = handle("constraint", id, error);
      plugins.emit("onConstraintError", id, error);
      if (strategy === "disable") constraints.disable(id);
    },
  });
  const hookOf = (resolver) => modules.find((module) => Object.hasOwn(module.resolvers ?? {}, resolver))?.hooks?.onResolverError;
  const resolvers = createResolvers(resolverDefinitions, facts, store, {
    started: (id, one) => plugins.emit("onResolverStart", id, one),
    completed: (id, one, duration) => {
      later.clear(id);
      plugins.emit("onResolverComplete", id, one, duration);
      plugins.emit("onRequirementMet", one, id);
      constraints.markResolved(one.fromConstraint);
    },
    failed: (id, one, error) => {
      const strategy = handle("resolver", id, error, one);
      plugins.emit("onResolverError", id, one, error);
      if (strategy === "disable") constraints.disable(one.fromConstraint);
      if (strategy === "retry") {
        requirements.remove(one.id);
        schedule();
      }
      try {
        hookOf(id)?.(error, one.requirement, { facts });
      } catch (thrown) {
        console.error(`[Directive] onResolverError of the module with the resolver "${id}" threw:`, thrown);
      }
    },
    retried: (id, one, count) => plugins.emit("onResolverRetry", id, one, count),
    canceled: (id, one) => {
      plugins.emit("onResolverCancel", id, one);
      plugins.emit("onRequirementCanceled", one);
    },
    ended: () => {
      notifySettled();
      schedule();
    },
    requeued: (id) => requeued.add(id),
  });

  const notifyEnd = (wanted, removed) => {
    const inflight = resolvers.running();
    plugins.emit("onReconcileEnd", {
      unmet: wanted.all().filter(({ id }) => !resolvers.isResolving(id)),
      inflight,
      completed: [],
      canceled: removed.map(({ id }) => ({ id, resolverId: inflight.find((one) => one.id === id)?.resolverId ?? "unknown" })),
    });
  };

  const reconcile = async () => {
    if (state.isReconciling) return;
    state.isReconciling = true;
    notifySettled();
    try {
      if (changed.size > 0) history.take(changed);
      plugins.emit("onReconcileStart", facts.$snapshot());
      derivations.collectInvalidated(changed);
      await effects.run(changed);
      derivations.collectInvalidated(changed);
      const keysForConstraints = new Set(changed);
      changed.clear();
      const wanted = new RequirementSet();
      for (const one of await constraints.evaluate(keysForConstraints)) {
        wanted.add(one);
        plugins.emit("onRequirementCreated", one);
      }
      const { added, removed } = wanted.diff(requirements);
      for (const { id } of removed) resolvers.abort(id);
      for (const one of added) resolvers.resolve(one);
      requirements = wanted;
      if (requeued.size > 0) {
        requeued.forEach((id) => requirements.remove(id));
        requeued.clear();
        schedule();
      }
      // Without plugins, observers get no event at the end, as in the package.
      if (given?.length > 0) notifyEnd(wanted, removed);
      state.isReady = true;
      resolveReady();
    } finally {
      state.isReconciling = false;
      if (derivations.observedCount() > 0) derivations.retainObserved([...constraints.reads(), ...effects.reads()]);
      if (changed.size > 0 || derivations.pendingCount() > 0) schedule();
      notifySettled();
    }
  };

  const isSettled = () =>
    resolvers.running().length === 0 && !resolvers.hasBatches() && !state.isReconciling && !state.isScheduled && derivations.pendingCount() === 0;

  const initialize = () => {
    if (state.isInitialized) return;
    state.isInitializing = true;
    for (const { init } of modules) if (init) store.batch(() => init(facts));
    store.batch(afterInit);
    state.isInitializing = false;
    state.isInitialized = true;
    Object.keys(derive).forEach(derivations.get);
  };

  const dispatch = (name, payload) => {
    if (isReserved(name)) return;
    if (!Object.hasOwn(events, name)) {
      console.warn(`[Directive] Unknown event type "${name}"; there are ${Object.keys(events).join(", ") || "none"}`);
      return;
    }
    store.batch(() => events[name](facts, { type: name, ...payload }));
  };

  return {
    state, store, facts, derivations, effects, constraints, resolvers, plugins, history, schema, events, modules,
    definitions: { derive, effects: effectDefinitions, constraints: constraintDefinitions, resolvers: resolverDefinitions },
    requirements: () => requirements,
    initialize, dispatch, isSettled,
    onSettledChange: (listener) => {
      settledListeners.add(listener);
      return () => void settledListeners.delete(listener);
    },
    start: (system) => {
      if (state.isRunning) return;
      if (state.isDestroyed) {
        console.warn("[Directive] the system is destroyed and does not start again: create another");
        return;
      }
      initialize();
      state.isRunning = true;
      for (const { hooks } of modules) hooks?.onStart?.(system);
      plugins.emit("onStart", system);
      later.start();
      schedule();
    },
    stop: (system) => {
      if (!state.isRunning) return;
      state.isRunning = false;
      later.stop();
      resolvers.abortAll();
      effects.stop();
      for (const { hooks } of modules) hooks?.onStop?.(system);
      plugins.emit("onStop", system);
    },
    destroy: (system) => {
      state.isDestroyed = true;
      store.destroy();
      settledListeners.clear();
      requeued.clear();
      plugins.emit("onDestroy", system);
    },
    ready,
  };
};
