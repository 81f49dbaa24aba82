// Providers of sandboxes: their registration, their requests, and the functions that they may call while they run.
import { isLonger, later, now, tell, textOf } from "stockade:host";
import { checkKeys, unknownKeys } from "stockade:keys";
import { SmithersError, isWorkflow } from "stockade:smithers";

// Upstream's size limit of a heartbeat, and the interval at which upstream writes heartbeats.
const HEARTBEAT_BYTES = 1_000_000;
const HEARTBEAT_PAUSE_MS = 500;
// The size limits of single messages.
const INPUT_BYTES = 4 << 20;
const RESULT_BYTES = 48 << 20;
// The maximum number of child runs of one call.
const MAX_CHILDREN = 16;
const NAME = /^[A-Za-z0-9._-]{1,128}$/;

// The fields of the options of executeChildWorkflow().
const CHILD_OPTIONS = ["workflow", "input", "runId", "parentRunId", "rootDir", "allowNetwork", "maxOutputBytes", "toolTimeoutMs", "signal"];

const invalid = (message) => new SmithersError("INVALID_INPUT", message);

const providers = new Map();

export const registerSandboxProvider = (provider) => {
  if (typeof provider?.run !== "function") throw invalid("Sandbox provider must be an object with a run(request) function");
  const id = typeof provider.id === "string" ? provider.id.trim() : "";
  if (id === "") throw invalid("Sandbox provider must include a non-empty id");
  providers.set(id, provider);
  return () => {
    if (providers.get(id)?.run === provider.run) providers.delete(id);
  };
};

// The provider of a sandbox: an object, or the provider that is now registered under the id.
const resolved = (sandbox) => {
  if (sandbox === undefined) throw invalid("the workflow no longer contains this <Sandbox>");
  const given = sandbox.provider;
  if (typeof given === "string") {
    const found = providers.get(given.trim());
    if (found === undefined) throw invalid(`Sandbox provider "${given}" is not registered.`);
    return found;
  }
  if (typeof given?.run !== "function") throw invalid("Sandbox provider must be a registered provider id or a provider object.");
  return given;
};

// The id of a provider, before any of its functions is called.
export const idOf = (given) => {
  try {
    const id = typeof given === "string" ? given : given?.id;
    return typeof id === "string" && id.trim() !== "" ? id.trim() : "custom";
  } catch {
    return "custom";
  }
};

// The provider that would be called now. If it is not known here, the host may know it.
export const resolve = (sandbox) => {
  const id = typeof sandbox?.provider === "string" ? sandbox.provider.trim() : "";
  return id === "" || providers.has(id) ? { id: idOf(resolved(sandbox)), isKnown: true } : { id, isKnown: false };
};

// The parts of the request of `run` that are not plain values, valid while `run` is running.
class Call {
  #id;
  #facts;
  #signal;
  #hasEnded = false;
  #lastBeat = -Infinity;
  #waitingBeat;
  #children = new Map();
  #asks = [];
  workflows = [];

  constructor(id, facts, signal) {
    this.#id = id;
    this.#facts = facts;
    this.#signal = signal;
    signal?.addEventListener("abort", () => {
      for (const ask of this.#asks) ask?.reject(signal.reason);
    });
  }

  end() {
    this.#hasEnded = true;
  }

  heartbeat(data) {
    if (this.#hasEnded) return;
    let text;
    try {
      text = textOf(data ?? null);
    } catch (error) {
      throw new SmithersError("HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE", `Heartbeat payload is not JSON: ${error?.message}`);
    }
    if (text === undefined) throw new SmithersError("HEARTBEAT_PAYLOAD_NOT_JSON_SERIALIZABLE", `Heartbeat payload is not JSON: it is a ${typeof data}`);
    if (isLonger(text, HEARTBEAT_BYTES)) throw new SmithersError("HEARTBEAT_PAYLOAD_TOO_LARGE", `Heartbeat payload exceeds ${HEARTBEAT_BYTES} bytes.`);
    const since = now() - this.#lastBeat;
    if (since >= HEARTBEAT_PAUSE_MS || since < 0) {
      this.#beat(text);
      return;
    }
    // The last heartbeat of a pause is sent at the end of the pause.
    if (this.#waitingBeat === undefined) {
      later(() => {
        if (this.#waitingBeat !== undefined && !this.#hasEnded) this.#beat(this.#waitingBeat);
      }, HEARTBEAT_PAUSE_MS - since);
    }
    this.#waitingBeat = text;
  }

  #beat(text) {
    this.#lastBeat = now();
    this.#waitingBeat = undefined;
    tell(this.#id, "heartbeat", text);
  }

  async child(parent, options) {
    if (this.#hasEnded) throw invalid("executeChildWorkflow() can be called only while the provider runs");
    if (typeof options !== "object" || options === null) throw invalid("executeChildWorkflow() requires the parent workflow and an object with `workflow` and `input`");
    checkKeys("executeChildWorkflow()", options, CHILD_OPTIONS);
    const { workflow, input, runId, parentRunId, rootDir, allowNetwork, maxOutputBytes, toolTimeoutMs, signal } = options;
    if (!isWorkflow(workflow)) throw invalid("executeChildWorkflow() requires `workflow`, the result of `smithers(…)`");
    if (parent !== undefined && parent !== null && !isWorkflow(parent)) throw invalid("the first argument of executeChildWorkflow() must be the parent workflow, `request.parentWorkflow`");
    if (parentRunId !== undefined && parentRunId !== this.#facts.runId) throw invalid("executeChildWorkflow() can create only children of its own run: `parentRunId` must be `request.runId`");
    if (rootDir !== undefined && rootDir !== this.#facts.rootDir) throw invalid("executeChildWorkflow() works only in the project: `rootDir` must be `request.rootDir`");
    if (allowNetwork === true && this.#facts.allowNetwork !== true) throw invalid("executeChildWorkflow() cannot grant more than its sandbox has: this sandbox has no network access");
    if (runId !== undefined && (typeof runId !== "string" || !NAME.test(runId))) throw invalid("`runId` of executeChildWorkflow() must consist of 1 to 128 letters, digits, `-`, `_` and `.`");
    const limits = narrower({ maxOutputBytes, toolTimeoutMs }, this.#facts);
    signal?.throwIfAborted?.();
    const name = runId ?? "";
    let child = this.#children.get(name);
    if (child === undefined) {
      if (this.#children.size >= MAX_CHILDREN) throw invalid(`a sandbox has at most ${MAX_CHILDREN} child runs`);
      child = this.#begin(workflow, input, runId, limits);
      this.#children.set(name, child);
    }
    if (signal !== undefined && signal !== null && signal !== this.#signal) {
      signal.addEventListener?.("abort", () => child.abandon(signal.reason));
    }
    return child.answer;
  }

  #begin(workflow, input, runId, limits) {
    const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
    const given = isObject ? input : input === undefined ? {} : { value: input };
    let text;
    try {
      text = textOf({ name: runId ?? null, input: given, ...limits });
    } catch (error) {
      throw invalid(`the input of a child workflow must be JSON: ${error?.message}`);
    }
    if (isLonger(text, INPUT_BYTES)) throw invalid(`the input of a child workflow has more than ${INPUT_BYTES} bytes`);
    const ask = this.#asks.length;
    this.workflows.push(workflow);
    const { promise, resolve, reject } = Promise.withResolvers();
    // The caller may have continued without waiting for the answer.
    promise.catch(() => {});
    this.#asks.push({ resolve, reject });
    tell(this.#id, "child", `{"ask":${ask},"request":${text}}`);
    const abandon = (reason) => {
      if (this.#asks[ask] === undefined || this.#hasEnded) return;
      this.#asks[ask] = undefined;
      tell(this.#id, "abandon", `{"ask":${ask}}`);
      reject(reason);
    };
    return { answer: promise, abandon };
  }

  answered({ ask, answer, failure }) {
    const waiting = this.#asks[ask];
    if (waiting === undefined) return;
    this.#asks[ask] = undefined;
    if (failure === undefined) waiting.resolve(answer);
    else waiting.reject(new SmithersError(failure.code, failure.message));
  }
}

const calls = new Map();

export const callOf = (id) => {
  const call = calls.get(id);
  if (call === undefined) throw invalid("the provider that requested this workflow is no longer running");
  return call;
};
export const answered = (what) => calls.get(what.call)?.answered(what);

// The limits that are sent for a child: those that are narrower than the limits of its sandbox.
const narrower = (limits, facts) => {
  const lower = {};
  for (const name of Object.keys(limits)) {
    const [limit, most] = [limits[name], facts[name]];
    if (limit === undefined || limit === null) continue;
    if (!Number.isInteger(limit) || limit < 1 || limit > most) throw invalid(`executeChildWorkflow() cannot exceed the limits of its sandbox: \`${name}\` must be a whole number from 1 to ${most}`);
    if (limit < most) lower[name] = limit;
  }
  return lower;
};

const FIELDS = ["bundlePath", "status", "output", "outputs", "runId", "remoteRunId", "workspaceId", "containerId", "diffBundle", "patches", "artifacts", "streamLogPath"];

// The result of a provider, as plain values; the host validates it.
const plain = (result, id) => {
  if (typeof result !== "object" || result === null || Array.isArray(result)) return null;
  const unreadable = (why) => new SmithersError("SANDBOX_EXECUTION_FAILED", `Sandbox provider "${id}" returned a result that cannot be read: ${why}`);
  let text;
  try {
    // Of other fields the host gets only the names, to refuse them. The result may be an object with methods.
    const others = unknownKeys(result, FIELDS).filter((name) => typeof result[name] !== "function");
    const fields = FIELDS.map((name) => [name, result[name]]).filter(([, value]) => value !== undefined);
    text = textOf(Object.fromEntries([...fields, ...others.map((name) => [name, true])]));
  } catch (error) {
    throw unreadable(error?.message ?? "it threw");
  }
  if (isLonger(text, RESULT_BYTES)) throw invalid(`Sandbox provider "${id}" returned more than ${RESULT_BYTES} bytes: a bundle of that size is returned as its \`bundlePath\``);
  return JSON.parse(text);
};

// The requests that were not cleaned up, with the provider of each.
const requests = new Map();

const requestOf = (parentWorkflow, { workflow, input }, facts, call, signal) => ({
  ...facts,
  input,
  workflow,
  parentWorkflow,
  executeChildWorkflow: (parent, options) => call.child(parent, options),
  signal,
  heartbeat: (data) => call.heartbeat(data),
});

// Runs a provider. `text` is the request from the host; `cleanUp` finds the request by it.
export const provide = async (id, parentWorkflow, sandbox, text, signal) => {
  const provider = resolved(sandbox);
  const facts = JSON.parse(text);
  const call = new Call(id, facts, signal);
  const request = requestOf(parentWorkflow, sandbox, facts, call, signal);
  requests.set(text, { provider, request });
  calls.set(id, call);
  try {
    return plain(await provider.run(request), idOf(provider));
  } finally {
    call.end();
    calls.delete(id);
  }
};

// Calls the `cleanup` of a provider with its original request, or in another realm with an equal one.
export const cleanUp = async (parentWorkflow, sandbox, text) => {
  const known = requests.get(text);
  requests.delete(text);
  const provider = known?.provider ?? resolved(sandbox);
  if (typeof provider.cleanup !== "function") return;
  const facts = JSON.parse(text);
  const call = new Call(0, facts);
  call.end();
  await provider.cleanup(known?.request ?? requestOf(parentWorkflow, sandbox, facts, call, AbortSignal.abort()));
};
