// Derivations: values that are computed from facts and other derivations when they are read, and kept until
// something that they have read changes.
import { isReserved } from "./refusal.js";
import { derivationKey, isDerivationKey, isWatching, recordRead, plainName, sameSet, track } from "./tracking.js";

// How often listeners may make derivations out of date before that counts as endless.
const MAX_NOTIFICATIONS = 100;
// After how many computations that read the same the reads are taken to be always these.
const STEADY_RUNS = 3;

// `hooks` has `computed(id, value, reads)`, `invalidated(id)` and `failed(id, error)`.
export const createDerivations = (definitions, facts, hooks) => {
  const states = new Map(Object.keys(definitions).map((id) => [id, { value: undefined, reads: new Set(), isStale: true, isComputing: false, sameReads: 0 }]));
  // For each fact or derivation, the derivations that have read it.
  const readers = new Map();
  const listeners = new Map();
  const pending = new Set();
  // The derivations that constraints and effects have read, and those that changed facts made out of date.
  const observed = new Set();
  const roots = new Set();
  let holds = 0;
  let isNotifying = false;

  const recordReads = (id, reads) => {
    const state = states.get(id);
    if (sameSet(state.reads, reads)) return;
    for (const key of state.reads) readers.get(key)?.delete(id);
    for (const key of reads) readers.set(key, (readers.get(key) ?? new Set()).add(id));
    state.reads = reads;
  };

  const compute = (id) => {
    const state = states.get(id);
    if (state.isComputing) throw new Error(`[Directive] Circular dependency detected in derivation: ${id}`);
    state.isComputing = true;
    try {
      const { value, reads } = track(() => definitions[id](facts, view), true);
      const isSteady = state.sameReads >= STEADY_RUNS && state.reads.size > 0;
      if (!isSteady) state.sameReads = state.reads.size > 0 && sameSet(state.reads, reads) ? state.sameReads + 1 : 0;
      state.value = value;
      state.isStale = false;
      recordReads(id, isSteady ? state.reads : reads);
      hooks.computed(id, value, [...state.reads].map(plainName));
      return value;
    } catch (error) {
      hooks.failed(id, error);
      throw error;
    } finally {
      state.isComputing = false;
    }
  };

  const read = (id) => {
    recordRead(derivationKey(id));
    if (isWatching()) observed.add(id);
    const state = states.get(id);
    return state.isStale ? compute(id) : state.value;
  };

  const notify = () => {
    if (holds > 0 || isNotifying) return;
    isNotifying = true;
    try {
      for (let round = 1; pending.size > 0; round += 1) {
        const ids = [...pending];
        pending.clear();
        if (round > MAX_NOTIFICATIONS) throw new Error(`[Directive] Infinite derivation notification loop: ${ids.join(", ")} changed ${MAX_NOTIFICATIONS} times`);
        for (const id of ids) for (const listener of listeners.get(id) ?? []) listener();
      }
    } finally {
      isNotifying = false;
    }
  };

  const invalidate = (keys) => {
    holds += 1;
    const seen = new Set();
    try {
      for (const key of keys) {
        for (const root of readers.get(key) ?? []) {
          roots.add(root);
          const queue = [root];
          while (queue.length > 0) {
            const id = queue.pop();
            const state = states.get(id);
            if (seen.has(id) || state.isStale) continue;
            seen.add(id);
            state.isStale = true;
            state.sameReads = 0;
            hooks.invalidated(id);
            pending.add(id);
            queue.push(...(readers.get(derivationKey(id)) ?? []));
          }
        }
      }
    } finally {
      holds -= 1;
      notify();
    }
  };

  const isKnown = (key) => typeof key === "string" && !isReserved(key) && Object.hasOwn(definitions, key);
  const view = new Proxy({}, {
    get: (target, key) => (isKnown(key) ? read(key) : undefined),
    has: (target, key) => {
      if (!isKnown(key)) return false;
      recordRead(derivationKey(key));
      if (isWatching()) observed.add(key);
      return true;
    },
    ownKeys: () => Object.keys(definitions),
    getOwnPropertyDescriptor: (target, key) => (isKnown(key) ? { enumerable: true, configurable: true, get: () => view[key] } : undefined),
    set: () => false,
    deleteProperty: () => false,
    defineProperty: () => false,
    getPrototypeOf: () => null,
    setPrototypeOf: () => false,
  });

  return {
    view,
    isKnown,
    get: (id) => {
      if (!isKnown(id)) throw new Error(`[Directive] Unknown derivation: ${id}`);
      return read(id);
    },
    invalidate,
    observe: (id) => observed.add(id),
    // No listener is notified until what this gives is called.
    hold: () => {
      holds += 1;
      let isHeld = true;
      return () => {
        if (!isHeld) return;
        isHeld = false;
        holds -= 1;
        notify();
      };
    },
    subscribe: (ids, listener) => {
      for (const id of ids) listeners.set(id, (listeners.get(id) ?? new Set()).add(listener));
      return () => ids.forEach((id) => listeners.get(id)?.delete(listener));
    },
    pendingCount: () => (observed.size === 0 ? 0 : roots.size),
    observedCount: () => observed.size,
    // Adds to a set of changed keys the observed derivations that may have changed.
    collectInvalidated: (changed) => {
      const queue = [...roots];
      const seen = new Set(queue);
      roots.clear();
      if (observed.size === 0) return;
      while (queue.length > 0) {
        const id = queue.pop();
        if (observed.has(id)) changed.add(derivationKey(id));
        for (const reader of readers.get(derivationKey(id)) ?? []) {
          if (!seen.has(reader)) queue.push(reader);
          seen.add(reader);
        }
      }
    },
    // Of the observed derivations, those that are still among the keys that constraints and effects have read.
    retainObserved: (keys) => {
      const live = new Set([...keys].filter(isDerivationKey).map(plainName));
      for (const id of observed) if (!live.has(id)) observed.delete(id);
    },
  };
};
