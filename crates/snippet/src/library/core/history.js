// The history of a system: its facts after each change, to go back and forward in.
import { isSafe } from "./refusal.js";

const MAX_SNAPSHOTS = 100;
const MANY_KEYS = 5;

const copyOf = (facts) => {
  try {
    return structuredClone(facts);
  } catch {
    try {
      return JSON.parse(JSON.stringify(facts));
    } catch {
      return { ...facts };
    }
  }
};

const check = (data) => {
  if (typeof data !== "object" || data === null) throw new Error("Invalid history data: an object is needed");
  if (data.version !== 1) throw new Error(`Unsupported history export version: ${data.version}`);
  if (!Array.isArray(data.snapshots) || typeof data.currentIndex !== "number") throw new Error("Invalid history data: snapshots and currentIndex are needed");
  for (const { id, timestamp, trigger, facts } of data.snapshots) {
    if (typeof id !== "number" || typeof timestamp !== "number" || typeof trigger !== "string" || typeof facts !== "object") throw new Error("Invalid snapshot structure");
    if (!isSafe(facts)) throw new Error("Invalid fact data: a key is reserved");
  }
};

export const createHistory = (option, facts, store, plugins) => {
  const limit = option?.maxSnapshots ?? MAX_SNAPSHOTS;
  const snapshots = [];
  const groups = [];
  let index = -1;
  let nextId = 1;
  let isPaused = false;
  let isRestoring = false;
  let group = null;
  const listeners = new Set();

  const restore = ({ facts: held }) => {
    isPaused = true;
    isRestoring = true;
    try {
      if (!isSafe(held)) return console.error("[Directive] a snapshot with a reserved key is not restored");
      store.batch(() => Object.assign(facts, held));
    } finally {
      isPaused = false;
      isRestoring = false;
    }
  };
  const go = (to) => {
    const from = index;
    if (from === to || snapshots[to] === undefined) return;
    index = to;
    restore(snapshots[to]);
    plugins.emit("onHistoryNavigate", from, to);
    listeners.forEach((listener) => listener());
  };

  const api = {
    get isEnabled() {
      return true;
    },
    get isRestoring() {
      return isRestoring;
    },
    get isPaused() {
      return isPaused;
    },
    get snapshots() {
      return [...snapshots];
    },
    get currentIndex() {
      return index;
    },
    restore,
    goBack: (steps = 1) => {
      const within = groups.find(({ start, end }) => index > start && index <= end);
      if (within) return go(within.start);
      const earlier = groups.some(({ start }) => index === start) && groups.find(({ end }) => end < index && index - end <= steps);
      go(earlier ? earlier.start : Math.max(0, index - steps));
    },
    goForward: (steps = 1) => {
      const within = groups.find(({ start, end }) => index >= start && index < end);
      go(within ? within.end : Math.min(snapshots.length - 1, index + steps));
    },
    goTo: (id) => {
      const to = snapshots.findIndex((snapshot) => snapshot.id === id);
      if (to < 0) console.warn(`[Directive] Snapshot ${id} not found`);
      else go(to);
    },
    replay: () => {
      if (snapshots.length === 0) return;
      index = 0;
      restore(snapshots[0]);
    },
    export: () => JSON.stringify({ version: 1, snapshots, currentIndex: index }),
    import: (json) => {
      try {
        const data = JSON.parse(json);
        check(data);
        snapshots.splice(0, snapshots.length, ...data.snapshots);
        index = data.currentIndex;
        if (snapshots[index]) restore(snapshots[index]);
      } catch (error) {
        console.error("[Directive] Failed to import history data:", error);
      }
    },
    beginChangeset: (label) => (group = { label, start: index }),
    endChangeset: () => {
      if (group !== null && index > group.start) groups.push({ ...group, end: index });
      group = null;
    },
    pause: () => void (isPaused = true),
    resume: () => void (isPaused = false),
  };

  return {
    api: option ? api : null,
    get isRestoring() {
      return isRestoring;
    },
    onChange: (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    // Keeps the facts after a change of these keys.
    take: (changed) => {
      if (!option || isPaused) return;
      const keys = [...changed];
      const more = keys.length > MANY_KEYS ? `+${keys.length - MANY_KEYS}more` : "";
      const snapshot = { id: nextId, timestamp: Date.now(), facts: copyOf(store.toObject()), trigger: `facts-changed:${keys.slice(0, MANY_KEYS).join(",")}${more}` };
      nextId += 1;
      snapshots.splice(index + 1);
      snapshots.push(snapshot);
      while (snapshots.length > limit) snapshots.shift();
      index = snapshots.length - 1;
      plugins.emit("onSnapshot", snapshot);
      listeners.forEach((listener) => listener());
    },
  };
};
