// Converts elements to a tree of plain values, which the host reads and checks.
// Functions stay here; the host refers to them by their numbers.
import { agentsOf, asking, described, isFunction, unsupported, withTools } from "stockade:agents";
import { row } from "stockade:answers";
import { isInert } from "stockade:absent";
import { budgets } from "stockade:aspects";
import { Element, Fragment, GROUPS, kindOf, placeOf } from "stockade:elements";
import { here } from "stockade:position";
import { hasElement, text } from "stockade:prompts";
import { idOf } from "stockade:sandbox";
import { scored } from "stockade:scorers";
import { accepted, exampleOf, isParsed, output, parsed } from "stockade:schemas";
import { SmithersError, isWorkflow, useCtx, within } from "stockade:smithers";
import { plain } from "stockade:values";
import { Head, Differences } from "stockade:differences";

// `by` returns what a result depends on; it may read values that do not exist yet.
const kept = (cache) => {
  if (typeof cache?.by !== "function") return cache;
  try {
    return { ...cache, by: cache.by(useCtx()) ?? null };
  } catch (error) {
    return { ...cache, by: { $: "unknown", message: String(error?.message ?? error) } };
  }
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

const PLACED = /^\S+:\d+:\d+ — /;

// What a component renders. What it refuses is told with the place of its element.
const made = (component, props, source) => {
  try {
    return component(props);
  } catch (error) {
    const isRefusal = error instanceof SmithersError && error.code === "INVALID_INPUT" && !PLACED.test(error.message);
    throw isRefusal ? named(source, error.message) : error;
  }
};

// A description of a value that is not an element, for messages.
const kindOfValue = (value) => {
  if (typeof value === "function") return "a function";
  if (typeof value?.then === "function") return "a promise";
  return typeof value === "object" ? "an object" : JSON.stringify(value);
};

// The elements that need no id, and how the names begin that are derived for them.
const UNNAMED = { loop: "loop", "continue-as-new": "continue" };

// The numbers that were assigned, by name, and the names.
const refs = new Map();
const names = new Map();

// The value that a task's function gives, as the author's schemas make it.
const rowOf = async ({ output: target, outputSchema }, value) => {
  const checked = outputSchema === undefined ? value : await accepted(outputSchema, value, "INVALID_OUTPUT");
  return accepted(target, checked, "INVALID_OUTPUT");
};

const returned = async (props, value) => {
  try {
    return await rowOf(props, value);
  } catch (error) {
    if (value !== undefined) throw error;
    throw new SmithersError("INVALID_OUTPUT", `it returned nothing: a function with braces needs \`return\` (${error?.message})`);
  }
};

// What a task demands of the answers of its agents, and the row of an answer that has it.
const target = ({ output: table, outputSchema }) => outputSchema ?? table;
const answered = ({ output: table, outputSchema }, value) => (outputSchema === undefined ? value : accepted(table, value, "INVALID_OUTPUT"));

// A prompt that is one component gets an example of the answer as its property `schema`.
const withSchema = (content, target) => {
  if (!(content instanceof Element) || typeof content.type !== "function" || kindOf(content.type) !== undefined) return content;
  const example = content.props.schema === undefined ? exampleOf(target) : undefined;
  return example === undefined ? content : new Element(content.type, { ...content.props, schema: example }, content.source, content.key);
};

// The function for each role, from the attributes of its element.
const FUNCTIONS = {
  workflow: ({ workflow }) => workflow,
  read: (props) => async (written) => scored(props, await answered(props, await row(target(props), written))),
  agent: (props, at) => {
    const ask = asking(agentsOf(props)[at], target(props));
    return async (...given) => {
      const start = Date.now();
      return scored(props, await answered(props, await ask(...given)), given[0], start);
    };
  },
  accept: (props) => (value) => rowOf({ output: props.schema ?? props.output, outputSchema: props.outputSchema }, value),
  content: (props) => {
    const { children } = props;
    if (agentsOf(props).length > 0) {
      return async (...given) => text(withSchema(typeof children === "function" ? await children(...given) : children, target(props)));
    }
    // An invalid value for the table is a failure of the task, not of the rendering.
    if (typeof children !== "function") return () => rowOf(props, children);
    return async (...given) => {
      const start = Date.now();
      return scored(props, await returned(props, await children(...given)), undefined, start);
    };
  },
};

export class Rendering {
  // The tables of the workflow by their names, and the names.
  #outputs;
  #known;
  #differences;

  constructor({ schemas = {}, outputs = {} }, sent) {
    this.#outputs = outputs;
    this.#known = Object.keys(schemas);
    this.#differences = new Differences(sent);
  }

  // The functions of elements that were not sent unchanged, by their numbers.
  functions = new Map();
  // The ids of the elements that have a workflow, by the number of its function.
  nodes = new Map();
  // The parts of sandboxes that are not plain values, by the ids of the sandboxes.
  sandboxes = new Map();

  // The tasks of each group that has an id.
  groups = new Map();
  // The loops that enclose each task in a loop, the outermost first.
  loops = new Map();
  // The place of the element that is read: the keys or positions in the enclosing lists.
  #path = [];
  #openGroups = [];
  #openLoops = [];
  #worktree;
  #budgets;

  #function(head, role, at = 0) {
    const { id } = head.element.props;
    const named = at === 0 ? role : `${role}${at}`;
    const name = `${named} ${id}`;
    const ref = refs.get(name) ?? numberOf(id, named);
    const other = names.get(ref);
    if (other !== undefined && other !== name) {
      throw new SmithersError("INVALID_INPUT", `"${id}" and "${other}" have the same number: give one of them another id`);
    }
    refs.set(name, ref);
    names.set(ref, name);
    this.functions.set(ref, { head, role, at });
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
    run.groups = this.groups;
    run.loops = this.loops;
  }

  // `before` contains the nodes that were found here the last time, `source` is
  // the location of the nearest enclosing element.
  #walk(value, found, before, source) {
    if (value === undefined || value === null || typeof value === "boolean") return;
    if (Array.isArray(value)) {
      for (let at = 0; at < value.length; at += 1) {
        this.#path.push(value[at]?.key ?? at);
        this.#walk(value[at], found, before, source);
        this.#path.pop();
      }
      return;
    }
    if (!(value instanceof Element)) {
      const asynchronous = typeof value?.then === "function" ? ": a component must not be async, only functions of tasks can be" : "";
      throw named(source, `${kindOfValue(value)} is not allowed between elements${asynchronous || ": a workflow consists of elements such as <Task>"}`);
    }
    if (kindOf(value.type) === "signal" && typeof value.props.children === "function") {
      this.#signal(value, found, before, source);
      return;
    }
    if (kindOf(value.type) === "aspects") {
      this.#scope(value, found, before, source);
      return;
    }
    const inPlace = before[found.length];
    const unnamed = UNNAMED[kindOf(value.type)];
    if (unnamed !== undefined && value.props.id === undefined) {
      value = new Element(value.type, { ...value.props, id: here.named(this.#path, unnamed) }, value.source);
    }
    value = this.#budgeted(this.#tabled(value));
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
    else this.#place(value.props.id);
  }

  // A name of a table of the workflow stands for the table, so that its schema counts.
  #tabled(element) {
    const { output: name, outputSchema } = element.props;
    if (typeof name !== "string" || outputSchema !== undefined || kindOf(element.type) === undefined || !Object.hasOwn(this.#outputs, name)) return element;
    return new Element(element.type, { ...element.props, output: this.#outputs[name] }, element.source, element.key);
  }

  // The content of a scope with budgets.
  #scope({ props, source }, found, before, outer) {
    const around = this.#budgets;
    this.#budgets = made((own) => budgets(around, own), props, source ?? outer);
    this.#walk(props.children, found, before, source ?? outer);
    this.#budgets = around;
  }

  // The host reads the budgets of a task as an attribute that no author can write in JSX.
  #budgeted(element) {
    const kind = kindOf(element.type);
    if (this.#budgets === undefined || kind === undefined || GROUPS.has(kind)) return element;
    return new Element(element.type, { ...element.props, $budgets: this.#budgets }, element.source, element.key);
  }

  // Records what encloses a task.
  #place(id) {
    for (const group of this.#openGroups) group.push(id);
    if (this.#openLoops.length > 0) this.loops.set(id, [...this.#openLoops]);
  }

  // A signal, and what its function makes of the value once that has arrived.
  #signal({ type, props, source, key }, found, before, outer) {
    const { children, ...rest } = props;
    this.#walk(new Element(type, rest, source, key), found, before, outer);
    if (rest.skipIf === true) return;
    const value = useCtx().outputMaybe(rest.schema ?? rest.output, { nodeId: rest.id });
    if (value !== undefined) this.#walk(children(value), found, before, source ?? outer);
  }

  // Expands a fragment or a component.
  #other({ type, props }, found, before, source) {
    if (type === Fragment) this.#walk(props.children, found, before, source);
    else if (typeof type === "function") this.#walk(here.at(this.#path, () => made(type, props, source)), found, before, source);
    else throw named(source, `${String(type)} is not an element: is it imported?`);
  }

  #group(node, { props, source }) {
    const list = [];
    const held = node.kind !== "branch" ? props.children : props.if ? props.then : props.else;
    if (props.skipIf !== true) this.#inside(node.kind, props, () => this.#walk(held, list, node.list, source));
    this.#differences.holds(node, list);
  }

  #inside(kind, props, walk) {
    const { id } = props;
    const isLoop = kind === "loop";
    const worktree = this.#worktree;
    if (isLoop) {
      this.#openLoops.push(id);
      this.#path.push("in");
    } else if (kind === "worktree") {
      this.#worktree = { path: props.path, branch: props.branch, baseBranch: props.baseBranch };
    }
    if (id !== undefined) {
      if (!this.groups.has(id)) this.groups.set(id, []);
      this.#openGroups.push(this.groups.get(id));
    }
    walk();
    if (id !== undefined) this.#openGroups.pop();
    this.#worktree = worktree;
    if (!isLoop) return;
    this.#openLoops.pop();
    this.#path.pop();
  }

  #head(kind, element) {
    const head = new Head(kind, element);
    const { props } = element;
    if (head.isGroup) {
      const { children, then, else: otherwise, ...rest } = props;
      const values = plain(rest);
      if (kind === "branch" && children !== undefined && props.skipIf !== true) values.children = true;
      return head.tell(values, true);
    }
    if (props.skipIf === true) return head.tell({ id: props.id, skipIf: true }, true);
    try {
      return this.#describe(kind, head);
    } catch (error) {
      if (!(error instanceof SmithersError) || error.code !== "INVALID_INPUT") throw error;
      throw named(element.source, error.message);
    }
  }

  #describe(kind, head) {
    const { props } = head.element;
    const { children, output: table, outputSchema, schema, agent: given, fallbackAgent, workflow, provider, deps, cache, prompt, scorers, groundTruth, context, allowTools, depsOptional, memory, ...rest } = props;
    // Its values are schemas, and the host refuses it by its name.
    if (depsOptional !== undefined) rest.depsOptional = true;
    if (memory !== undefined && !(kind === "task" && isInert(memory))) rest.memory = true;
    const values = plain(cache === undefined ? rest : { ...rest, cache: kept(cache) });
    if ("output" in props) values.output = output(table, this.#known);
    if (schema !== undefined) values.schema = output(schema, this.#known);
    if (outputSchema !== undefined && typeof table === "string") values.output = { ...output(outputSchema), key: table };
    for (const one of [values.output, values.schema]) {
      if (one?.$ === "table" && (isParsed(outputSchema) || isParsed(schema ?? table))) one.parse = this.#function(head, "accept").ref;
    }
    if (prompt !== undefined) values.prompt = text(prompt);
    if (scorers !== undefined) values.scorers = true;
    for (const [name, value] of Object.entries({ groundTruth, context })) {
      if (value !== undefined && scorers === undefined) throw new SmithersError("INVALID_INPUT", `\`${name}\` is for \`scorers\`, which this element does not have`);
    }
    if (deps !== undefined) values.deps = Object.fromEntries(Object.keys(deps ?? {}).map((name) => [name, true]));
    if (isWorkflow(workflow)) {
      values.workflow = this.#function(head, "workflow");
      this.nodes.set(values.workflow.ref, props.id);
    } else if (workflow !== undefined) values.workflow = plain(workflow);
    if (provider !== undefined && provider !== null) {
      // The provider that an id refers to is looked up when it is called.
      this.sandboxes.set(props.id, { provider, workflow, input: props.input });
      values.provider = { $: "provider", id: idOf(provider) };
    }
    const agents = agentsOf(props).map((one, at) => this.#agent(head, one, at));
    if (allowTools !== undefined && agents.length === 0) throw new SmithersError("INVALID_INPUT", "<Task> has `allowTools`, but no `agent`");
    if (agents.length > 0) values.agent = agents[0];
    else if ("agent" in props && typeof children !== "function") values.agent = { $: "nothing" };
    if (agents.length > 1) values.$fallbacks = agents.slice(1);
    if (this.#worktree !== undefined) values.$worktree = plain(this.#worktree);
    // Without the agent that was meant, there is nothing to say of the prompt.
    if (kind === "task" && values.agent?.$ === "nothing") values.children = { $: "value", value: null };
    else if (kind === "task" && agents.length === 0 && hasElement(children)) values.children = { $: "element" };
    else if (kind === "task") values.children = this.#content(head, agents.length > 0);
    else if (children !== undefined) values.children = plain(children);
    return head.tell(values, agents.length > 0 || !isParsed(outputSchema ?? table));
  }

  // An agent of a task in the form that the host reads.
  #agent(head, given, at) {
    const why = unsupported(given);
    if (why !== undefined) throw new SmithersError("INVALID_INPUT", `<Task> cannot use this agent: ${why}`);
    const command = withTools(described(given), head.element.props.allowTools);
    if (command !== undefined) return { ...plain(command), $: "agent", read: this.#function(head, "read").ref };
    return isFunction(given) ? this.#function(head, "agent", at) : plain(given);
  }

  // The content between the tags of a task.
  #content(head, hasAgent) {
    const { children, output: table, outputSchema } = head.element.props;
    if (typeof children === "function") return this.#function(head, "content");
    if (hasAgent) {
      try {
        const prompt = text(withSchema(children, outputSchema ?? table));
        return prompt === "" ? undefined : { $: "value", value: prompt };
      } catch (error) {
        if (error?.isMisplaced) throw error;
        // What it needs may not exist before the task starts.
        return this.#function(head, "content");
      }
    }
    if (children === undefined) return undefined;
    try {
      return { $: "value", value: parsed(table, outputSchema === undefined ? children : parsed(outputSchema, children), "INVALID_OUTPUT") };
    } catch {
      return this.#function(head, "content");
    }
  }
}

// The function with a number that was sent to the host.
export const functionOf = (run, number) => {
  const found = run.functions.get(number);
  return found && FUNCTIONS[found.role](found.head.element.props, found.at);
};

// The workflow of an element.
export const workflowOf = (run, id) => {
  const found = [...run.nodes].find(([, node]) => node === id);
  return found && functionOf(run, found[0]);
};

// Renders the workflow of a run; returns the rendering, and the tables that it read.
export const renderingOf = (run) => {
  const rendering = new Rendering(run.workflow, run.lastRendering);
  const { read } = run.watching(() => within(run.ctx, () => rendering.read(run.workflow.build(run.ctx), run.lastRendering.root, run.workflow.made)));
  return { rendering, read };
};
