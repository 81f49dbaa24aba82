// Runs a sandbox provider that is a module, for the process that started this one. Messages are one
// JSON object per line on standard input and output. The module's own output goes to standard error.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
const say = (word) => write(`${JSON.stringify(word)}\n`);

const PAUSE_MS = 500;
const path = process.env.STOCKADE_PROVIDER_MODULE;
delete process.env.STOCKADE_PROVIDER_MODULE;

const controller = new AbortController();
const asks = [];
let known;
let isDone = false;

const requestOf = (facts) => {
  const workflow = Object.freeze({});
  const children = new Map();
  let lastBeat = -Infinity;
  return {
    ...facts,
    workflow,
    parentWorkflow: Object.freeze({}),
    signal: controller.signal,
    heartbeat(data) {
      const text = JSON.stringify(data ?? null);
      if (text.length > 1_000_000) throw Object.assign(new Error("Heartbeat payload exceeds 1000000 bytes."), { code: "HEARTBEAT_PAYLOAD_TOO_LARGE" });
      if (Date.now() - lastBeat < PAUSE_MS) return;
      lastBeat = Date.now();
      say({ heartbeat: JSON.parse(text) });
    },
    async executeChildWorkflow(_, options) {
      if (options?.workflow !== workflow) throw Object.assign(new Error("executeChildWorkflow() requires `workflow`, the `workflow` of its request"), { code: "INVALID_INPUT" });
      const { input, runId } = options;
      const limits = {};
      for (const name of ["maxOutputBytes", "toolTimeoutMs"]) {
        const [limit, most] = [options[name] ?? facts[name], facts[name]];
        if (!Number.isInteger(limit) || limit < 1 || limit > most) throw Object.assign(new Error(`executeChildWorkflow() cannot exceed the limits of its sandbox: \`${name}\` must be a whole number from 1 to ${most}`), { code: "INVALID_INPUT" });
        if (limit < most) limits[name] = limit;
      }
      const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
      const name = runId ?? null;
      if (!children.has(name)) {
        const answer = new Promise((resolve, reject) => asks.push({ resolve, reject }));
        children.set(name, answer);
        say({ child: { ask: asks.length - 1, request: { ...limits, name, input: isObject ? input : input === undefined ? {} : { value: input } } } });
      }
      return children.get(name);
    },
  };
};

const failure = (error) => ({ message: String(error?.message ?? error), code: typeof error?.code === "string" ? error.code : null });

const take = async ({ run, cleanup, answer, abort }) => {
  if (abort !== undefined) {
    // A provider that has returned its result has nothing to abort.
    if (!isDone) controller.abort();
    return say({ aborted: null });
  }
  if (answer !== undefined) {
    const { ask, value, failure: why } = answer;
    if (why === undefined) asks[ask]?.resolve(value);
    else asks[ask]?.reject(Object.assign(new Error(why.message), { code: why.code }));
    return;
  }
  try {
    const module = await import(pathToFileURL(path).href);
    const provider = module.default ?? module.provider;
    if (typeof provider?.run !== "function") throw Object.assign(new Error(`${path} does not export a provider: it has no default export with run(request)`), { code: "INVALID_INPUT" });
    if (run !== undefined) {
      known = requestOf(run);
      const given = await provider.run(known);
      isDone = true;
      say({ done: given ?? null });
    } else {
      await provider.cleanup?.(known ?? requestOf(cleanup));
      say({ cleaned: null });
    }
  } catch (error) {
    say(run === undefined ? { uncleaned: failure(error) } : { failed: failure(error) });
  }
};

createInterface({ input: process.stdin }).on("line", (line) => void take(JSON.parse(line))).on("close", () => process.exit());
