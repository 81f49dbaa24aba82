// The facts of a system: a store that checks values against the schema and reports changes, and the object
// through which snippets read and set them.
import { isReserved } from "./refusal.js";
import { recordRead, untracked } from "./tracking.js";

const { create, defineProperty, is } = Object;

// How often listeners may cause further changes before that counts as endless.
const MAX_NOTIFICATIONS = 100;

const shown = (value) => {
  try {
    return JSON.stringify(value)?.slice(0, 100) ?? String(value);
  } catch {
    return "[circular or non-serializable]";
  }
};
const kindOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

const isZod = (type) => typeof type?.safeParse === "function" && typeof type.parse === "function" && "_def" in type;

const fail = (key, expected, value, more) => {
  throw new Error(`[Directive] Validation failed for "${key}": expected ${expected}, got ${kindOf(value)} ${shown(value)}${more}`);
};

const checkZod = (key, type, value) => {
  const { success, error } = type.safeParse(value);
  if (success) return;
  const expected = type._def?.typeName?.replace(/^Zod/, "").toLowerCase() ?? "unknown";
  fail(key, expected, value, `. ${error?.message ?? error?.issues?.[0]?.message ?? "Validation failed"}`);
};

const checkType = (key, type, value) => {
  if (!Array.isArray(type._validators)) return;
  type._validators.forEach((check, at) => {
    if (typeof check !== "function" || check(value)) return;
    const index = type._lastFailedIndex;
    const item = typeof index === "number" && index >= 0 ? ` (element at index ${index} failed)` : "";
    if (item !== "") type._lastFailedIndex = -1;
    fail(key, type._typeName ?? "unknown", value, `${at === 0 ? "" : ` (validator ${at + 1} failed)`}${item}`);
  });
};

// `hooks` has what happens with changes: `changed(key, value, before)` for one outside of a batch, `batched(changes)`
// at the end of a batch, `written(key)` for each within a batch, `opened()` and `closed()` around a batch.
export const createStore = (schema, hooks) => {
  // What a snippet does to the prototypes of built-in objects changes no fact.
  const values = create(null);
  const listeners = new Map();
  const allListeners = new Set();
  const isStrict = Object.keys(schema).length > 0;
  const changes = [];
  const dirty = new Set();
  const waiting = [];
  let depth = 0;
  let isNotifying = false;

  const check = (key, value) => {
    const type = schema[key];
    if (!type) {
      if (isStrict) throw new Error(`[Directive] Unknown fact key: "${key}": the schema does not have it`);
      console.warn(`[Directive] Unknown fact key: "${key}"`);
      return;
    }
    if (isZod(type)) checkZod(key, type, value);
    else checkType(key, type, value);
  };

  const notify = (key) => listeners.get(key)?.forEach((listener) => listener());
  const notifyAll = () => allListeners.forEach((listener) => listener());
  const drain = () => {
    for (let round = 1; waiting.length > 0; round += 1) {
      if (round > MAX_NOTIFICATIONS) {
        waiting.length = 0;
        throw new Error(`[Directive] Infinite notification loop: listeners changed facts ${MAX_NOTIFICATIONS} times`);
      }
      for (const { key, value, before } of waiting.splice(0)) {
        hooks.changed(key, value, before);
        notify(key);
      }
      notifyAll();
    }
  };

  const change = (key, value, before, type) => {
    if (depth > 0) {
      changes.push({ key, value, prev: before, type });
      dirty.add(key);
      hooks.written(key);
    } else if (isNotifying) {
      waiting.push({ key, value, before });
    } else {
      isNotifying = true;
      try {
        hooks.changed(key, value, before);
        notify(key);
        notifyAll();
        drain();
      } finally {
        isNotifying = false;
      }
    }
  };

  const flush = () => {
    if (depth > 0) return;
    if (changes.length > 0) hooks.batched([...changes]);
    hooks.closed();
    if (dirty.size > 0) {
      isNotifying = true;
      try {
        for (const key of dirty) notify(key);
        notifyAll();
        drain();
      } finally {
        isNotifying = false;
      }
    }
    changes.length = 0;
    dirty.clear();
  };

  return {
    get: (key) => {
      recordRead(key);
      return values[key];
    },
    has: (key) => {
      recordRead(key);
      return key in values;
    },
    set: (key, value) => {
      check(key, value);
      const before = values[key];
      if (is(before, value)) return;
      values[key] = value;
      change(key, value, before, "set");
    },
    delete: (key) => {
      const before = values[key];
      delete values[key];
      change(key, undefined, before, "delete");
    },
    batch: (action) => {
      if (depth === 0) hooks.opened();
      depth += 1;
      try {
        action();
      } finally {
        depth -= 1;
        flush();
      }
    },
    subscribe: (keys, listener) => {
      for (const key of keys) listeners.set(key, (listeners.get(key) ?? new Set()).add(listener));
      return () => keys.forEach((key) => listeners.get(key)?.delete(listener));
    },
    subscribeAll: (listener) => {
      allListeners.add(listener);
      return () => allListeners.delete(listener);
    },
    toObject: () => {
      const facts = {};
      for (const key in values) defineProperty(facts, key, { value: values[key], writable: true, enumerable: true, configurable: true });
      return facts;
    },
    destroy: () => {
      listeners.clear();
      allListeners.clear();
    },
  };
};

// The value of a fact as a reader has it: a change within an object is made, with a warning, since nothing is
// notified of it.
const inner = new WeakMap();
const watched = (object, fact, path) =>
  new Proxy(object, {
    get: (target, key) => {
      if (isReserved(key)) return undefined;
      const value = Reflect.get(target, key);
      if (typeof key === "symbol" || typeof value !== "object" || value === null) return value;
      // What is frozen must be given as it is, and cannot be changed.
      const own = Reflect.getOwnPropertyDescriptor(target, key);
      if (own?.configurable === false && own.writable === false) return value;
      if (!inner.has(value)) inner.set(value, watched(value, fact, `${path}.${key}`));
      return inner.get(value);
    },
    set: (target, key, value) => {
      if (typeof key !== "symbol") console.warn(`[Directive] no listener is notified of a change of facts.${path}.${key}: set facts.${fact} to a new value`);
      return Reflect.set(target, key, value);
    },
  });

const plainKind = (value) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  for (const kind of [Date, Set, Map]) if (value instanceof kind) return kind.name;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype ? undefined : "ClassInstance";
};
const warned = new Set();
// Warns once for a fact that is set to an object that JSON does not keep.
export const warnUnlessPlain = (fact, value) => {
  const kind = plainKind(value);
  const about = `${fact} ${kind}`;
  if (kind === undefined || warned.has(about)) return;
  warned.add(about);
  console.warn(`[Directive] the fact "${fact}" is set to a ${kind}: changes within it notify no listener; use a value that JSON keeps`);
};

export const viewOf = (store, schema) => {
  const snapshot = () => ({ get: (key) => untracked(() => store.get(key)), has: (key) => untracked(() => store.has(key)) });
  const isHidden = (key) => key === "$store" || key === "$snapshot";
  const isClosed = (key) => typeof key === "symbol" || isHidden(key) || isReserved(key);
  return new Proxy({}, {
    get: (target, key) => {
      if (key === "$store") return store;
      if (key === "$snapshot") return snapshot;
      if (isClosed(key)) return undefined;
      const value = store.get(key);
      return typeof value === "object" && value !== null ? watched(value, key, key) : value;
    },
    set: (target, key, value) => {
      if (isClosed(key)) return false;
      warnUnlessPlain(key, value);
      store.set(key, value);
      return true;
    },
    deleteProperty: (target, key) => {
      if (isClosed(key)) return false;
      store.delete(key);
      return true;
    },
    has: (target, key) => isHidden(key) || (!isClosed(key) && store.has(key)),
    ownKeys: () => Object.keys(schema),
    getOwnPropertyDescriptor: (target, key) => (isReserved(key) ? undefined : { configurable: true, enumerable: !isHidden(key), writable: !isHidden(key) }),
    defineProperty: () => false,
    getPrototypeOf: () => null,
    setPrototypeOf: () => false,
  });
};
