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

  // What the program changes of these later has no effect here.
  const text = String;
  const { stringify } = JSON;
  const { apply } = Reflect;
  const { toWellFormed } = text.prototype;
  const isError = Error.prototype.isPrototypeOf;

  // Strings are printed unchanged, stores and snapshots as their contents.
  const shown = (value) => {
    if (typeof value !== "object" || value === null) return text(value);
    try {
      if (apply(isError, Error.prototype, [value])) return text(value);
      if (typeof value.$store?.toObject === "function") return stringify(value.$store.toObject());
      if (typeof value.$snapshot === "function") return stringify(value.$snapshot());
      return stringify(value) ?? text(value);
    } catch {
      try {
        return text(value);
      } catch {
        return "[unprintable]";
      }
    }
  };
  const { write } = host;
  const writer = (level) =>
    function () {
      let line = "";
      for (let at = 0; at < arguments.length; at += 1) line += (at === 0 ? "" : " ") + shown(arguments[at]);
      write(level, apply(toWellFormed, line, []));
    };

  // The stack of an error, as the program reads it: its message, and the places in the files as they were
  // written. Frames of the realm's own scripts are left out.
  const { place } = host;
  Error.prepareStackTrace = (error, frames) => {
    let stack;
    try {
      stack = text(error);
    } catch {
      stack = "Error";
    }
    for (let at = 0; at < frames.length; at += 1) {
      const frame = frames[at];
      const file = frame.getFileName();
      const found = typeof file === "string" ? place(file, frame.getLineNumber() ?? 0, frame.getColumnNumber() ?? 0) : undefined;
      if (found === undefined) continue;
      const name = frame.getFunctionName();
      stack += name && name !== "<anonymous>" ? `\n    at ${name} (${found})` : `\n    at ${found}`;
    }
    return stack;
  };
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
    [Boolean, (value) => Object(value.valueOf())],
    [Number, (value) => Object(value.valueOf())],
    [String, (value) => Object(value.valueOf())],
    [BigInt, (value) => Object(value.valueOf())],
  ]);
  if (typeof SharedArrayBuffer === "function") copies.set(SharedArrayBuffer, (value) => value);
  const errors = new Map([Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((type) => [type.name, type]));
  // The kinds of objects that have no copy.
  const refused = [Promise, WeakMap, WeakSet, ...(typeof WeakRef === "function" ? [WeakRef] : [])];
  const views = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array];
  if (typeof Float16Array === "function") views.push(Float16Array);
  const viewType = (value) => views.find((type) => value instanceof type);
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
    if (refused.some((type) => value instanceof type)) throw new DataCloneError(`${String(value)} could not be cloned`);
    if (ArrayBuffer.isView(value)) {
      const buffer = clone(value.buffer, seen);
      const length = value instanceof DataView ? value.byteLength : value.length;
      const type = value instanceof DataView ? DataView : viewType(value);
      return keep(new type(buffer, value.byteOffset, length));
    }
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
      const type = errors.get(value.name) ?? Error;
      const copy = keep(Object.create(type.prototype));
      const held = (name, item) => Object.defineProperty(copy, name, { value: item, writable: true, configurable: true });
      if (value.message !== undefined && Object.hasOwn(value, "message")) held("message", String(value.message));
      if (typeof value.stack === "string") held("stack", value.stack);
      if (Object.hasOwn(value, "cause")) held("cause", clone(value.cause, seen));
      if (Object.hasOwn(value, "errors")) held("errors", clone(value.errors, seen));
      return copy;
    }
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  };
  define("structuredClone", function structuredClone(value, options) {
    if (arguments.length === 0) throw new TypeError("structuredClone requires a value");
    const moved = [...(options?.transfer ?? [])];
    const seen = new Map();
    for (const buffer of moved) {
      if (!(buffer instanceof ArrayBuffer) || buffer.detached) throw new DataCloneError("only an ArrayBuffer can be transferred");
    }
    const copy = (item) => clone(item, seen);
    for (const buffer of moved) seen.set(buffer, buffer.transfer());
    return copy(value);
  });

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
    encodeInto(text, target) {
      let [read, written] = [0, 0];
      for (const character of String(text).toWellFormed()) {
        const bytes = host.encode(character);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        read += character.length;
        written += bytes.length;
      }
      return { read, written };
    }
  });
  // How many bytes at the end are the beginning of a character that is not complete.
  const incomplete = (bytes) => {
    for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
      const byte = bytes[bytes.length - back];
      if ((byte & 0xc0) === 0x80) continue;
      const length = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xc2 && byte < 0xe0 ? 2 : 1;
      if (length <= back) return 0;
      const next = back > 1 ? bytes[bytes.length - back + 1] : undefined;
      // The second byte of some first bytes has a narrower range.
      const isWrong = next !== undefined && ((byte === 0xe0 && next < 0xa0) || (byte === 0xed && next > 0x9f) || (byte === 0xf0 && next < 0x90) || (byte === 0xf4 && next > 0x8f));
      return isWrong ? 0 : back;
    }
    return 0;
  };
  const LABELS = ["unicode-1-1-utf-8", "unicode11utf8", "unicode20utf8", "utf-8", "utf8", "x-unicode20utf8"];
  define("TextDecoder", class TextDecoder {
    #fatal;
    #ignoreBOM;
    // The bytes of the last call that are not decoded yet, and whether the text has begun.
    #rest = new Uint8Array();
    #hasBegun = false;
    constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
      if (!LABELS.includes(String(label).trim().toLowerCase())) throw new RangeError(`the encoding ${label} is not supported`);
      this.#fatal = Boolean(fatal);
      this.#ignoreBOM = Boolean(ignoreBOM);
    }
    get encoding() {
      return "utf-8";
    }
    get fatal() {
      return this.#fatal;
    }
    get ignoreBOM() {
      return this.#ignoreBOM;
    }
    decode(view = new Uint8Array(), { stream = false } = {}) {
      const given = ArrayBuffer.isView(view) ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(view);
      let bytes = given;
      if (this.#rest.length > 0) {
        bytes = new Uint8Array(this.#rest.length + given.length);
        bytes.set(this.#rest);
        bytes.set(given, this.#rest.length);
      }
      const left = stream ? incomplete(bytes) : 0;
      const whole = bytes.subarray(0, bytes.length - left);
      this.#rest = bytes.slice(bytes.length - left);
      const text = host.decode(host.narrow(whole), this.#fatal);
      if (text === undefined) {
        this.#rest = new Uint8Array();
        this.#hasBegun = false;
        throw new TypeError("the bytes are not valid UTF-8");
      }
      const isFirst = !this.#hasBegun && text.length > 0;
      this.#hasBegun = stream && (this.#hasBegun || text.length > 0);
      return isFirst && !this.#ignoreBOM && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
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
