// From elements to a tree of plain values, which the host reads and checks. Functions stay here and
// are known to the host by their numbers in the rendering.
import { described } from "stockade:agents";
import { Element, Fragment, kindOf } from "stockade:elements";
import { idOf } from "stockade:sandbox";
import { SmithersError, isWorkflow, isZod, tableOf, useCtx, within } from "stockade:smithers";

const GROUPS = new Set(["workflow", "sequence", "parallel", "merge-queue", "loop", "branch"]);

// Every schema that was met, in the order of its number.
const schemas = [];
const numbers = new Map();
const zods = [];

// Every zod that the program imports.
export const useZods = (modules) => {
  for (const name in modules) zods.push(modules[name]);
};

// A schema of zod says itself what a value is, with defaults and refinements; others leave the value
// as it is, and the host looks at it.
export const parsed = (target, value, code) => {
  const schema = tableOf(target)?.schema ?? target;
  if (typeof schema?.safeParse !== "function" || !isZod(schema)) return value;
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const told = (result.error?.issues ?? []).slice(0, 5).map((issue) => `/${issue.path.join("/")}: ${issue.message}`);
  throw new SmithersError(code, told.join("; "));
};

// The input of a workflow as its function gets it.
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
    throw new SmithersError("INVALID_INPUT", "this schema is of a zod that cannot tell it as JSON Schema: zod 4 can");
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
  // Whoever wrote a name that is not there has one that is nothing.
  if (target === undefined) return { $: "nothing", known };
  if (typeof target === "string" || target === null) return target;
  if (typeof target !== "object" && typeof target !== "function") return target;
  const table = tableOf(target);
  if (table !== undefined) return { $: "table", key: table.key, schema: schemaNumber(table.schema) };
  return { $: "table", schema: schemaNumber(target) };
};

// What JSON cannot say is said by an object with the key `$`.
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

// `by` says what a result depends on; it may look for what is not there yet.
const kept = (cache) => {
  if (typeof cache?.by !== "function") return cache;
  try {
    return { ...cache, by: cache.by(useCtx()) ?? null };
  } catch (error) {
    return { ...cache, by: { $: "unknown", message: String(error?.message ?? error) } };
  }
};

// Text of what stands between the tags of a prompt.
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
    throw new SmithersError("INVALID_OUTPUT", `the agent did not answer with JSON: ${error.message}`);
  }
};

const agent = (given) => {
  if (typeof given === "function") return async (prompt, signal, heartbeat) => answer(await given({ prompt, signal, heartbeat }));
  if (typeof given?.generate === "function") return async (prompt, signal, heartbeat) => answer(await given.generate({ prompt, signal, heartbeat }));
  return undefined;
};

// A number for each function that does not change between renderings: who was told it in one may
// call it after the next. It follows from the element and from what the function is to it.
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

const named = (place, message) => new SmithersError("INVALID_INPUT", place === undefined ? message : `${place.file}:${place.line}:${place.column} — ${message}`);

// What something is that is no element, for people.
const kindOfValue = (value) => {
  if (typeof value === "function") return "a function";
  if (typeof value?.then === "function") return "a promise";
  return typeof value === "object" ? "an object" : JSON.stringify(value);
};

const hasElement = (content) => content instanceof Element || (Array.isArray(content) && content.some(hasElement));

// The numbers that were asked for: those of a workflow of many tasks are, in each rendering.
const refs = new Map();

export class Rendering {
  // The names of the tables of the workflow.
  #known;

  constructor(known = []) {
    this.#known = known;
  }

  functions = new Map();
  #named = new Map();
  // The ids of the elements that have a workflow, by its number among the functions.
  nodes = new Map();
  // What sandboxes have besides plain values, by their ids.
  sandboxes = new Map();

  #function(id, role, call) {
    const name = `${role} ${id}`;
    const ref = refs.get(name) ?? numberOf(id, role);
    refs.set(name, ref);
    const other = this.#named.get(ref);
    if (other !== undefined && other !== name) {
      throw new SmithersError("INVALID_INPUT", `"${id}" and "${other}" cannot be told apart: give one of them another id`);
    }
    this.#named.set(ref, name);
    this.functions.set(ref, call);
    return { $: "function", ref };
  }

  // The workflow that an element has.
  workflowOf(id) {
    const found = [...this.nodes].find(([, node]) => node === id);
    return found && this.functions.get(found[0]);
  }

  // `made` is an error of the place where the workflow was made.
  tree(root, made) {
    const found = [];
    const wrong = (message) => Object.assign(made ?? new SmithersError(), { name: "SmithersError", code: "INVALID_INPUT", message });
    if (typeof root?.then === "function") throw wrong("the function given to smithers() must not be async: it says what is to be done, and functions of tasks do it");
    this.#walk(root, found);
    if (found.length === 0) throw wrong("the function given to smithers() must answer with one <Workflow>, not nothing: one with braces needs `return`");
    if (found.length > 1) throw wrong(`the function given to smithers() must answer with one <Workflow>, not ${found.length} elements`);
    return found[0];
  }

  // `place` is where the nearest element around was written.
  #walk(value, found, place) {
    if (value === undefined || value === null || typeof value === "boolean") return;
    if (Array.isArray(value)) {
      for (const item of value) this.#walk(item, found, place);
      return;
    }
    if (!(value instanceof Element)) {
      const asynchronous = typeof value?.then === "function" ? ": a component is not async, functions of tasks are" : "";
      throw named(place, `${kindOfValue(value)} cannot stand between elements${asynchronous || ": a workflow consists of <Task> and the like"}`);
    }
    const kind = kindOf(value.type);
    const own = value.place ?? place;
    if (value.type === Fragment) this.#walk(value.props.children, found, own);
    else if (kind === undefined && typeof value.type === "function") this.#walk(value.type(value.props), found, own);
    else if (kind === undefined) throw named(own, `${String(value.type)} is no element: is it imported?`);
    else found.push(this.#host(kind, value));
  }

  #host(kind, { props, place }) {
    const node = { kind, place, props: {}, children: [] };
    if (GROUPS.has(kind)) {
      const { children, then, else: otherwise, ...rest } = props;
      node.props = plain(rest);
      if (props.skipIf === true) return node;
      if (kind === "branch" && children !== undefined) node.props.children = true;
      if (kind === "branch") this.#walk(props.if ? then : otherwise, node.children, place);
      else this.#walk(children, node.children, place);
      return node;
    }
    if (props.skipIf === true) {
      node.props = { id: props.id, skipIf: true };
      return node;
    }
    const { children, output: target, schema, agent: asked, workflow, provider, deps, cache, ...rest } = props;
    node.props = plain(cache === undefined ? rest : { ...rest, cache: kept(cache) });
    if ("output" in props) node.props.output = output(target, this.#known);
    if (schema !== undefined) node.props.schema = output(schema, this.#known);
    if (deps !== undefined) node.props.deps = Object.fromEntries(Object.keys(deps ?? {}).map((name) => [name, true]));
    if (isWorkflow(workflow)) {
      node.props.workflow = this.#function(props.id, "workflow", workflow);
      this.nodes.set(node.props.workflow.ref, props.id);
    } else if (workflow !== undefined) node.props.workflow = plain(workflow);
    if (provider !== undefined && provider !== null) {
      // Which one an id means is known when it is asked for something.
      this.sandboxes.set(props.id, { provider, workflow, input: props.input });
      node.props.provider = { $: "provider", id: idOf(provider) };
    }
    const command = described(asked);
    if (command !== undefined) {
      const read = this.#function(props.id, "read", (written) => parsed(target, answer(written), "INVALID_OUTPUT"));
      node.props.agent = { ...plain(command), $: "agent", read: read.ref };
    } else if (asked !== undefined) {
      const call = agent(asked);
      const checked = async (...given) => parsed(target, await call(...given), "INVALID_OUTPUT");
      node.props.agent = call === undefined ? plain(asked) : this.#function(props.id, "agent", checked);
    }
    else if ("agent" in props && typeof children !== "function") node.props.agent = { $: "nothing" };
    if (kind === "task" && hasElement(children)) node.props.children = { $: "element" };
    else if (kind === "task") this.#content(children, asked !== undefined, target, node.props);
    else if (children !== undefined) node.props.children = plain(children);
    return node;
  }

  #content(children, isPrompt, target, props) {
    if (typeof children === "function") {
      const call = isPrompt
        ? async (...given) => text(await children(...given))
        : async (...given) => parsed(target, await children(...given), "INVALID_OUTPUT");
      props.children = this.#function(props.id, "content", call);
    } else if (isPrompt) {
      const prompt = text(children);
      if (prompt !== "") props.children = { $: "value", value: prompt };
    } else if (children !== undefined) {
      try {
        props.children = { $: "value", value: parsed(target, children, "INVALID_OUTPUT") };
      } catch (error) {
        // The task fails, not the rendering.
        props.children = this.#function(props.id, "content", () => {
          throw error;
        });
      }
    }
  }
}

// Renders the workflow of a run: the rendering, its tree, and the tables that it looked into.
export const renderingOf = (run) => {
  const rendering = new Rendering(Object.keys(run.workflow.schemas ?? {}));
  const { value: tree, read } = run.watching(() => within(run.ctx, () => rendering.tree(run.workflow.build(run.ctx), run.workflow.made)));
  return { rendering, tree, read };
};
