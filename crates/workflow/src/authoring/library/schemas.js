// The schemas of authors: they make the row of a raw answer, and describe it to the host and to agents.
import { SmithersError, isZod, tableOf } from "stockade:smithers";

const MAX_PROBLEMS = 5;
// The member of the input with the state of the run that was continued.
const CONTINUATION = "__smithersContinuation";

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
  if (schema === undefined) return input;
  // What a run that was continued as this one has left is no part of the schema.
  if (!isObject(input) || !Object.hasOwn(input, CONTINUATION)) return parsed(schema, input, "INVALID_INPUT_VALUE");
  const { [CONTINUATION]: continuation, ...own } = input;
  return { ...parsed(schema, own, "INVALID_INPUT_VALUE"), [CONTINUATION]: continuation };
};

export const jsonSchema = (schema) => {
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

const EXAMPLES = { string: "string", number: 0, integer: 0, boolean: false, null: null };
const MAX_DEPTH = 16;

// A value that a JSON Schema describes, as an example.
const example = (schema, root, depth = 0) => {
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH) return null;
  if (typeof schema.$ref === "string") {
    const found = schema.$ref.split("/").slice(1).reduce((at, part) => at?.[part], root);
    return example(found, root, depth + 1);
  }
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  const [choice] = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  if (choice !== undefined) return example(choice, root, depth + 1);
  const type = [schema.type].flat()[0];
  if (type === "object" || schema.properties !== undefined) {
    return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, part]) => [name, example(part, root, depth + 1)]));
  }
  if (type === "array") return schema.items === undefined ? [] : [example(schema.items, root, depth + 1)];
  if (type === "string" && typeof schema.description === "string") return schema.description;
  return EXAMPLES[type] ?? null;
};

// An example of the values of an output, as JSON text; undefined for an output without a schema.
export const exampleOf = (target) => {
  const schema = isObject(target) ? jsonSchema(schemaOf(target)) : undefined;
  if (typeof schema !== "object" || schema === null || schema.properties === undefined) return undefined;
  return JSON.stringify(example(schema, schema), null, 2);
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
