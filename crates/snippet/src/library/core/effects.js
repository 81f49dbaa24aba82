// Effects: functions that run after facts have changed that they depend on. What one gives is called before it
// runs again.
import { plainName, sameSet, track } from "./tracking.js";

// After how many runs that read the same the reads are taken to be always these, until one of them changes.
const STEADY_RUNS = 3;

// `names` says what a name in `deps` is: `isFact(name)`, and `asDerivation(name)`, which gives the key of a
// derivation. `hooks` has `ran(id, reads)` and `failed(id, error)`.
export const createEffects = (definitions, facts, store, derived, names, hooks) => {
  const states = new Map();
  let before = null;
  let isStopped = false;
  const warned = new Set();

  for (const [id, { deps, holds }] of Object.entries(definitions)) {
    states.set(id, { deps, holds, reads: deps ? new Set(deps.map((name) => names.asDerivation(name) ?? name)) : null, cleanUp: null, sameReads: 0, isSteady: false, isEnabled: true });
  }

  const call = (id, cleanUp) => {
    try {
      cleanUp();
    } catch (error) {
      hooks.failed(id, error);
      console.error(`[Directive] Effect "${id}" cleanup threw an error:`, error);
    }
  };
  const cleanUp = (id, state) => {
    const held = state.cleanUp;
    state.cleanUp = null;
    if (held) call(id, held);
  };
  const keep = (id, state, given) => {
    if (typeof given !== "function") return;
    if (isStopped) call(id, given);
    else state.cleanUp = given;
  };

  const start = (definition) => {
    let given;
    store.batch(() => {
      given = definition.run(facts, before, derived);
    });
    return given;
  };

  const runPlain = async (id, state) => {
    const given = start(definitions[id]);
    keep(id, state, given instanceof Promise ? await given : given);
  };

  const runTracked = async (id, state) => {
    const { value, reads } = track(() => start(definitions[id]));
    let given = value;
    if (given instanceof Promise) {
      if (reads.size === 0 && !warned.has(id)) {
        warned.add(id);
        console.warn(`[Directive] the async effect "${id}" reads nothing before its first \`await\`, so it runs after every change: give it \`deps\``);
      }
      given = await given;
    }
    keep(id, state, given);
    const isSame = state.reads !== null && sameSet(state.reads, reads);
    state.sameReads = isSame ? state.sameReads + 1 : 0;
    state.isSteady = state.sameReads >= STEADY_RUNS;
    state.reads = reads.size > 0 ? reads : null;
  };

  const run = async (id) => {
    const state = states.get(id);
    if (!state.isEnabled) return;
    cleanUp(id, state);
    hooks.ran(id, [...(state.reads ?? [])].map(plainName));
    try {
      await (state.deps || (state.isSteady && state.reads) ? runPlain(id, state) : runTracked(id, state));
    } catch (error) {
      hooks.failed(id, error);
      console.error(`[Directive] Effect "${id}" threw an error:`, error);
      state.isSteady = false;
      state.sameReads = 0;
    }
  };

  const isDue = (state, changed) => {
    if (!state.isEnabled) return false;
    if (state.reads === null) return true;
    if (![...state.reads].some((key) => changed.has(key))) return false;
    if (state.holds && !state.holds(store.toObject(), before ?? undefined)) return false;
    if (state.isSteady) state.sameReads = 0;
    state.isSteady = false;
    return true;
  };

  const known = (id) => {
    if (!states.has(id)) throw new Error(`[Directive] Unknown effect: ${id}`);
    return states.get(id);
  };
  return {
    run: async (changed) => {
      const due = [...states].filter(([, state]) => isDue(state, changed)).map(([id]) => id);
      await Promise.all(due.map(run));
      before = store.toObject();
    },
    disable: (id) => void (known(id).isEnabled = false),
    enable: (id) => void (known(id).isEnabled = true),
    isEnabled: (id) => known(id).isEnabled,
    reads: () => [...states.values()].flatMap(({ reads }) => [...(reads ?? [])]),
    stop: () => {
      isStopped = true;
      for (const [id, state] of states) cleanUp(id, state);
    },
  };
};
