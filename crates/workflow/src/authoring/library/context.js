// The argument of a workflow's function: its input, and the outputs of its tasks so far.
import { checkKeys } from "stockade:keys";
import { SmithersError, tableOf } from "stockade:smithers";
import { LastRendering } from "stockade:differences";

// The fields of the key of a row.
const KEY = ["nodeId", "iteration"];

const keyOf = (table) => (typeof table === "string" ? table : tableOf(table)?.key);

// The rows of a table, in the order in which each node and iteration first got one.
class Table {
  #rows = new Map();
  #ofNodes = new Map();
  all = [];
  values = [];

  take({ node, iteration, value }) {
    const key = `${node}::${iteration}`;
    const known = this.#rows.get(key);
    if (known !== undefined) {
      this.values[known.at] = value;
      known.value = value;
      return;
    }
    const row = { at: this.all.length, node, iteration, value };
    this.#rows.set(key, row);
    this.all.push(row);
    this.values.push(value);
    if (this.#ofNodes.has(node)) this.#ofNodes.get(node).push(row);
    else this.#ofNodes.set(node, [row]);
  }

  of(node) {
    return this.#ofNodes.get(node) ?? [];
  }
}

const NO_ROWS = new Table();

export class Run {
  // The parts of its renderings that are not plain values, and the last rendering that the host has.
  functions = new Map();
  nodes = new Map();
  sandboxes = new Map();
  lastRendering = new LastRendering();
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
  }

  // Adds the changes since the last call.
  take({ rows = [], iterations, signals = [] }) {
    for (const row of rows) {
      if (!this.#tables.has(row.table)) this.#tables.set(row.table, new Table());
      this.#tables.get(row.table).take(row);
    }
    if (iterations !== undefined) this.#iterations = iterations;
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

  // The last value of a task, in any table.
  valueOf(node) {
    let last;
    for (const table of this.#tables.values()) {
      for (const row of table.of(node)) if (!(last?.iteration > row.iteration)) last = row;
    }
    return last?.value;
  }

  #table(table) {
    const key = keyOf(table);
    if (key === undefined) throw new SmithersError("INVALID_INPUT", "this is not a table of createSmithers()");
    if (this.#known?.includes(key) === false) {
      throw new SmithersError("MISSING_OUTPUT", `the rows of "${key}" are not available in this sandbox: it has only the tables that the enclosing workflow reads while it is rendered, so read this table there`);
    }
    this.#read?.add(key);
    return this.#tables.get(key) ?? NO_ROWS;
  }

  // The rows of a node, or else all rows.
  #rows(table, node) {
    const found = this.#table(table);
    return node === undefined ? found.all : found.of(node);
  }

  #current() {
    const all = Object.values(this.#iterations);
    return all.length === 1 ? all[0] : 0;
  }

  #find(table, { nodeId, iteration } = {}) {
    const rows = this.#rows(table, nodeId);
    if (iteration !== undefined) return rows.find((row) => row.iteration === iteration);
    const current = this.#current();
    return rows.find((row) => row.iteration === current) ?? rows.at(-1);
  }

  #context(id, input) {
    const run = this;
    const outputs = (table) => run.#table(table).values.slice();
    const latest = (table, nodeId) => run.#rows(table, nodeId).reduce((last, row) => (last?.iteration > row.iteration ? last : row), undefined)?.value;
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
      latestArray: (value) => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]),
      iterationCount: (table, nodeId) => run.#table(table).of(nodeId).length,
      outputRows: (table) => run.#table(table).all.map((row) => ({ ...row.value, nodeId: row.node, iteration: row.iteration })),
      signalRows: (name) => run.#signals.filter((signal) => name === undefined || signal.name === name),
    });
  }
}
