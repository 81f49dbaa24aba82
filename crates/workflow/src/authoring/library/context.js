// What the function of a workflow is called with: its input, and what its tasks have given so far.
import { SmithersError, tableOf } from "stockade:smithers";

const keyOf = (table) => (typeof table === "string" ? table : tableOf(table)?.key);

export class Run {
  // By table, then by node and iteration.
  #rows = new Map();
  #iterations = {};
  #signals = [];
  #read;
  // The tables whose rows are here, where not all are.
  #tables;

  constructor(id, workflow, input, tables) {
    this.workflow = workflow;
    this.functions = new Map();
    this.#tables = tables;
    this.sandboxes = new Map();
    this.ctx = this.#context(id, input);
  }

  // Takes what is new since the last time.
  take({ rows = [], iterations, signals = [] }) {
    for (const { table, node, iteration, value } of rows) {
      if (!this.#rows.has(table)) this.#rows.set(table, new Map());
      this.#rows.get(table).set(`${node}::${iteration}`, { node, iteration, value });
    }
    if (iterations !== undefined) this.#iterations = iterations;
    this.#signals.push(...signals);
  }

  // Does something; answers with the tables that it looked into.
  watching(look) {
    this.#read = new Set();
    const value = look();
    const read = [...this.#read];
    this.#read = undefined;
    return { value, read };
  }

  // The last value of a task, whatever its table.
  valueOf(node) {
    let last;
    for (const rows of this.#rows.values()) {
      for (const row of rows.values()) {
        if (row.node === node && !(last?.iteration > row.iteration)) last = row;
      }
    }
    return last?.value;
  }

  #all(table) {
    const key = keyOf(table);
    if (key === undefined) throw new SmithersError("INVALID_INPUT", "this is no table of createSmithers()");
    if (this.#tables?.includes(key) === false) {
      throw new SmithersError("MISSING_OUTPUT", `the rows of "${key}" are not in this sandbox: what the workflow around it reads while it is rendered is, so read it there`);
    }
    this.#read?.add(key);
    return [...(this.#rows.get(key)?.values() ?? [])];
  }

  #current() {
    const all = Object.values(this.#iterations);
    return all.length === 1 ? all[0] : 0;
  }

  #find(table, { nodeId, iteration } = {}) {
    const rows = this.#all(table).filter((row) => nodeId === undefined || row.node === nodeId);
    if (iteration !== undefined) return rows.find((row) => row.iteration === iteration);
    return rows.find((row) => row.iteration === this.#current()) ?? rows.at(-1);
  }

  #context(id, input) {
    const run = this;
    const outputs = (table) => run.#all(table).map((row) => row.value);
    const latest = (table, nodeId) => {
      const rows = run.#all(table).filter((row) => nodeId === undefined || row.node === nodeId);
      return rows.reduce((last, row) => (last?.iteration > row.iteration ? last : row), undefined)?.value;
    };
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
        const row = run.#find(table, key);
        if (row !== undefined) return row.value;
        const node = key?.nodeId === undefined ? "" : ` of task "${key.nodeId}"`;
        throw new SmithersError("MISSING_OUTPUT", `there is no output${node} in "${keyOf(table)}" yet; ctx.outputMaybe() gives undefined instead`);
      },
      outputMaybe: (table, key) => run.#find(table, key)?.value,
      latest,
      latestArray: (value) => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]),
      iterationCount: (table, nodeId) => run.#all(table).filter((row) => row.node === nodeId).length,
      outputRows: (table) => run.#all(table).map((row) => ({ ...row.value, nodeId: row.node, iteration: row.iteration })),
      signalRows: (name) => run.#signals.filter((signal) => name === undefined || signal.name === name),
    });
  }
}
