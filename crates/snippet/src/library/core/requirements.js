// Requirements, and what makes two of them the same one: type and content, or the key that a resolver gives.

// A value as text in which the order of keys does not matter.
const stable = (value, seen, depth) => {
  if (depth > 50) return '"[max depth exceeded]"';
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "function" || typeof value === "symbol") return `"[${typeof value}]"`;
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Date) return `D:${value.toISOString()}`;
  if (value instanceof RegExp) return `R:${value.source}:${value.flags}`;
  if (value instanceof Map) return `M:${stable([...value.entries()].sort(), seen, depth + 1)}`;
  if (value instanceof Set) return `S:${stable([...value].sort(), seen, depth + 1)}`;
  if (seen.has(value)) return '"[circular]"';
  seen.add(value);
  const written = Array.isArray(value)
    ? `[${value.map((item) => stable(item, seen, depth + 1)).join(",")}]`
    : `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${stable(value[key], seen, depth + 1)}`).join(",")}}`;
  seen.delete(value);
  return written;
};
export const stableText = (value) => stable(value, new WeakSet(), 0);

export const generateRequirementId = (requirement, key) => {
  if (key) return key(requirement);
  const { type, ...rest } = requirement;
  return `${type}:${stableText(rest)}`;
};

// The key that a resolver gives: a function, or the names of members.
export const keyFunction = (key) =>
  Array.isArray(key) ? (requirement) => key.map((name) => stableText(requirement[name])).join("|") : key;

export const req = (type) => (members) => ({ type, ...members });
export const isRequirementType = (requirement, type) => requirement.type === type;
export const forType = (type) => (requirement) => requirement.type === type;

// Requirements with their ids; of two with the same id the first one stays.
export class RequirementSet {
  #byId = new Map();

  add(requirement) {
    if (!this.#byId.has(requirement.id)) this.#byId.set(requirement.id, requirement);
  }

  remove(id) {
    return this.#byId.delete(id);
  }

  has(id) {
    return this.#byId.has(id);
  }

  get(id) {
    return this.#byId.get(id);
  }

  all() {
    return [...this.#byId.values()];
  }

  ids() {
    return [...this.#byId.keys()];
  }

  get size() {
    return this.#byId.size;
  }

  clear() {
    this.#byId.clear();
  }

  clone() {
    const copy = new RequirementSet();
    for (const requirement of this.all()) copy.add(requirement);
    return copy;
  }

  diff(other) {
    return {
      added: this.all().filter(({ id }) => !other.has(id)),
      removed: other.all().filter(({ id }) => !this.has(id)),
      unchanged: this.all().filter(({ id }) => other.has(id)),
    };
  }
}
