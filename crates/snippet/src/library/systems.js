// All systems that a snippet creates, and their facts and derivations at its end. The built-in functions are
// taken before the first line of the snippet, which may change them.
const { stringify, parse } = JSON;
const { apply } = Reflect;
const { defineProperty, keys, getPrototypeOf, hasOwn, prototype: plainPrototype } = Object;
const { isArray } = Array;
const text = String;
const { toISOString, getTime } = Date.prototype;
const { forEach: forEachEntry } = Map.prototype;
const { forEach: forEachItem } = Set.prototype;
const { isPrototypeOf } = Object.prototype;
const { startsWith, slice, toWellFormed } = String.prototype;
const dates = Date.prototype;
const maps = Map.prototype;
const sets = Set.prototype;
const errorPrototype = Error.prototype;
const Unserializable = TypeError;

const is = (prototype, value) => apply(isPrototypeOf, prototype, [value]);
// Setting an element could call a setter of the snippet.
const put = (target, key, value) => defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });
const append = (list, value) => put(list, list.length, value);

const systems = [];

export const register = (system, modules) => {
  append(systems, { system, modules });
};

const MAX_DEPTH = 200;

// Halves of surrogate pairs cannot leave the realm.
const quoted = (value) => stringify(apply(toWellFormed, value, []));

// A value as JSON text; undefined for what JSON leaves out. An own conversion of a class is used, but none
// that was added to the prototype of all objects.
const encode = (value, depth) => {
  if (depth > MAX_DEPTH) throw new Unserializable("the value is nested too deeply, or contains itself");
  if (typeof value === "bigint") return stringify(text(value));
  if (typeof value === "string") return quoted(value);
  if (typeof value !== "object" || value === null) return stringify(value);
  if (is(dates, value)) return apply(getTime, value, []) === apply(getTime, value, []) ? stringify(apply(toISOString, value, [])) : "null";
  if (is(maps, value)) {
    const found = {};
    apply(forEachEntry, value, [(item, key) => put(found, text(key), item)]);
    return encode(found, depth + 1);
  }
  if (is(sets, value)) {
    const found = [];
    apply(forEachItem, value, [(item) => append(found, item)]);
    return encode(found, depth + 1);
  }
  const own = value.toJSON;
  if (typeof own === "function" && own !== plainPrototype.toJSON) return encode(apply(own, value, []), depth + 1);
  let written = "";
  if (isArray(value)) {
    for (let at = 0; at < value.length; at += 1) written += (at === 0 ? "" : ",") + (encode(value[at], depth + 1) ?? "null");
    return `[${written}]`;
  }
  const names = keys(value);
  for (let at = 0; at < names.length; at += 1) {
    const item = encode(value[names[at]], depth + 1);
    if (item !== undefined) written += `${written === "" ? "" : ","}${quoted(names[at])}:${item}`;
  }
  return `{${written}}`;
};

const message = (error) => {
  try {
    return text(is(errorPrototype, error) ? error.message : error);
  } catch {
    return "it threw";
  }
};

// The installed package has one store for a system of several modules. It is available only through
// the facts of each module, and its keys are `module::fact`.
const held = (system, modules) => {
  const { $store } = system.facts;
  if ($store !== undefined) return $store.toObject();
  const facts = {};
  for (let at = 0; at < modules.length; at += 1) {
    const { name } = modules[at];
    const before = `${name}::`;
    const all = system.facts[name].$store.toObject();
    const own = {};
    const names = keys(all);
    for (let of = 0; of < names.length; of += 1) {
      if (apply(startsWith, names[of], [before])) put(own, apply(slice, names[of], [before.length]), all[names[of]]);
    }
    put(facts, name, own);
  }
  return facts;
};

const one = ({ system, modules }, errors) => {
  const taken = { facts: {}, derived: {} };
  try {
    taken.facts = parse(encode(held(system, modules), 0));
  } catch (error) {
    append(errors, `facts snapshot failed: ${message(error)}`);
  }
  for (let at = 0; at < modules.length; at += 1) {
    const { space, name, derivations } = modules[at];
    for (let of = 0; of < derivations.length; of += 1) {
      const key = derivations[of];
      try {
        const written = encode((space ? system.derive[name] : system.derive)[key], 0);
        if (written === undefined) continue;
        if (space && !hasOwn(taken.derived, name)) put(taken.derived, name, {});
        put(space ? taken.derived[name] : taken.derived, key, parse(written));
      } catch (error) {
        append(errors, `derivation "${key}" snapshot failed: ${message(error)}`);
      }
    }
  }
  return taken;
};

// A single system is reported directly; of several, each is reported under the names of its modules.
export const snapshot = () => {
  const errors = [];
  const facts = {};
  const derived = {};
  for (let at = 0; at < systems.length; at += 1) {
    const entry = systems[at];
    const taken = one(entry, errors);
    let name = "";
    for (let of = 0; of < entry.modules.length; of += 1) name += (of === 0 ? "" : "+") + entry.modules[of].name;
    if (hasOwn(facts, name)) name += `#${at + 1}`;
    if (systems.length === 1) return encode({ facts: taken.facts, derived: taken.derived, errors }, 0);
    put(facts, name, taken.facts);
    put(derived, name, taken.derived);
  }
  return encode({ facts, derived, errors }, 0);
};
