// Systems: what snippets create and use. A system has one module, or several by their names.
import { register } from "stockade:systems";
import { createEngine } from "./engine.js";
import { inspect } from "./inspect.js";
import { several, single } from "./kinds.js";
import { createObserver } from "./observe.js";
import { absent, dynamic, isSafe, only, refuse } from "./refusal.js";
import { settle } from "./settling.js";
import { distributable } from "./snapshots.js";
import { derivationView, eventView } from "./views.js";
import { watchers } from "./watching.js";

const OPTIONS = ["module", "modules", "initialFacts", "name", "plugins", "history", "trace", "errorBoundary", "tickMs", "debug", "zeroConfig", "initOrder", "pro"];
const HISTORY = ["maxSnapshots"];
// What a system of the package has and this one has not.
const ABSENT = ["explain", "getOriginal", "restoreOriginal", "watchDistributableSnapshot", "registerModule", "stopAsync", "destroyAsync", "evict"];
// What a system can do beside its facts, derivations and events.
// Facts that `hydrate` has loaded are put into `held`.
const methods = (engine, kind, options, held) => {
  const { state, store, constraints, effects, history } = engine;
  let ticking;
  const endTicks = () => {
    clearInterval(ticking);
    ticking = undefined;
  };
  const system = {
    _mode: kind.mode,
    history: history.api,
    ...watchers(engine, kind, () => system.facts),
    constraints: { disable: constraints.disable, enable: constraints.enable, isDisabled: constraints.isDisabled, ...dynamic("constraints") },
    effects: { disable: effects.disable, enable: effects.enable, isEnabled: effects.isEnabled, ...dynamic("effects") },
    resolvers: dynamic("resolvers"),
    get trace() {
      return options.trace ? refuse("system.trace") : null;
    },
    get meta() {
      return refuse("system.meta");
    },
    // What older versions of the package have with the option of that name.
    get debug() {
      return options.debug ? refuse("system.debug") : undefined;
    },
    get runHistory() {
      return options.debug ? refuse("system.runHistory") : undefined;
    },
    get isRunning() {
      return state.isRunning;
    },
    get isSettled() {
      return engine.isSettled();
    },
    get isInitialized() {
      return state.isInitialized;
    },
    get isReady() {
      return state.isReady;
    },
    hydrate: async (load) => {
      if (state.isRunning) throw new Error("[Directive] hydrate() must be called before start()");
      const given = await load();
      if (given && typeof given === "object") held.facts = given;
    },
    initialize: engine.initialize,
    start: () => {
      engine.start(system);
      const tick = options.tickMs > 0 && ticking === undefined && state.isRunning && kind.tick(engine);
      if (tick) ticking = setInterval(() => engine.dispatch(tick), options.tickMs);
    },
    stop: () => {
      endTicks();
      engine.stop(system);
    },
    destroy: () => {
      if (state.isDestroyed) return;
      system.stop();
      engine.destroy(system);
    },
    whenReady: () => {
      if (state.isReady) return Promise.resolve();
      if (!state.isRunning) return Promise.reject(new Error("[Directive] whenReady() called before start()"));
      return engine.ready;
    },
    dispatch: (event) => engine.dispatch(event.type, event),
    batch: (action) => store.batch(action),
    read: (id) => engine.derivations.get(kind.keyOf(id)),
    subscribeModule: (name, listener) => system.subscribe([`${name}.*`], listener),
    onSettledChange: engine.onSettledChange,
    onHistoryChange: history.onChange,
    observe: (observer) => createObserver(engine.plugins, observer),
    inspect: () => inspect(engine, options),
    settle: (limit) => settle(engine, limit),
    getSnapshot: () => ({ facts: store.toObject(), version: 1 }),
    getDistributableSnapshot: (wanted = {}) => distributable(engine, kind, wanted),
    restore: (snapshot) => {
      if (typeof snapshot?.facts !== "object" || snapshot.facts === null) throw new Error("[Directive] restore() requires a snapshot with facts");
      if (!isSafe(snapshot)) throw new Error("[Directive] restore() rejected: the snapshot has a reserved key");
      store.batch(() => Object.entries(snapshot.facts).forEach(([key, value]) => store.set(key, value)));
    },
  };
  if (kind.mode === "single") delete system.subscribeModule;
  // Copies of a system leave out what refuses to be read.
  for (const name of ["trace", "meta", "debug", "runHistory"]) Object.defineProperty(system, name, { enumerable: false });
  for (const name of ABSENT) system[name] = absent(`system.${name}()`);
  system.notify = { guardrailBlocked: absent("system.notify"), clobberLoopDetected: absent("system.notify"), clobberLoopResolved: absent("system.notify") };
  return system;
};

const checkOptions = (options) => {
  const isNothing = (value) => value === undefined || value === false || (Array.isArray(value) && value.length === 0);
  const other = Object.keys(options).find((key) => !OPTIONS.includes(key) && !isNothing(options[key]));
  if (other !== undefined) refuse(`the option \`${other}\` of createSystem()`);
  if (options.tickMs !== undefined && options.tickMs <= 0) throw new Error("[Directive] tickMs must be a positive number");
  if (typeof options.history === "object") only("`history` of createSystem()", options.history, HISTORY);
  if (!isSafe(options.initialFacts)) throw new Error("[Directive] initialFacts has a reserved key");
  if (!options.history) return;
  for (const module of options.module ? [options.module] : Object.values(options.modules)) only(`\`history\` of the module "${module.id}"`, module.history, []);
};

export const createSystem = (options) => {
  if ("module" in options ? !options.module : !options.modules) throw new Error(`[Directive] createSystem requires a module. Got: ${typeof options.module}`);
  if (Array.isArray(options.modules)) throw new Error("[Directive] createSystem expects modules as an object, not an array: createSystem({ modules: { name: module } })");
  checkOptions(options);
  const kind = "module" in options ? single(options) : several(options);
  const held = {};
  const engine = createEngine({
    modules: kind.modules,
    plugins: options.plugins,
    errorBoundary: options.errorBoundary,
    history: options.history || options.zeroConfig,
    afterInit: () => {
      kind.setAll(engine.facts, options.initialFacts);
      kind.setAll(engine.facts, held.facts);
      held.facts = undefined;
    },
  });
  const system = methods(engine, kind, options, held);
  Object.assign(system, kind.views(engine, derivationView(engine), eventView(engine)));
  register(system, kind.reported(engine));
  engine.plugins.init(system);
  for (const { hooks } of kind.modules) hooks?.onInit?.(system);
  return system;
};
