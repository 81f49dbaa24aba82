// structuredClone. A function without arguments.
() => {
  "use strict";
  const failure = (message) => new DOMException(message, "DataCloneError");
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
      throw failure(`${String(value)} could not be cloned`);
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
    if (refused.some((type) => value instanceof type)) throw failure(`${String(value)} could not be cloned`);
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
  const structuredClone = function structuredClone(value, options) {
    if (arguments.length === 0) throw new TypeError("the value must be given");
    const moved = [...(options?.transfer ?? [])];
    for (const buffer of moved) {
      if (!(buffer instanceof ArrayBuffer)) throw failure("only an ArrayBuffer can be transferred");
      if (buffer.detached) throw failure("the ArrayBuffer has been transferred before");
    }
    if (new Set(moved).size < moved.length) throw failure("an ArrayBuffer is transferred twice");
    const copy = clone(value, new Map());
    for (const buffer of moved) buffer.transfer();
    return copy;
  };
  Object.defineProperty(globalThis, "structuredClone", { value: structuredClone, writable: true, configurable: true });
}
