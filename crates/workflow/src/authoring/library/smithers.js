// The exports of `smithers-orchestrator` and `stockade`: workflows and the tables of their results.
import { checkKeys } from "stockade:keys";
import { place } from "stockade:places";
import { TUI, UI } from "stockade:absent";
import { Saga, TryCatchFinally } from "stockade:boundaries";
import { ContinueAsNew, HumanTask, Worktree } from "stockade:elements";
import { Branch, Element, Loop, MergeQueue, Parallel, Ralph, Sandbox, Sequence, Signal, Subflow, Task, Timer, WaitForEvent, Workflow, Approval } from "stockade:elements";

export {
  AmpAgent, AntigravityAgent, ClaudeCodeAgent, CodexAgent, CursorAgent, ForgeAgent, GeminiAgent, HermesCliAgent, KimiAgent, OmpAgent, OpenClawAgent, OpenCodeAgent, PiAgent, PoolAgent, VibeAgent,
} from "stockade:agents";
export { AnthropicAgent, HermesAgent, OpenAIAgent } from "stockade:models";
export { DelegationChain, IsolatedClone, Memory, Monitor, TUI, Trellis, UI } from "stockade:absent";
export { Saga, SagaStep, TryCatchFinally } from "stockade:boundaries";
export {
  ApprovalGate, CheckSuite, ClassifyAndRoute, ContentPipeline, Debate, DecisionTable, DriftDetector, EscalationChain, GatherAndSynthesize, Kanban, Optimizer, Panel,
  Poller, ReviewLoop, Runbook, ScanFixVerify, Sidecar, SuperSmithers, Supervisor,
} from "stockade:components";
export { Aspects, ContinueAsNew, HumanTask, Worktree } from "stockade:elements";
export {
  approvalDecisionSchema, approvalRankingSchema, approvalSelectionSchema, bash, bashTool, continueAsNew, defineTool, edit, editFileTool, executeChildWorkflow, grep,
  grepTool, mdxPlugin, read, readFileTool, runWorkflow, tools, usePatched, write, writeFileTool,
} from "stockade:helpers";
export {
  createScorer, faithfulnessScorer, latencyScorer, llmJudge, relevancyScorer, schemaAdherenceScorer, toxicityScorer,
} from "stockade:scorers";
export { Fragment, createElement, jsx, jsxDEV, jsxs } from "stockade:elements";
export {
  SANDBOX_PROVIDER_REQUEST_ENV,
  SANDBOX_PROVIDER_RESULT_ENV,
  createCommandSandboxProvider,
  parseSandboxProviderResult,
  redactSandboxProviderValue,
  uploadEgressCaToSession,
  writeSandboxProviderRequestFile,
} from "stockade:kit";
export { registerSandboxProvider } from "stockade:sandbox";
export {
  SandboxCreateNode,
  SandboxExecuteNode,
  SandboxExecuteStreamNode,
  SandboxKillNode,
  SandboxPauseNode,
  SandboxResumeNode,
  SandboxRenewNode,
  SandboxStatusNode,
  SandboxSyncFromVFSNode,
  SandboxSyncToVFSNode,
  SandboxWriteSecretFileNode,
  SandboxHttpRequestNode,
  SandboxHttpStreamNode,
  SandboxWebSocketNode,
  SandboxStreamSplitterNode,
} from "stockade:elements";
export { Approval, Branch, Loop, MergeQueue, Parallel, Ralph, Sandbox, Sequence, Signal, Subflow, Task, Timer, WaitForEvent, Workflow };

export class SmithersError extends Error {
  constructor(code, message, details) {
    super(message);
    this.name = "SmithersError";
    this.code = code;
    this.details = details;
  }
}
export { SmithersError as SmithersErrorInstance };
export const isSmithersError = (value) => value instanceof SmithersError;
// An error as a plain value.
export const errorToJson = (error) => {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, code, details, cause } = error;
  return { name, message, ...(code === undefined ? {} : { code }), ...(details === undefined ? {} : { details }), ...(cause === undefined ? {} : { cause: errorToJson(cause) }) };
};

// The table of each schema that was passed to `createSmithers`.
const tables = new WeakMap();
export const tableOf = (schema) => tables.get(schema);

export const isZod = (schema) => schema._zod !== undefined || schema._def !== undefined;

class WorkflowDefinition {
  // An error with the location at which the workflow was created, for later messages about it.
  #made = new SmithersError("INVALID_INPUT", "");

  // `outputs` are the tables of its schemas, by name.
  constructor(build, opts, schemas, outputs) {
    this.build = build;
    this.opts = opts;
    this.schemas = schemas;
    this.outputs = outputs;
    place(this);
  }

  get made() {
    return this.#made;
  }
}
export const isWorkflow = (value) =>
  value instanceof WorkflowDefinition || typeof value?.build === "function";

let current;
// The context of the workflow that is being rendered.
export const useCtx = () => {
  if (current === undefined) throw new SmithersError("INVALID_INPUT", "useCtx() can be called only by components, while they are rendered");
  return current;
};
export const within = (ctx, render) => {
  const before = current;
  current = ctx;
  try {
    return render();
  } finally {
    current = before;
  }
};

// The content between the tags of a bound `<Sandbox>` is its child workflow. The
// element determines its input, independent of the input of the file's own workflow.
const bound = (schemas, outputs) => {
  const inner = { ...schemas, input: undefined };
  const Bound = (props) => {
    const { children, workflow, ...rest } = props;
    if (children === undefined || workflow !== undefined) return new Element(Sandbox, props);
    const build = (ctx) => new Element(Workflow, { name: `sandbox:${props.id}`, children: typeof children === "function" ? children(ctx) : children });
    const child = new WorkflowDefinition(build, {}, inner, outputs);
    return new Element(Sandbox, { ...rest, workflow: child });
  };
  return Object.assign(Bound, { schemas });
};

// A description of a value that is not a schema.
const noSchema = (schema) => {
  if (schema === null || (typeof schema !== "object" && typeof schema !== "function")) return JSON.stringify(schema) ?? "nothing";
  if (isZod(schema)) return undefined;
  if (typeof schema === "function") return "a function";
  const parts = Object.values(schema).some((part) => typeof part === "object" && part !== null && isZod(part));
  return parts ? "an object of schemas" : undefined;
};

// The options of createSmithers() upstream. The database and its texts for people are the server's.
const OPTIONS = ["readableName", "description", "alertPolicy", "backend", "dbPath", "journalMode"];

export const createSmithers = (schemas = {}, options = {}) => {
  if (typeof schemas !== "object" || schemas === null) {
    throw new SmithersError("INVALID_INPUT", "createSmithers() requires an object that maps table names to schemas");
  }
  if (typeof options !== "object" || options === null) throw new SmithersError("INVALID_INPUT", "the second argument of createSmithers() is not an object");
  checkKeys("the second argument of createSmithers()", options, OPTIONS);
  const outputs = {};
  for (const [key, schema] of Object.entries(schemas)) {
    const wrong = noSchema(schema);
    if (wrong !== undefined) throw new SmithersError("INVALID_INPUT", `createSmithers(): "${key}" is not a schema, but ${wrong}: use z.object({ … }) or a JSON Schema`);
    // One schema can be used for two tables; the handles differ.
    const handle = tables.has(schema) && tables.get(schema).key !== key ? Object.create(schema) : schema;
    tables.set(handle, { key, schema });
    outputs[key] = handle;
  }
  const smithers = (build, opts = {}) => {
    if (typeof build !== "function") {
      throw new SmithersError("INVALID_INPUT", "smithers() requires a function that takes the context and returns a <Workflow>");
    }
    checkKeys("smithers()", opts, ["output"]);
    return new WorkflowDefinition(build, opts, schemas, outputs);
  };
  return {
    Workflow, Task, Sequence, Parallel, MergeQueue, Branch, Loop, Ralph, Approval, Timer, Signal, WaitForEvent, Subflow,
    HumanTask, Worktree, ContinueAsNew, TryCatchFinally, Saga, UI, TUI,
    Sandbox: bound(schemas, outputs),
    smithers, useCtx, outputs, tables: outputs, options,
  };
};
