// All systems that a snippet creates, and their facts and derivations at its end.
const systems = [];

export const register = (system, modules) => {
  systems.push({ system, modules });
};

// Converts values that JSON cannot express. JSON.stringify omits functions and undefined.
const plain = (key, value) => {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  return value;
};

const message = (error) => (error instanceof Error ? error.message : String(error));

// The installed package has one store for a system of several modules. It is available only through
// the facts of each module, and its keys are `module::fact`.
const held = (system, modules) => {
  const { $store } = system.facts;
  if ($store !== undefined) return $store.toObject();
  const facts = {};
  for (const { name } of modules) {
    const before = `${name}::`;
    const all = Object.entries(system.facts[name].$store.toObject());
    const own = all.filter(([key]) => key.startsWith(before));
    facts[name] = Object.fromEntries(own.map(([key, value]) => [key.slice(before.length), value]));
  }
  return facts;
};

const one = ({ system, modules }, errors) => {
  const taken = { facts: {}, derived: {} };
  try {
    taken.facts = JSON.parse(JSON.stringify(held(system, modules), plain));
  } catch (error) {
    errors.push(`facts snapshot failed: ${message(error)}`);
  }
  for (const { space, name, derivations } of modules) {
    for (const key of derivations) {
      try {
        const value = (space ? system.derive[name] : system.derive)[key];
        const text = JSON.stringify(value, plain);
        if (text === undefined) continue;
        const target = space ? (taken.derived[name] ??= {}) : taken.derived;
        target[key] = JSON.parse(text);
      } catch (error) {
        errors.push(`derivation "${key}" snapshot failed: ${message(error)}`);
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
  for (const [index, entry] of systems.entries()) {
    const taken = one(entry, errors);
    let name = entry.modules.map((module) => module.name).join("+");
    if (Object.hasOwn(facts, name)) name += `#${index + 1}`;
    if (systems.length === 1) {
      Object.assign(facts, taken.facts);
      Object.assign(derived, taken.derived);
    } else {
      facts[name] = taken.facts;
      derived[name] = taken.derived;
    }
  }
  return JSON.stringify({ facts, derived, errors });
};
