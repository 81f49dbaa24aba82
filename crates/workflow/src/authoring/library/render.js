// Converts elements to a tree of plain values, which the host reads and checks.
// Functions stay here; the host refers to them by their numbers.
import { described } from "stockade:agents";
import { Element, Fragment, GROUPS, kindOf, placeOf } from "stockade:elements";
import { idOf } from "stockade:sandbox";
import { SmithersError, isWorkflow, isZod, tableOf, useCtx, within } from "stockade:smithers";
import { Head, Differences } from "stockade:differences";

// All schemas so far, by their numbers.
const schemas = [];
const numbers = new Map();
const zods = [];

// Adds all copies of zod that the program imports.
export const useZods = (modules) => {
  for (const name in modules) zods.push(modules[name]);
};

const zodOf = (target) => {
  const schema = tableOf(target)?.schema ?? target;
  return typeof schema?.safeParse === "function" && isZod(schema) ? schema : undefined;
};

// A zod schema converts a value itself, with defaults and refinements. Other
// schemas leave the value unchanged, and the host validates it.
export const parsed = (target, value, code) => {
  const schema = zodOf(target);
  if (schema === undefined) return value;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const told = (result.error?.issues ?? []).slice(0, 5).map((issue) => `/${issue.path.join("/")}: ${issue.message}`);
  throw new SmithersError(code, told.join("; "));
};

// The input of a workflow, as its function receives it.
export const given = (workflow, input) => {
  const schema = workflow.schemas?.input;
  return schema === undefined ? input : parsed(schema, input, "INVALID_INPUT_VALUE");
};

const jsonSchema = (schema) => {
  if (typeof schema === "boolean" || !isZod(schema)) return schema;
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

const output = (target, known) => {
  // A misspelt name of an output is undefined.
  if (target === undefined) return { $: "nothing", known };
  if (typeof target === "string" || target === null) return target;
  if (typeof target !== "object" && typeof target !== "function") return target;
  const table = tableOf(target);
  if (table !== undefined) return { $: "table", key: table.key, schema: schemaNumber(table.schema) };
  return { $: "table", schema: schemaNumber(target) };
};

// A value that JSON cannot express is replaced by an object with the key `$`.
const plain = (value) => {
  if (typeof value === "function") return { $: "function" };
  if (typeof value === "number" && !Number.isFinite(value)) return { $: "number", value: String(value) };
  if (typeof value === "bigint") return { $: "number", value: String(value) };
  if (value instanceof Date) return { $: "date", value: value.toISOString() };
  if (value instanceof Element) return { $: "element" };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  }
  return value;
};

// `by` returns what a result depends on; it may read values that do not exist yet.
const kept = (cache) => {
  if (typeof cache?.by !== "function") return cache;
  try {
    return { ...cache, by: cache.by(useCtx()) ?? null };
  } catch (error) {
    return { ...cache, by: { $: "unknown", message: String(error?.message ?? error) } };
  }
};

// The text of the content between the tags of a prompt.
const text = (content) => {
  if (content === undefined || content === null || typeof content === "boolean") return "";
  if (Array.isArray(content)) return content.map(text).join("");
  if (content instanceof Element) {
    if (content.type === Fragment) return text(content.props.children);
    if (typeof content.type === "function" && kindOf(content.type) === undefined) return text(content.type(content.props));
    throw new SmithersError("INVALID_INPUT", `<${String(content.type)}> cannot be in a prompt`);
  }
  return typeof content === "object" ? JSON.stringify(content) : String(content);
};

const answer = (value) => {
  const found = value?.object ?? value?.output ?? value?.text ?? value;
  if (typeof found !== "string") return found;
  const fenced = /```(?:json)?\s*\n([\s\S]*?)\n```/.exec(found);
  try {
    return JSON.parse(fenced?.[1] ?? found);
  } catch (error) {
    throw new SmithersError("INVALID_OUTPUT", `the agent did not return JSON: ${error.message}`);
  }
};

const agent = (given) => {
  if (typeof given === "function") return async (prompt, signal, heartbeat) => answer(await given({ prompt, signal, heartbeat }));
  if (typeof given?.generate === "function") return async (prompt, signal, heartbeat) => answer(await given.generate({ prompt, signal, heartbeat }));
  return undefined;
};

// A number for each function that is the same in all renderings, so that a number from one rendering
// can be used after the next. It is derived from the element and from the role of the function in it.
const numberOf = (id, role) => {
  let high = 0x811c9dc5;
  let low = 0x1b873593;
  for (const character of `${role} ${id}`) {
    const code = character.codePointAt(0);
    high = Math.imul(high ^ code, 0x01000193);
    low = Math.imul(low ^ code, 0x85ebca6b);
    low ^= low >>> 13;
  }
  return (high >>> 11) * 2 ** 32 + (low >>> 0);
};

const named = (source, message) => {
  const place = placeOf(source);
  return new SmithersError("INVALID_INPUT", place === undefined ? message : `${place.file}:${place.line}:${place.column} — ${message}`);
};

// A description of a value that is not an element, for messages.
const kindOfValue = (value) => {
  if (typeof value === "function") return "a function";
  if (typeof value?.then === "function") return "a promise";
  return typeof value === "object" ? "an object" : JSON.stringify(value);
};

const hasElement = (content) => content instanceof Element || (Array.isArray(content) && content.some(hasElement));

// The numbers that were assigned, by name, and the names.
const refs = new Map();
const names = new Map();

// The function for each role, from the attributes of its element.
const FUNCTIONS = {
  workflow: ({ workflow }) => workflow,
  read: ({ output: target }) => (written) => parsed(target, answer(written), "INVALID_OUTPUT"),
  agent: ({ agent: asked, output: target }) => {
    const call = agent(asked);
    return async (...given) => parsed(target, await call(...given), "INVALID_OUTPUT");
  },
  content: ({ children, agent: asked, output: target }) => {
    // An invalid value for the table is a failure of the task, not of the rendering.
    if (typeof children !== "function") return () => parsed(target, children, "INVALID_OUTPUT");
    if (asked !== undefined) return async (...given) => text(await children(...given));
    return async (...given) => parsed(target, await children(...given), "INVALID_OUTPUT");
  },
};

export class Rendering {
  // The names of the tables of the workflow.
  #known;
  #differences;

  constructor(known, told) {
    this.#known = known;
    this.#differences = new Differences(told);
  }

  // The functions of elements that were not sent unchanged, by their numbers.
  functions = new Map();
  // The ids of the elements that have a workflow, by the number of its function.
  nodes = new Map();
  // The parts of sandboxes that are not plain values, by the ids of the sandboxes.
  sandboxes = new Map();

  #function(head, role) {
    const { id } = head.element.props;
    const name = `${role} ${id}`;
    const ref = refs.get(name) ?? numberOf(id, role);
    const other = names.get(ref);
    if (other !== undefined && other !== name) {
      throw new SmithersError("INVALID_INPUT", `"${id}" and "${other}" have the same number: give one of them another id`);
    }
    refs.set(name, ref);
    names.set(ref, name);
    this.functions.set(ref, { head, role });
    return { $: "function", ref };
  }

  // `made` is an error with the location at which the workflow was created.
  read(root, before, made) {
    const found = [];
    const wrong = (message) => Object.assign(made ?? new SmithersError(), { name: "SmithersError", code: "INVALID_INPUT", message });
    if (typeof root?.then === "function") throw wrong("the function passed to smithers() must not be async: it only declares the tasks, whose functions do the work");
    this.#walk(root, found, [before]);
    if (found.length === 0) throw wrong("the function passed to smithers() must return one <Workflow>, but returned nothing: a function with braces needs `return`");
    if (found.length > 1) throw wrong(`the function passed to smithers() must return one <Workflow>, not ${found.length} elements`);
    this.#differences.ends(found[0]);
  }

  // As JSON: the differences to the last rendering that was kept if the host has that, or the whole.
  text(isKnown) {
    return this.#differences.text(isKnown);
  }

  // Updates the run. Functions that the rendering no longer contains are retained, since they may still run.
  keep(run) {
    this.#differences.keep();
    for (const [number, called] of this.functions) run.functions.set(number, called);
    run.nodes = this.nodes;
    run.sandboxes = this.sandboxes;
  }

  // `before` contains the nodes that were found here the last time, `source` is
  // the location of the nearest enclosing element.
  #walk(value, found, before, source) {
    if (value === undefined || value === null || typeof value === "boolean") return;
    if (Array.isArray(value)) {
      for (const item of value) this.#walk(item, found, before, source);
      return;
    }
    if (!(value instanceof Element)) {
      const asynchronous = typeof value?.then === "function" ? ": a component must not be async, only functions of tasks can be" : "";
      throw named(source, `${kindOfValue(value)} is not allowed between elements${asynchronous || ": a workflow consists of elements such as <Task>"}`);
    }
    const inPlace = before[found.length];
    let node = this.#differences.kept(value, inPlace);
    if (node === undefined) {
      const kind = kindOf(value.type);
      if (kind === undefined) {
        this.#other(value, found, before, value.source ?? source);
        return;
      }
      node = this.#differences.other(this.#head(kind, value), inPlace);
    }
    found.push(node);
    if (node.isGroup) this.#group(node, value);
  }

  // Expands a fragment or a component.
  #other({ type, props }, found, before, source) {
    if (type === Fragment) this.#walk(props.children, found, before, source);
    else if (typeof type === "function") this.#walk(type(props), found, before, source);
    else throw named(source, `${String(type)} is not an element: is it imported?`);
  }

  #group(node, { props, source }) {
    const list = [];
    const held = node.kind !== "branch" ? props.children : props.if ? props.then : props.else;
    if (props.skipIf !== true) this.#walk(held, list, node.list, source);
    this.#differences.holds(node, list);
  }

  #head(kind, element) {
    const head = new Head(kind, element);
    const { props } = element;
    if (head.isGroup) {
      const { children, then, else: otherwise, ...rest } = props;
      const told = plain(rest);
      if (kind === "branch" && children !== undefined && props.skipIf !== true) told.children = true;
      return head.tell(told, true);
    }
    if (props.skipIf === true) return head.tell({ id: props.id, skipIf: true }, true);
    const { children, output: target, schema, agent: asked, workflow, provider, deps, cache, ...rest } = props;
    const told = plain(cache === undefined ? rest : { ...rest, cache: kept(cache) });
    if ("output" in props) told.output = output(target, this.#known);
    if (schema !== undefined) told.schema = output(schema, this.#known);
    if (deps !== undefined) told.deps = Object.fromEntries(Object.keys(deps ?? {}).map((name) => [name, true]));
    if (isWorkflow(workflow)) {
      told.workflow = this.#function(head, "workflow");
      this.nodes.set(told.workflow.ref, props.id);
    } else if (workflow !== undefined) told.workflow = plain(workflow);
    if (provider !== undefined && provider !== null) {
      // The provider that an id refers to is looked up when it is called.
      this.sandboxes.set(props.id, { provider, workflow, input: props.input });
      told.provider = { $: "provider", id: idOf(provider) };
    }
    const command = described(asked);
    if (command !== undefined) told.agent = { ...plain(command), $: "agent", read: this.#function(head, "read").ref };
    else if (asked !== undefined) told.agent = agent(asked) === undefined ? plain(asked) : this.#function(head, "agent");
    else if ("agent" in props && typeof children !== "function") told.agent = { $: "nothing" };
    if (kind === "task" && hasElement(children)) told.children = { $: "element" };
    else if (kind === "task") told.children = this.#content(head);
    else if (children !== undefined) told.children = plain(children);
    return head.tell(told, asked !== undefined || zodOf(target) === undefined);
  }

  // The content between the tags of a task.
  #content(head) {
    const { children, agent: asked, output: target } = head.element.props;
    if (typeof children === "function") return this.#function(head, "content");
    if (asked !== undefined) {
      const prompt = text(children);
      return prompt === "" ? undefined : { $: "value", value: prompt };
    }
    if (children === undefined) return undefined;
    try {
      return { $: "value", value: parsed(target, children, "INVALID_OUTPUT") };
    } catch {
      return this.#function(head, "content");
    }
  }
}

// The function with a number that was sent to the host.
export const functionOf = (run, number) => {
  const found = run.functions.get(number);
  return found && FUNCTIONS[found.role](found.head.element.props);
};

// The workflow of an element.
export const workflowOf = (run, id) => {
  const found = [...run.nodes].find(([, node]) => node === id);
  return found && functionOf(run, found[0]);
};

// Renders the workflow of a run; returns the rendering, and the tables that it read.
export const renderingOf = (run) => {
  const rendering = new Rendering(Object.keys(run.workflow.schemas ?? {}), run.lastRendering);
  const { read } = run.watching(() => within(run.ctx, () => rendering.read(run.workflow.build(run.ctx), run.lastRendering.root, run.workflow.made)));
  return { rendering, read };
};
