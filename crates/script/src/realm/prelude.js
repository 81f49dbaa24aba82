// The globals of a realm besides the language itself: console, timers and the web APIs that need no
// network. A function that takes the host's services and returns the functions that run the timers.
(host) => {
  "use strict";
  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
  // The web's name of the global object. Packages that do not find it compile code from strings.
  define("self", globalThis);

  // Converts bytes to a string with one character per byte, as the host takes them.
  host.narrow = (bytes) => {
    const pieces = [];
    for (let at = 0; at < bytes.length; at += 8192) {
      pieces.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
    }
    return pieces.join("");
  };

  // Strings are printed unchanged, stores and snapshots as their contents.
  const shown = (value) => {
    if (typeof value !== "object" || value === null) return String(value);
    try {
      if (value instanceof Error) return String(value);
      if (typeof value.$store?.toObject === "function") return JSON.stringify(value.$store.toObject());
      if (typeof value.$snapshot === "function") return JSON.stringify(value.$snapshot());
      return JSON.stringify(value) ?? String(value);
    } catch {
      try {
        return String(value);
      } catch {
        return "[unprintable]";
      }
    }
  };
  const writer = (level) => (...values) => host.write(level, values.map(shown).join(" ").toWellFormed());
  define("console", {
    log: writer("log"),
    info: writer("log"),
    debug: writer("log"),
    trace: writer("log"),
    dir: writer("log"),
    table: writer("log"),
    warn: writer("warn"),
    error: writer("error"),
    assert: (condition, ...values) => condition || writer("error")("Assertion failed", ...values),
    group: writer("log"),
    groupCollapsed: writer("log"),
    groupEnd: () => {},
    time: () => {},
    timeEnd: () => {},
    count: () => {},
  });

  const timers = new Map();
  let lastTimer = 0;
  const timer = (repeats) => (callback, delay = 0, ...values) => {
    if (typeof callback !== "function") throw new TypeError("the callback of a timer must be a function");
    const interval = Math.min(Math.max(Number(delay) || 0, 0), 2 ** 31 - 1);
    lastTimer += 1;
    timers.set(lastTimer, { callback, values, interval, repeats, due: host.now() + interval });
    return lastTimer;
  };
  const clear = (id) => {
    timers.delete(id);
  };
  define("setTimeout", timer(false));
  define("setInterval", timer(true));
  define("clearTimeout", clear);
  define("clearInterval", clear);
  const next = () => {
    let first;
    for (const [id, entry] of timers) {
      if (first === undefined || entry.due < first[1].due) first = [id, entry];
    }
    return first;
  };

  class DataCloneError extends Error {
    name = "DataCloneError";
  }
  const copies = new Map([
    [Date, (value) => new Date(value.getTime())],
    [RegExp, (value) => new RegExp(value.source, value.flags)],
    [ArrayBuffer, (value) => value.slice(0)],
  ]);
  const clone = (value, seen) => {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new DataCloneError(`${String(value)} could not be cloned`);
    }
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => {
      seen.set(value, copy);
      return copy;
    };
    for (const [type, copy] of copies) {
      if (value instanceof type) return keep(copy(value));
    }
    if (ArrayBuffer.isView(value)) return keep(value.slice());
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [key, item] of value) copy.set(clone(key, seen), clone(item, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const item of value) copy.add(clone(item, seen));
      return copy;
    }
    if (value instanceof Error) {
      const copy = keep(new Error(value.message));
      copy.name = value.name;
      return copy;
    }
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  };
  define("structuredClone", (value) => clone(value, new Map()));

  Math.random = () => host.draw();
  define("crypto", {
    getRandomValues(array) {
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      if (bytes.length > 65536) throw new RangeError("more than 65536 bytes were requested");
      bytes.set(host.random(bytes.length));
      return array;
    },
    randomUUID() {
      const bytes = host.random(16);
      bytes[6] = (bytes[6] & 15) | 64;
      bytes[8] = (bytes[8] & 63) | 128;
      const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
      return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    },
  });

  define("TextEncoder", class TextEncoder {
    get encoding() {
      return "utf-8";
    }
    encode(text = "") {
      return host.encode(String(text).toWellFormed());
    }
  });
  define("TextDecoder", class TextDecoder {
    #fatal;
    constructor(label = "utf-8", { fatal = false } = {}) {
      if (!/^utf-?8$/i.test(label)) throw new RangeError(`the encoding ${label} is not supported`);
      this.#fatal = fatal;
    }
    get encoding() {
      return "utf-8";
    }
    decode(view = new Uint8Array()) {
      const bytes = ArrayBuffer.isView(view)
        ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
        : new Uint8Array(view);
      const text = host.decode(host.narrow(bytes), this.#fatal);
      if (text === undefined) throw new TypeError("the bytes are not valid UTF-8");
      return text;
    }
  });

  return {
    // Milliseconds until the next timer, or -1.
    due() {
      const first = next();
      return first === undefined ? -1 : Math.max(first[1].due - host.now(), 0);
    },
    fire() {
      const first = next();
      if (first === undefined || first[1].due > host.now()) return;
      const [id, entry] = first;
      if (entry.repeats) entry.due = host.now() + Math.max(entry.interval, 1);
      else timers.delete(id);
      entry.callback(...entry.values);
    },
  };
}
