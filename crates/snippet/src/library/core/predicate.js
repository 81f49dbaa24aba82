// Conditions, texts and changes of facts that are data: predicates, templates and patches.
import { isReserved } from "./refusal.js";
import { stableText } from "./requirements.js";

// How deeply predicates may be nested.
const MAX_DEPTH = 100;
const warn = (message) => console.warn(`[Directive] ${message}`);

const isMap = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Date) && !(value instanceof RegExp);
const isPlain = (value) => isMap(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value));

// Equality by content.
const equal = (a, b, seen = new Map()) => {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (a instanceof Date && b instanceof Date) return a.getTime() === b.getTime();
  if (seen.get(a)?.has(b)) return true;
  seen.set(a, (seen.get(a) ?? new Set()).add(b));
  if (Array.isArray(a) || Array.isArray(b)) return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, at) => equal(item, b[at], seen));
  for (const type of [Set, Map]) {
    if (!(a instanceof type) && !(b instanceof type)) continue;
    if (!(a instanceof type) || !(b instanceof type) || a.size !== b.size) return false;
    const left = [...b];
    return [...a].every((item) => {
      const at = left.findIndex((other) => equal(item, other, seen));
      if (at >= 0) left.splice(at, 1);
      return at >= 0;
    });
  }
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && equal(a[key], b[key], seen));
};

const comparable = (value) => (value instanceof Date ? value.getTime() : ["number", "bigint", "string"].includes(typeof value) ? value : undefined);
const compare = (test) => (actual, operand) => {
  const [a, b] = [comparable(actual), comparable(operand)];
  return a !== undefined && b !== undefined && typeof a === typeof b && test(a, b);
};
const atLeast = compare((a, b) => a >= b);
const atMost = compare((a, b) => a <= b);
const OPERATORS = {
  $eq: (actual, operand) => equal(actual, operand),
  $ne: (actual, operand) => !equal(actual, operand),
  $in: (actual, operand) => Array.isArray(operand) && operand.some((one) => equal(actual, one)),
  $nin: (actual, operand) => Array.isArray(operand) && !operand.some((one) => equal(actual, one)),
  $exists: (actual, operand) => operand === (actual !== undefined),
  $changed: (actual, operand, before) => !equal(actual, before),
  $gt: compare((a, b) => a > b),
  $gte: atLeast,
  $lt: compare((a, b) => a < b),
  $lte: atMost,
  $between: (actual, operand) => {
    if (!Array.isArray(operand) || operand.length !== 2) return false;
    if (compare((low, high) => low > high)(operand[0], operand[1])) warn("$between needs the smaller value first");
    return atLeast(actual, operand[0]) && atMost(actual, operand[1]);
  },
  $matches: (actual, operand) => {
    if (!(operand instanceof RegExp)) throw new Error("[Directive] $matches: operand must be a RegExp");
    return typeof actual === "string" && operand.test(actual);
  },
  $startsWith: (actual, operand) => typeof actual === "string" && actual.startsWith(String(operand)),
  $endsWith: (actual, operand) => typeof actual === "string" && actual.endsWith(String(operand)),
  $contains: (actual, operand) => {
    if (typeof actual === "string") return actual.includes(String(operand));
    if (Array.isArray(actual)) return actual.some((one) => equal(one, operand));
    return actual instanceof Set && actual.has(operand);
  },
};
const isOperator = (key) => Object.hasOwn(OPERATORS, key);
const apply = (name, actual, operand, before) => isOperator(name) && OPERATORS[name](actual, operand, before);

// Whether a value is an object of operators. A name that looks like one is taken for a mistake in one.
const isOperators = (value) => {
  if (!isMap(value)) return false;
  const keys = Object.keys(value);
  if (keys.length === 0 || !keys.every((key) => key.startsWith("$"))) return false;
  for (const key of keys) if (!isOperator(key)) warn(`there is no operator "${key}"; there are ${Object.keys(OPERATORS).join(", ")}`);
  return true;
};

export const isPredicate = (value) => (Array.isArray(value) ? value.every((clause) => isPlain(clause) && "fact" in clause && "op" in clause) : isPlain(value));
export const isTemplate = (value) => isMap(value) && Object.hasOwn(value, "$template") && typeof value.$template === "string";

const within = (value) => (isMap(value) ? value : {});

export const evaluatePredicate = (spec, facts, before = undefined, depth = 0) => {
  if (depth > MAX_DEPTH) {
    warn("a predicate is nested too deeply, or contains itself");
    return false;
  }
  const again = (inner) => evaluatePredicate(inner, facts, before, depth + 1);
  if (Array.isArray(spec)) return spec.every((clause) => isMap(clause) && apply(clause.op, facts?.[clause.fact], clause.value, before?.[clause.fact]));
  if (!isMap(spec)) return Boolean(spec);
  if ("$all" in spec) return spec.$all.every(again);
  if ("$any" in spec) return spec.$any.some(again);
  if ("$not" in spec) return !again(spec.$not);
  return Object.keys(spec).every((key) => {
    if (isOperator(key)) {
      warn(`the operator "${key}" is among facts: it belongs into an object for a fact`);
      return false;
    }
    const [value, actual, last] = [spec[key], facts?.[key], before?.[key]];
    if (isOperators(value)) return Object.keys(value).every((name) => apply(name, actual, value[name], last));
    if (isMap(value)) return evaluatePredicate(value, within(actual), isMap(last) ? last : undefined, depth + 1);
    return equal(actual, value);
  });
};

// The clauses of a predicate, with what each expects and finds.
export const evaluatePredicateExplained = (spec, facts, before = undefined, prefix = "") => {
  const clause = (path, op, expected, actual, last) => ({ path, op, expected, actual, pass: apply(op, actual, expected, last) });
  if (Array.isArray(spec)) return spec.filter(isMap).map(({ fact, op, value }) => clause(prefix + fact, op, value, facts?.[fact], before?.[fact]));
  if (!isMap(spec)) return [];
  const combinator = ["$all", "$any", "$not"].find((name) => name in spec);
  if (combinator !== undefined) {
    const parts = combinator === "$not" ? [spec.$not] : spec[combinator];
    const children = parts.flatMap((part) => evaluatePredicateExplained(part, facts, before, prefix));
    const actual = children.filter(({ pass }) => pass).length;
    const isAll = actual === children.length;
    const pass = { $all: isAll, $any: actual > 0, $not: !isAll }[combinator];
    return [{ path: prefix || combinator, op: combinator, expected: parts.length, actual, pass, children }];
  }
  return Object.keys(spec).filter((key) => !isOperator(key)).flatMap((key) => {
    const [value, actual, last] = [spec[key], facts?.[key], before?.[key]];
    if (isOperators(value)) return Object.keys(value).map((name) => clause(prefix + key, name, value[name], actual, last));
    if (isMap(value)) return evaluatePredicateExplained(value, within(actual), isMap(last) ? last : undefined, `${prefix}${key}.`);
    return [clause(prefix + key, "$eq", value, actual)];
  });
};

// The facts that a predicate names.
export const extractDeps = (spec, prefix = "", into = new Set()) => {
  if (Array.isArray(spec)) {
    for (const clause of spec) if (isMap(clause) && typeof clause.fact === "string") into.add(prefix + clause.fact);
  } else if (isMap(spec)) {
    if ("$all" in spec || "$any" in spec) (spec.$all ?? spec.$any).forEach((part) => extractDeps(part, prefix, into));
    else if ("$not" in spec) extractDeps(spec.$not, prefix, into);
    else {
      for (const [key, value] of Object.entries(spec)) {
        if (key.startsWith("$")) continue;
        if (isMap(value) && !isOperators(value)) extractDeps(value, `${prefix}${key}.`, into);
        else into.add(prefix + key);
      }
    }
  }
  return into;
};

// Whether an operator is anywhere in a predicate.
export const hasOperator = (spec, name, depth = 0) => {
  if (depth > MAX_DEPTH || typeof spec !== "object" || spec === null) return false;
  if (Array.isArray(spec)) return spec.some((part) => part?.op === name || hasOperator(part, name, depth + 1));
  return Object.keys(spec).some((key) => key === name || hasOperator(spec[key], name, depth + 1));
};

const known = new WeakMap();
export const memoizePredicate = (spec) => {
  if (typeof spec !== "object" || spec === null) throw new Error(`[Directive] memoizePredicate: predicate must be a plain object or array; got ${typeof spec}`);
  if (!known.has(spec)) known.set(spec, (facts, before) => evaluatePredicate(spec, facts, before));
  return known.get(spec);
};

// `$${` is a text, `${name}` the value of a name.
const PLACEHOLDER = /\$\$\{|\$\{([^}]*)\}/g;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const replaceNames = (template, replace) =>
  template.$template.replace(PLACEHOLDER, (whole, name) => (name === undefined ? "${" : replace(name)));

export const evaluateTemplate = (template, scope) =>
  replaceNames(template, (name) => {
    const problem = !NAME.test(name) ? "is no name" : !(scope !== undefined && scope !== null && Object.hasOwn(scope, name)) ? "is not known" : undefined;
    const value = problem === undefined ? scope[name] : undefined;
    const isText = value !== undefined && value !== null && typeof value !== "symbol";
    if (!isText) warn(`"${name}" in a template ${problem ?? `is ${String(value)}`}`);
    return isText ? String(value) : "";
  });
export const extractTemplateKeys = (template) => {
  const names = new Set();
  replaceNames(template, (name) => {
    if (NAME.test(name)) names.add(name);
    return "";
  });
  return names;
};

export const evaluateKeySelector = (names, source) => names.map((name) => stableText(source?.[name])).join("|");

export const applyPatch = ({ $set }, facts, payload) => {
  for (const [key, value] of Object.entries($set)) {
    const isReference = isMap(value) && Object.hasOwn(value, "$ref") && typeof value.$ref === "string";
    if (isReference && !Object.hasOwn(payload ?? {}, value.$ref)) warn(`the event has no "${value.$ref}" for the fact "${key}"`);
    facts[key] = isTemplate(value) ? evaluateTemplate(value, payload ?? {}) : isReference ? (isReserved(value.$ref) ? undefined : payload?.[value.$ref]) : value;
  }
};
