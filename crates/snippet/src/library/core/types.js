// `t`: types of facts. A type has checks, which every value of a fact must pass, and methods that give a
// narrower type. Facts get no value from `default`, and `transform` converts nothing: as in the package, both
// only describe.

const isMap = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const passes = (type, value) => type._validators.every((check) => check(value));
const nameOf = (type) => type._typeName ?? "unknown";

// A type with nothing but `validate`.
const plain = (name, checks, about = {}) => ({
  _type: undefined,
  _validators: checks,
  _typeName: name,
  _default: about.value,
  _transform: about.transform,
  _description: about.description,
  _refinements: about.refinements,
  _meta: about.meta,
  validate: (check) => plain(name, [...checks, check], about),
});

// A type with the methods of all types.
const common = (name, checks, about = {}) => {
  const extended = (more) => common(name, checks, { ...about, ...more });
  const wider = (label, value) => common(`${name} | ${label}`, [(one) => one === value || checks.every((check) => check(one))], { ...about, refinements: undefined });
  return {
    ...plain(name, checks, about),
    default: (value) => extended({ value }),
    describe: (description) => extended({ description }),
    meta: (meta) => extended({ meta }),
    refine: (predicate, message) => common(name, [...checks, predicate], { ...about, refinements: [...(about.refinements ?? []), { predicate, message }] }),
    brand: () => common(`Branded<${name}>`, checks, about),
    nullable: () => wider("null", null),
    optional: () => wider("undefined", undefined),
    transform: (convert) => common(name, [], { ...about, value: undefined, refinements: undefined, transform: (value) => convert(about.transform ? about.transform(value) : value) }),
  };
};

// A type with limits of its own, which stay after the methods in `keeps`. `limits` gives a check for each.
const limited = (name, checks, limits, keeps, about = {}) => {
  const narrower = (more, added = []) => limited(name, [...checks, ...added], limits, keeps, { ...about, ...more });
  const type = common(name, checks, about);
  type.default = (value) => narrower({ value });
  type.describe = (description) => narrower({ description });
  type.meta = (meta) => narrower({ meta });
  if (keeps) type.refine = (predicate, message) => narrower({ refinements: [...(about.refinements ?? []), { predicate, message }] }, [predicate]);
  for (const [limit, check] of Object.entries(limits)) {
    type[limit] = (...given) => {
      const failed = { index: -1 };
      return narrower(limit === "of" ? { failed } : {}, [check(failed, ...given)]);
    };
  }
  // Which item of an array has failed.
  if (about.failed) {
    const { failed } = about;
    Object.defineProperty(type, "_lastFailedIndex", { get: () => failed.index, set: (index) => (failed.index = index), enumerable: true });
  }
  return type;
};

const LENGTH = {
  minLength: (_, least) => (value) => value.length >= least,
  maxLength: (_, most) => (value) => value.length <= most,
};
const STRING = { ...LENGTH, pattern: (_, expression) => (value) => expression.test(value) };
const NUMBER = { min: (_, least) => (value) => value >= least, max: (_, most) => (value) => value <= most };
const ARRAY = {
  ...LENGTH,
  nonEmpty: () => (value) => value.length > 0,
  of: (failed, type) => (value) => {
    const index = value.findIndex((item) => !passes(type, item));
    if (index >= 0) failed.index = index;
    return index < 0;
  },
};
const OBJECT = {
  nonNull: () => (value) => value !== null && value !== undefined,
  hasKeys: (_, ...keys) => (value) => keys.every((key) => key in value),
  shape: (_, types) => (value) => Object.entries(types).every(([key, type]) => !type || passes(type, value[key])),
};

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i;
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/;
const isText = (value) => typeof value === "string";
const warnEmpty = (name, effect) => console.warn(`[Directive] t.${name}() without values accepts ${effect}`);

export const t = {
  string: () => limited("string", [isText], STRING, true),
  number: () => limited("number", [(value) => typeof value === "number"], NUMBER, true),
  boolean: () => common("boolean", [(value) => typeof value === "boolean"]),
  bigint: () => common("bigint", [(value) => typeof value === "bigint"]),
  date: () => common("Date", [(value) => value instanceof Date && !Number.isNaN(value.getTime())]),
  uuid: () => common("uuid", [(value) => isText(value) && UUID.test(value)]),
  email: () => common("email", [(value) => isText(value) && EMAIL.test(value)]),
  url: () => common("url", [(value) => isText(value) && URL.canParse(value)]),
  array: () => limited("array", [(value) => Array.isArray(value)], ARRAY, false),
  object: () => limited("object", [isMap], OBJECT, false),
  enum: (...values) => {
    if (values.length === 0) warnEmpty("enum", "no text");
    const known = new Set(values);
    return common(`enum(${values.join("|")})`, [(value) => isText(value) && known.has(value)]);
  },
  literal: (expected) => common(`literal(${String(expected)})`, [(value) => value === expected]),
  nullable: (type) => plain(`${nameOf(type)} | null`, [(value) => value === null || passes(type, value)]),
  optional: (type) => plain(`${nameOf(type)} | undefined`, [(value) => value === undefined || passes(type, value)]),
  union: (...types) => (types.length === 0 ? common("union", []) : common(types.map(nameOf).join(" | "), [(value) => types.some((type) => passes(type, value))])),
  record: (type) => common(`Record<string, ${nameOf(type)}>`, [(value) => isMap(value) && Object.values(value).every((one) => passes(type, one))]),
  tuple: (...types) => {
    if (types.length === 0) warnEmpty("tuple", "only empty arrays");
    return common(`[${types.map(nameOf).join(", ")}]`, [(value) => Array.isArray(value) && value.length === types.length && types.every((type, at) => passes(type, value[at]))]);
  },
  any: () => common("any", []),
  unknown: () => common("unknown", []),
};
