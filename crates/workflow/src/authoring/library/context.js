// The argument of a workflow's function: its input, and the outputs of its tasks so far.
import { checkKeys } from "stockade:keys";
import { SmithersError, tableOf, within } from "stockade:smithers";
import { LastRendering } from "stockade:differences";
import { parsed } from "stockade:schemas";

// The fields of the key of a row.
const KEY = ["nodeId", "iteration"];

const keyOf = (table) => (typeof table === "string" ? table : tableOf(table)?.key);

// The key of a task in nested loops has the iterations of the outer ones: `id@@outer=2`.
const SCOPE = "@@";
const scopeOf = (node) => {
  const [id, ...outer] = node.split(SCOPE);
  const loops = outer.map((part) => {
    const at = part.lastIndexOf("=");
    return [part.slice(0, at), Number(part.slice(at + 1))];
  });
  return { id, loops };
};

// A row as workflows get it: it also has the task and the iteration that it is of. JSON does not have them.
const asRow = ({ id, iteration, value }) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  for (const [name, held] of [["nodeId", id], ["iteration", iteration]]) {
    if (!Object.hasOwn(value, name)) Object.defineProperty(value, name, { value: held, configurable: true, writable: true });
  }
  return value;
};

// The rows of a table, in the order in which each node and iteration first got one.
class Table {
  #rows = new Map();
  #ofNodes = new Map();
  all = [];

  take({ node, iteration, value }) {
    const key = `${node}::${iteration}`;
    const known = this.#rows.get(key);
    const { id, loops } = scopeOf(node);
    const kept = asRow({ id, iteration, value });
    if (known !== undefined) {
      known.value = kept;
      return;
    }
    const row = { node, id, loops, iteration, value: kept };
    this.#rows.set(key, row);
    this.all.push(row);
    if (this.#ofNodes.has(id)) this.#ofNodes.get(id).push(row);
    else this.#ofNodes.set(id, [row]);
  }

  of(id) {
    return this.#ofNodes.get(id) ?? [];
  }
}

const NO_ROWS = new Table();

const latestOf = (rows) => rows.reduce((last, row) => (last?.iteration > row.iteration ? last : row), undefined);

// The items of a value that may be a list, one item, or either of them as JSON text. With a schema, only
// those that it accepts, as it makes them.
const latestArray = (value, schema) => {
  let found = value;
  if (typeof value === "string") {
    try {
      found = JSON.parse(value);
    } catch {
      found = value;
    }
  }
  const items = Array.isArray(found) ? found : found === undefined || found === null ? [] : [found];
  if (schema === undefined) return items;
  const taken = items.map((item) => {
    try {
      return [parsed(schema, item, "INVALID_OUTPUT")];
    } catch {
      return [];
    }
  });
  return taken.flat();
};

const contexts = new WeakMap();
// The run of a context.
export const runOfContext = (ctx) => contexts.get(ctx);

export class Run {
  // The parts of its renderings that are not plain values, and the last rendering that the host has.
  functions = new Map();
  nodes = new Map();
  sandboxes = new Map();
  lastRendering = new LastRendering();
  // The tasks of its groups that have an id, and the loops that enclose its tasks.
  groups = new Map();
  loops = new Map();
  #failures = [];
  #tables = new Map();
  #iterations = {};
  #signals = [];
  #read;
  // The tables whose rows are available here; undefined if all are.
  #known;

  constructor(id, workflow, input, known) {
    this.workflow = workflow;
    this.#known = known;
    this.ctx = this.#context(id, input);
    contexts.set(this.ctx, this);
  }

  // Adds the changes since the last call.
  take({ rows = [], iterations, failures, signals = [] }) {
    for (const row of rows) {
      if (!this.#tables.has(row.table)) this.#tables.set(row.table, new Table());
      this.#tables.get(row.table).take(row);
    }
    if (iterations !== undefined) this.#iterations = iterations;
    if (failures !== undefined) this.#failures = failures.map((failure) => ({ ...failure, ...scopeOf(failure.node) }));
    this.#signals.push(...signals);
  }

  // Calls a function; returns its value and the tables that it read.
  watching(look) {
    this.#read = new Set();
    const value = look();
    const read = [...this.#read];
    this.#read = undefined;
    return { value, read };
  }

  // Whether a row is of the current iterations of the outer loops.
  #isCurrent({ loops }) {
    return loops.every(([name, iteration]) => (this.#iterations[name] ?? 0) === iteration);
  }

  // The last value of a task, in any table.
  valueOf(node) {
    const rows = [...this.#tables.values()].flatMap((table) => this.#within(table, node));
    return latestOf(rows)?.value;
  }

  // Calls a function in which `useCtx()` is this run's context.
  within(call) {
    return within(this.ctx, call);
  }

  // The last value of a task with an output that may be no table.
  lastOf(target, id) {
    return latestOf(this.#within(this.#named(keyOf(target) ?? id), id))?.value;
  }

  // Whether all tasks of a group have a value.
  isComplete(group) {
    const ids = this.groups.get(group) ?? [];
    for (const table of this.#known ?? this.#tables.keys()) this.#read?.add(table);
    return ids.length > 0 && ids.every((id) => this.valueOf(id) !== undefined);
  }

  // The failure of a task in a group; undefined if none has failed.
  failureIn(group) {
    const ids = this.groups.get(group) ?? [];
    return this.#failures.find((failure) => ids.includes(failure.id) && this.#isCurrent(failure))?.error;
  }

  // The rows of a task that are of the current iterations of the outer loops. A name with a scope is exact.
  #within(table, node) {
    const { id, loops } = scopeOf(node);
    if (loops.length > 0) return table.of(id).filter((row) => row.node === node);
    return table.of(id).filter((row) => row.loops.length === 0 || this.#isCurrent(row));
  }

  #table(table) {
    const key = keyOf(table);
    if (key === undefined) throw new SmithersError("INVALID_INPUT", "this is not a table of createSmithers()");
    return this.#named(key);
  }

  #named(key) {
    if (this.#known?.includes(key) === false) {
      throw new SmithersError("MISSING_OUTPUT", `the rows of "${key}" are not available in this sandbox: it has only the tables that the enclosing workflow reads while it is rendered, so read this table there`);
    }
    this.#read?.add(key);
    return this.#tables.get(key) ?? NO_ROWS;
  }

  // The rows of a node, or else all rows of the current iterations.
  #rows(table, node) {
    const found = this.#table(table);
    return node === undefined ? found.all.filter((row) => row.loops.length === 0 || this.#isCurrent(row)) : this.#within(found, node);
  }

  // The current iteration of the innermost loop around a task.
  #iterationOf(id) {
    const loops = id === undefined ? undefined : this.loops.get(scopeOf(id).id);
    return loops === undefined ? this.#current() : (this.#iterations[loops.at(-1)] ?? 0);
  }

  #current() {
    const all = Object.values(this.#iterations);
    return all.length === 1 ? all[0] : 0;
  }

  #find(table, { nodeId, iteration } = {}) {
    const rows = this.#rows(table, nodeId);
    if (iteration !== undefined) return rows.find((row) => row.iteration === iteration);
    const current = this.#iterationOf(nodeId);
    return rows.find((row) => row.iteration === current) ?? rows.at(-1);
  }

  #context(id, input) {
    const run = this;
    const outputs = (table) => run.#table(table).all.map((row) => row.value);
    const latest = (table, nodeId) => latestOf(run.#rows(table, nodeId))?.value;
    return Object.freeze({
      runId: id,
      input,
      get iteration() {
        return run.#current();
      },
      get iterations() {
        return { ...run.#iterations };
      },
      outputs: new Proxy(outputs, {
        get: (target, key) => (typeof key === "string" ? outputs(key) : target[key]),
      }),
      output(table, key) {
        checkKeys("the key of ctx.output()", key, KEY);
        const row = run.#find(table, key);
        if (row !== undefined) return row.value;
        const node = key?.nodeId === undefined ? "" : ` of task "${key.nodeId}"`;
        throw new SmithersError("MISSING_OUTPUT", `there is no output${node} in "${keyOf(table)}" yet; ctx.outputMaybe() returns undefined instead`);
      },
      outputMaybe(table, key) {
        checkKeys("the key of ctx.outputMaybe()", key, KEY);
        return run.#find(table, key)?.value;
      },
      latest,
      latestArray,
      iterationCount: (table, nodeId) => run.#rows(table, nodeId).length,
      outputRows: (table) => run.#table(table).all.map((row) => ({ ...row.value, nodeId: row.id, iteration: row.iteration })),
      signalRows: (name) => run.#signals.filter((signal) => name === undefined || signal.name === name),
    });
  }
}
