// The schemas of authors: they make the row of a raw answer, and describe it to the host and to agents.
import { SmithersError, isZod, tableOf } from "stockade:smithers";

const MAX_PROBLEMS = 5;

// All schemas so far, by their numbers.
const schemas = [];
const numbers = new Map();
const zods = [];

// Adds all copies of zod that the program imports.
export const useZods = (modules) => {
  for (const name in modules) zods.push(modules[name]);
};

const NAME = Symbol.for("drizzle:Name");
const COLUMNS = Symbol.for("drizzle:Columns");
// The columns that identify a row, which are not a part of an answer.
const KEY_COLUMNS = ["runId", "nodeId", "iteration"];
const COLUMN_TYPES = { string: "string", number: "number", bigint: "number", boolean: "boolean" };

// Whether a value is a table of Drizzle.
export const isTable = (value) => typeof value === "object" && value !== null && NAME in value && COLUMNS in value;
export const tableName = (table) => table[NAME];

const schemaOfColumn = ({ dataType, enumValues, notNull }) => {
  const type = COLUMN_TYPES[dataType];
  if (type === undefined) return {};
  const values = Array.isArray(enumValues) && enumValues.length > 0 ? { enum: notNull ? enumValues : [...enumValues, null] } : {};
  return { type: notNull ? type : [type, "null"], ...values };
};

// The rows of a table of Drizzle as JSON Schema.
const schemaOfTable = (table) => {
  const columns = Object.entries(table[COLUMNS]).filter(([name]) => !KEY_COLUMNS.includes(name));
  const required = columns.filter(([, column]) => column.notNull && !column.hasDefault).map(([name]) => name);
  return { type: "object", properties: Object.fromEntries(columns.map(([name, column]) => [name, schemaOfColumn(column)])), required };
};

const schemaOf = (target) => tableOf(target)?.schema ?? target;

const isObject = (value) => (typeof value === "object" && value !== null) || typeof value === "function";

// The schema that converts a value itself, with defaults and refinements: one of zod, or of a
// library with the interface "standard schema". Other schemas leave the value unchanged, and the host validates it.
const parserOf = (target) => {
  const schema = schemaOf(target);
  if (!isObject(schema)) return undefined;
  if (typeof schema.safeParse === "function" && isZod(schema)) return schema;
  return typeof schema["~standard"]?.validate === "function" ? schema : undefined;
};

export const isParsed = (target) => parserOf(target) !== undefined;

const part = (key) => (typeof key === "object" && key !== null ? key.key : key);
const refused = (issues, code) => {
  const problems = (issues ?? []).slice(0, MAX_PROBLEMS).map((issue) => `/${(issue.path ?? []).map(part).map(String).join("/")}: ${issue.message}`);
  return new SmithersError(code, problems.join("; "));
};

const outcome = (schema, result, code) => {
  if ("~standard" in schema && typeof schema.safeParse !== "function") {
    if (result.issues === undefined) return result.value;
    throw refused(result.issues, code);
  }
  if (result.success) return result.data;
  throw refused(result.error?.issues, code);
};

const standard = (schema) => typeof schema.safeParse !== "function";

// The value that a schema makes of a raw value, at once.
export const parsed = (target, value, code) => {
  const schema = parserOf(target);
  if (schema === undefined) return value;
  const result = standard(schema) ? schema["~standard"].validate(value) : schema.safeParse(value);
  return outcome(schema, result, code);
};

// The same, also for a schema that does it asynchronously.
export const accepted = async (target, value, code) => {
  const schema = parserOf(target);
  if (schema === undefined) return value;
  if (standard(schema)) return outcome(schema, await schema["~standard"].validate(value), code);
  return outcome(schema, await (schema.safeParseAsync?.(value) ?? schema.safeParse(value)), code);
};

// The input of a workflow, as its function receives it.
export const given = (workflow, input) => {
  const schema = workflow.schemas?.input;
  return schema === undefined ? input : parsed(schema, input, "INVALID_INPUT_VALUE");
};

const jsonSchema = (schema) => {
  if (typeof schema === "boolean") return schema;
  if (isTable(schema)) return schemaOfTable(schema);
  if (!isZod(schema)) {
    if (schema["~standard"] !== undefined) return typeof schema.toJsonSchema === "function" ? schema.toJsonSchema() : {};
    try {
      return JSON.parse(JSON.stringify(schema));
    } catch (error) {
      throw new SmithersError("INVALID_INPUT", `a schema is neither of zod nor JSON: ${error?.message}`);
    }
  }
  if (typeof schema.toJSONSchema === "function") return schema.toJSONSchema({ unrepresentable: "any" });
  const zod = zods.find((module) => typeof module.toJSONSchema === "function" || typeof module.z?.toJSONSchema === "function");
  const convert = zod?.toJSONSchema ?? zod?.z?.toJSONSchema;
  if (convert === undefined) {
    throw new SmithersError("INVALID_INPUT", "this version of zod cannot convert the schema to JSON Schema: use zod 4");
  }
  return convert(schema, { unrepresentable: "any" });
};

export const schemaNumber = (schema) => {
  const known = numbers.get(schema);
  if (known !== undefined) return known;
  schemas.push(jsonSchema(schema));
  numbers.set(schema, schemas.length - 1);
  return schemas.length - 1;
};
export const schemasFrom = (first) => schemas.slice(first);

// The schema of an output as the author wrote it, for agents.
export const authorSchema = (target) => (isObject(target) ? schemaOf(target) : undefined);

// An output in the form that the host reads.
export const output = (target, known) => {
  // A misspelt name of an output is undefined.
  if (target === undefined) return { $: "nothing", known };
  if (typeof target === "string" || target === null) return target;
  if (!isObject(target)) return target;
  const table = tableOf(target);
  if (table !== undefined) return { $: "table", key: table.key, schema: schemaNumber(table.schema) };
  if (isTable(target)) return { $: "table", key: tableName(target), schema: schemaNumber(target) };
  return { $: "table", schema: schemaNumber(target) };
};
