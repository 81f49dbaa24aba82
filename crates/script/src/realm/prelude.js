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
      let line = indent;
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
  // Groups indent lines; counts and times have names.
  let indent = "";
  const counts = new Map();
  const times = new Map();
  const label = (given) => text(given ?? "default");
  const [log, warn, fail] = ["log", "warn", "error"].map(writer);
  const elapsed = (name, values) => {
    if (!times.has(name)) return warn(`there is no time "${name}"`);
    log(`${name}: ${(host.now() - times.get(name)).toFixed(3)}ms`, ...values);
  };
  const group = (...values) => {
    if (values.length > 0) log(...values);
    indent += "  ";
  };
  const console = {
    log,
    info: log,
    debug: log,
    trace: log,
    dir: (value) => log(value),
    dirxml: log,
    table: (value) => log(value),
    warn,
    error: fail,
    assert: (condition, ...values) => {
      if (condition) return;
      if (typeof values[0] === "string") fail(`Assertion failed: ${values[0]}`, ...values.slice(1));
      else fail("Assertion failed", ...values);
    },
    group,
    groupCollapsed: group,
    groupEnd: () => {
      indent = indent.slice(2);
    },
    time: (name) => {
      if (times.has(label(name))) warn(`there is a time "${label(name)}" already`);
      else times.set(label(name), host.now());
    },
    timeLog: (name, ...values) => elapsed(label(name), values),
    timeEnd: (name) => {
      elapsed(label(name), []);
      times.delete(label(name));
    },
    count: (name) => {
      counts.set(label(name), (counts.get(label(name)) ?? 0) + 1);
      log(`${label(name)}: ${counts.get(label(name))}`);
    },
    countReset: (name) => {
      if (!counts.delete(label(name))) warn(`there is no count "${label(name)}"`);
    },
  };
  Object.defineProperty(console, Symbol.toStringTag, { value: "console", configurable: true });
  define("console", console);

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

  Math.random = () => host.draw();
  const integers = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array];
  const crypto = {
    getRandomValues(array) {
      if (arguments.length === 0) throw new TypeError("the array must be given");
      if (!integers.some((type) => array instanceof type)) throw new DOMException("the array must be a typed array of integers", "TypeMismatchError");
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      if (bytes.length > 65536) throw new DOMException("more than 65536 bytes were requested", "QuotaExceededError");
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
  };
  Object.defineProperty(crypto, Symbol.toStringTag, { value: "Crypto", configurable: true });
  define("crypto", crypto);

  // A target is kept until the running job has ended, as the language says.
  const kept = new Set();
  const keep = (target) => {
    if (kept.size === 0) Promise.resolve().then(() => kept.clear());
    kept.add(target);
    return target;
  };
  if (typeof WeakRef === "function") {
    define("WeakRef", class extends WeakRef {
      static name = "WeakRef";
      constructor(target) {
        super(target);
        keep(target);
      }
      deref() {
        const target = super.deref();
        return target === undefined ? undefined : keep(target);
      }
    });
  }
  for (const name of ["atob", "btoa"]) {
    const convert = globalThis[name];
    define(name, Object.defineProperty(function (given) {
      if (arguments.length === 0) throw new TypeError("the text must be given");
      return convert(given);
    }, "name", { value: name }));
  }

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
    get [Symbol.toStringTag]() {
      return "TextEncoder";
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
    get [Symbol.toStringTag]() {
      return "TextDecoder";
    }
    decode(view = new Uint8Array(), { stream = false } = {}) {
      const isBuffer = view instanceof ArrayBuffer || (typeof SharedArrayBuffer === "function" && view instanceof SharedArrayBuffer);
      if (!isBuffer && !ArrayBuffer.isView(view)) throw new TypeError("the bytes must be an ArrayBuffer or a view of one");
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
