// Type declarations for editors: what workflow files can import from "smithers-orchestrator" and "stockade".
declare module "smithers-orchestrator" {
  type Json = unknown;
  type Schema = object;
  type Output = Schema | string;
  type Node = Element | Element[] | string | number | boolean | null | undefined | Node[];
  interface Element {
    readonly type: unknown;
    readonly props: unknown;
  }

  interface RetryPolicy {
    backoff?: "fixed" | "linear" | "exponential";
    initialDelayMs?: number;
    maxDelayMs?: number;
  }
  interface CachePolicy {
    key?: Json;
    version?: Json;
    by?: ((ctx: Ctx) => Json) | object | string | number | boolean | null;
    ttlMs?: number;
    scope?: "run" | "workflow" | "global";
  }
  interface Common {
    id: string;
    key?: string;
    output?: Output;
    dependsOn?: string[];
    needs?: Record<string, string>;
    deps?: Record<string, Output>;
    skipIf?: boolean;
    retries?: number;
    noRetry?: boolean;
    retryPolicy?: RetryPolicy;
    timeoutMs?: number;
    heartbeatTimeoutMs?: number;
    heartbeatTimeout?: number;
    continueOnFail?: boolean;
    cache?: boolean | CachePolicy;
    label?: string;
    meta?: Record<string, Json>;
  }
  interface AgentRequest {
    prompt: string;
    signal?: AbortSignal;
    heartbeat?: () => void;
  }
  interface Agent {
    generate(request: AgentRequest): Json | Promise<Json>;
  }
  type AgentFunction = (request: AgentRequest) => Json | Promise<Json>;
  interface CommandOptions {
    image?: string;
    env?: Record<string, string>;
    timeoutMs?: number;
    network?: boolean;
  }
  // A command that reads the prompt from its standard input and writes JSON. It is executed in a sandbox.
  interface CommandAgent extends CommandOptions {
    command: string | string[];
    args?: string[];
  }
  interface AdapterAgent extends CommandOptions {
    adapter: string;
    model?: string;
    args?: string[];
  }
  interface CliOptions extends CommandOptions {
    id?: string;
    model?: string;
    systemPrompt?: string;
    instructions?: string;
    /** Only process.cwd(), the project. */
    cwd?: string;
    apiKey?: string;
    args?: string[];
    extraArgs?: string[];
    /** The options of the program, under the names of Smithers. */
    [option: string]: any;
  }
  abstract class CliAgent implements AdapterAgent {
    constructor(options?: CliOptions);
    readonly adapter: string;
  }
  export class AmpAgent extends CliAgent {}
  export class AntigravityAgent extends CliAgent {}
  export class ClaudeCodeAgent extends CliAgent {}
  export class CodexAgent extends CliAgent {}
  export class CursorAgent extends CliAgent {}
  export class ForgeAgent extends CliAgent {}
  export class GeminiAgent extends CliAgent {}
  export class HermesCliAgent extends CliAgent {}
  export class KimiAgent extends CliAgent {}
  export class OmpAgent extends CliAgent {}
  export class OpenClawAgent extends CliAgent {}
  export class OpenCodeAgent extends CliAgent {}
  export class PiAgent extends CliAgent {}
  export class PoolAgent extends CliAgent {}
  export class VibeAgent extends CliAgent {}
  type AnyAgent = Agent | AgentFunction | CommandAgent | AdapterAgent | string;
  interface Scored {
    input?: unknown;
    output: any;
    groundTruth?: unknown;
    context?: unknown;
    latencyMs?: number;
  }
  interface Scorer {
    id?: string;
    score(scored: Scored): any;
  }
  interface TaskProps extends Common {
    output: Output;
    outputSchema?: Schema;
    needsApproval?: boolean;
    async?: boolean;
    agent?: AnyAgent | readonly AnyAgent[];
    fallbackAgent?: AnyAgent | readonly AnyAgent[];
    allowTools?: string[];
    scorers?: Record<string, { scorer: Scorer; sampling?: { type: "all" | "ratio" | "none"; rate?: number } } | Scorer>;
    /** For `scorers`. */
    groundTruth?: Json;
    /** For `scorers`. */
    context?: Json;
    children?: Json | ((inputs: any, run: { signal: AbortSignal; heartbeat: () => void }) => Json | Promise<Json>);
  }
  interface Group {
    id?: string;
    label?: string;
    skipIf?: boolean;
    children?: Node;
  }

  export function Workflow(props: { name: string; cache?: boolean; children?: Node }): Element;
  export function Task(props: TaskProps): Element;
  export function Sequence(props: Group): Element;
  export function Parallel(props: Group & { maxConcurrency?: number; subtreeConcurrency?: number }): Element;
  export function MergeQueue(props: Group & { maxConcurrency?: number }): Element;
  export function Branch(props: { if: boolean; then?: Node; else?: Node; skipIf?: boolean }): Element;
  export function Loop(
    props: Group & {
      until?: boolean;
      maxIterations?: number;
      onMaxReached?: "fail" | "return-last";
    },
  ): Element;
  export const Ralph: typeof Loop;
  export function Approval(
    props: Common & {
      request?: { title?: string; summary?: string };
      onDeny?: "fail" | "continue" | "skip";
    },
  ): Element;
  export function Timer(props: Common & { duration?: string | number; until?: string | Date }): Element;
  interface Wait extends Common {
    /** Whether what is beside it does not wait. */
    async?: boolean;
    event?: string;
    correlationId?: string;
    onTimeout?: "fail" | "continue" | "skip";
  }
  export function WaitForEvent(props: Wait): Element;
  export function Signal(props: Wait & { schema?: Output; children?: (value: any) => Node }): Element;
  export function HumanTask(props: Common & { prompt?: Node; maxAttempts?: number }): Element;
  export function Worktree(props: Group & { path: string; branch?: string; baseBranch?: string }): Element;
  export function ContinueAsNew(props: { state?: Json }): Element;
  export function continueAsNew(state?: Json): Element;
  export function TryCatchFinally(props: {
    id?: string;
    try: Node;
    catch?: Node | ((error: SmithersError) => Node);
    catchErrors?: string[];
    finally?: Node;
    skipIf?: boolean;
  }): Element;
  interface SagaStepProps {
    id: string;
    compensation: Node;
    children?: Node;
  }
  export const SagaStep: (props: SagaStepProps) => Element;
  export const Saga: {
    (props: {
      id?: string;
      steps?: { id: string; action: Node; compensation: Node }[];
      onFailure?: "compensate" | "compensate-and-fail" | "fail";
      skipIf?: boolean;
      children?: Node;
    }): Element;
    Step: typeof SagaStep;
  };
  // Components that consist of other elements, with the attributes of Smithers.
  type Component = (props: { id?: string; skipIf?: boolean; children?: any; [attribute: string]: any }) => Element;
  export const ApprovalGate: Component;
  export function Aspects(props: {
    tokenBudget?: { max: number; perTask?: number; onExceeded?: "fail" | "warn" | "skip-remaining" };
    latencySlo?: { maxMs: number; onExceeded?: "fail" | "warn" };
    tracking?: { tokens?: boolean; latency?: boolean };
    children?: any;
  }): Element;
  export const CheckSuite: Component;
  export const ClassifyAndRoute: Component;
  export const ContentPipeline: Component;
  export const Debate: Component;
  export const DecisionTable: Component;
  export const DriftDetector: Component;
  export const EscalationChain: Component;
  export const GatherAndSynthesize: Component;
  export const Kanban: Component;
  export const Optimizer: Component;
  export const Panel: Component;
  export const Poller: Component;
  export const ReviewLoop: Component;
  export const Runbook: Component;
  export const ScanFixVerify: Component;
  export const Sidecar: Component;
  export const SuperSmithers: Component;
  export const Supervisor: Component;
  export const UI: Component;
  export function createScorer(definition: Scorer & Record<string, unknown>): Scorer;
  export function schemaAdherenceScorer(): Scorer;
  export function latencyScorer(limits: { targetMs: number; maxMs: number }): Scorer;
  type Judge = Agent | AgentFunction;
  export function llmJudge(config: {
    id: string;
    name?: string;
    description?: string;
    judge: Judge;
    instructions: string;
    promptTemplate: (scored: Scored) => string;
  }): Scorer;
  export function relevancyScorer(judge: Judge): Scorer;
  export function faithfulnessScorer(judge: Judge): Scorer;
  export function toxicityScorer(judge: Judge): Scorer;
  export const approvalDecisionSchema: Schema;
  export const approvalSelectionSchema: Schema;
  export const approvalRankingSchema: Schema;
  export function Subflow(
    props: Common & { workflow: SmithersWorkflow; input?: Json; mode?: "childRun" | "inline" },
  ): Element;
  export interface SandboxVolumeMount {
    host: string;
    container: string;
    readonly?: boolean;
  }
  export interface SandboxWorkspaceSpec {
    name: string;
    snapshotId?: string;
    idleTimeoutSecs?: number;
    persistence?: "ephemeral" | "sticky";
  }
  export interface SandboxProps extends Common {
    output: Output;
    workflow?: SmithersWorkflow;
    input?: Json;
    /** A provider object, or the id of a registered one. */
    provider?: Json;
    /** `bubblewrap` and `native` are the runtime of this host; `bwrap` is the program bubblewrap. */
    runtime?: "bubblewrap" | "native" | "bwrap" | "docker" | "codeplane";
    /** The runtime that is used if the requested one is not usable here, or lacks what is requested. */
    fallbackRuntime?: "bubblewrap" | "native" | "bwrap" | "docker";
    allowNetwork?: boolean;
    reviewDiffs?: boolean;
    autoAcceptDiffs?: boolean;
    allowNested?: boolean;
    /** What to do at the limit of concurrent sandboxes: fail (the default) or wait. */
    onLimit?: "fail" | "wait";
    image?: string;
    env?: Record<string, string>;
    egress?: {
      env?: Record<string, string>;
      httpProxy?: string;
      httpsProxy?: string;
      noProxy?: string | string[];
      caCertPem?: string;
      caCertPath?: string;
      secretBindings?: Record<string, string>;
      /** The only hosts that it may connect to, as `HOST` or `HOST:PORT`; every public host if absent. */
      allowHosts?: string[];
    };
    ports?: { host: number; container: number }[];
    volumes?: SandboxVolumeMount[];
    memoryLimit?: string;
    cpuLimit?: string;
    command?: string;
    workspace?: SandboxWorkspaceSpec;
    /** The output limit of each command in it, in bytes; its output up to that limit is its result. */
    maxOutputBytes?: number;
    /** The timeout of each command in it: its `command`, and those of agents of its workflow. */
    toolTimeoutMs?: number;
    children?: Node | ((ctx: Ctx) => Node);
  }
  export function Sandbox(props: SandboxProps): Element;

  // The nodes of FireFlow: operations on sandboxes with named ports. `from` names tasks whose outputs
  // give the ports that pass through, and the stream.
  interface Ports extends Common {
    from?: string | string[];
    sandboxId?: string;
    accessRules?: { effect: "allow" | "deny"; level: "read" | "readwrite" | "execute"; path: string }[];
    proxyConfig?: { defaultPort?: number; exposedPorts?: number[] };
  }
  interface CommandPorts extends Ports {
    command: string | string[];
    workingDirectory?: string;
    env?: Record<string, string>;
    uid?: number;
    gid?: number;
    user?: string;
    stdin?: string;
    timeoutSeconds?: number;
  }
  interface SyncPorts extends Ports {
    path: string;
    vfs?: { directory?: string; workspace?: string; path?: string; branch?: string };
    workspaceId?: string;
    directory?: string;
    vfsPath?: string;
    branch?: string;
    include?: string[];
    exclude?: string[];
    gitignore?: boolean;
    keepEmptyDirs?: boolean;
    mirror?: boolean;
    twoWay?: boolean;
    allowEmpty?: boolean;
    conflict?: "fail" | "skip" | "vfs_wins" | "container_wins";
    commit?: boolean;
    message?: string;
    gitDirectories?: boolean;
    maxFileBytes?: number;
    largeFiles?: "skip" | "fail";
    maxBytes?: number;
    maxFiles?: number;
    dryRun?: boolean;
    wait?: boolean;
  }
  interface RequestPorts extends Ports {
    port?: number;
    path?: string;
    headers?: Record<string, string>;
    timeoutSeconds?: number;
    limitBytes?: number;
  }
  interface HttpPorts extends RequestPorts {
    method?: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";
    body?: string;
  }
  export function SandboxCreateNode(
    props: Ports & {
      image?: string;
      resources?: Record<string, number>;
      users?: { name: string; uid: number; gid?: number }[];
      defaultUid?: number;
      env?: Record<string, string>;
      secrets?: string[];
      networkPolicy?: { allow?: string[]; deny?: string[]; default?: "allow" | "deny" };
      metadata?: Record<string, string>;
      workspaceId?: string;
      timeoutSeconds?: number;
      runtime?: string;
    },
  ): Element;
  export function SandboxExecuteNode(props: CommandPorts): Element;
  export function SandboxExecuteStreamNode(props: CommandPorts): Element;
  export function SandboxKillNode(props: Ports & { discard?: boolean }): Element;
  export function SandboxPauseNode(props: Ports): Element;
  export function SandboxResumeNode(props: Ports): Element;
  export function SandboxRenewNode(props: Ports & { timeoutSeconds: number; shorten?: boolean }): Element;
  export function SandboxStatusNode(props: Ports & { includeMetrics?: boolean }): Element;
  export function SandboxSyncFromVFSNode(props: SyncPorts): Element;
  export function SandboxSyncToVFSNode(props: SyncPorts): Element;
  export function SandboxWriteSecretFileNode(
    props: Ports & { secret: string; field?: string; scope?: "caller" | "flowOwner"; path: string; uid?: number },
  ): Element;
  export function SandboxHttpRequestNode(props: HttpPorts & { markdown?: boolean }): Element;
  export function SandboxHttpStreamNode(props: HttpPorts): Element;
  export function SandboxWebSocketNode(
    props: RequestPorts & { protocols?: string[]; messages?: string[]; receive?: number },
  ): Element;
  export function SandboxStreamSplitterNode(props: Ports & { workflowId?: string }): Element;

  export interface Ctx<Input = any> {
    readonly runId: string;
    readonly input: Input;
    readonly iteration: number;
    readonly iterations: Record<string, number>;
    readonly outputs: ((table: Output) => any[]) & Record<string, any[]>;
    output(table: Output, key?: { nodeId?: string; iteration?: number }): any;
    outputMaybe(table: Output, key?: { nodeId?: string; iteration?: number }): any;
    latest(table: Output, nodeId?: string): any;
    latestArray(value: Json): any[];
    iterationCount(table: Output, nodeId: string): number;
    outputRows(table: Output): any[];
    signalRows(name?: string): any[];
  }
  export interface SmithersWorkflow {
    readonly build: (ctx: Ctx) => Element;
  }
  export function createSmithers<Schemas extends Record<string, Schema>>(
    schemas?: Schemas,
    options?: Record<string, Json>,
  ): {
    Workflow: typeof Workflow;
    Task: typeof Task;
    Sequence: typeof Sequence;
    Parallel: typeof Parallel;
    MergeQueue: typeof MergeQueue;
    Branch: typeof Branch;
    Loop: typeof Loop;
    Ralph: typeof Loop;
    Approval: typeof Approval;
    Timer: typeof Timer;
    Signal: typeof Signal;
    WaitForEvent: typeof WaitForEvent;
    Subflow: typeof Subflow;
    Sandbox: typeof Sandbox;
    HumanTask: typeof HumanTask;
    Worktree: typeof Worktree;
    ContinueAsNew: typeof ContinueAsNew;
    TryCatchFinally: typeof TryCatchFinally;
    Saga: typeof Saga;
    UI: Component;
    outputs: Schemas;
    tables: Schemas;
    useCtx(): Ctx;
    smithers(build: (ctx: Ctx) => Element, options?: { output?: Output }): SmithersWorkflow;
  };
  export function useCtx(): Ctx;
  export class SmithersError extends Error {
    constructor(code: string, message: string, details?: Json);
    readonly code: string;
  }
}

declare module "smithers-orchestrator/jsx-runtime" {
  export const jsx: any;
  export const jsxs: any;
  export const Fragment: any;
  export namespace JSX {
    type Element = any;
    interface ElementChildrenAttribute {
      children: {};
    }
    interface IntrinsicElements {
      [name: string]: any;
    }
  }
}

declare module "*.mdx" {
  const Prompt: (props: Record<string, any>) => any;
  export default Prompt;
  export const frontmatter: Record<string, any>;
}

declare module "*.md" {
  const Prompt: (props: Record<string, any>) => any;
  export default Prompt;
  export const frontmatter: Record<string, any>;
}

declare module "smithers-orchestrator/sandbox" {
  import type { SmithersWorkflow } from "smithers-orchestrator";

  export interface SandboxEgressConfig {
    env?: Record<string, string>;
    httpProxy?: string;
    httpsProxy?: string;
    noProxy?: string;
    caCertPem?: string;
    caCertPath?: string;
    secretBindings?: Record<string, string>;
    /** The only hosts that it may connect to, as `HOST` or `HOST:PORT`; every public host if absent. */
    allowHosts?: string[];
  }
  export type SandboxWorkflow = SmithersWorkflow;
  export type SandboxChildWorkflowDefinition = SmithersWorkflow;
  export interface SandboxChildWorkflowOptions {
    workflow: SandboxChildWorkflowDefinition;
    /** A value that is not an object becomes `{ value: input }`. */
    input?: unknown;
    /** Identifies this child among those of the same sandbox; each runs once, however often it is requested. */
    runId?: string;
    /** Must be `request.runId`. */
    parentRunId?: string;
    /** Must be `request.rootDir`. */
    rootDir?: string;
    /** `true` only if the sandbox itself has network access. */
    allowNetwork?: boolean;
    /** At most the value of the sandbox itself. */
    maxOutputBytes?: number;
    /** At most the value of the sandbox itself. */
    toolTimeoutMs?: number;
    signal?: AbortSignal;
  }
  export interface SandboxChildWorkflowResult {
    runId: string;
    status: "finished" | "failed" | "cancelled";
    output: any;
    error?: { code: string; message: string };
  }
  export type ExecuteSandboxChildWorkflow = (
    parentWorkflow: SandboxWorkflow | undefined | null,
    options: SandboxChildWorkflowOptions,
  ) => Promise<SandboxChildWorkflowResult>;
  export interface SandboxProviderRequest {
    runId: string;
    sandboxId: string;
    input?: any;
    rootDir: string;
    requestBundlePath: string;
    resultBundlePath: string;
    workflow: SandboxChildWorkflowDefinition;
    parentWorkflow?: SandboxWorkflow;
    executeChildWorkflow: ExecuteSandboxChildWorkflow;
    allowNetwork: boolean;
    maxOutputBytes: number;
    toolTimeoutMs: number;
    egress?: SandboxEgressConfig;
    config: Record<string, any>;
    signal?: AbortSignal;
    /** JSON of at most a megabyte. */
    heartbeat(data?: unknown): void;
  }
  export interface SandboxDiffBundleLike {
    seq: number;
    baseRef: string;
    patches: {
      path: string;
      operation: "add" | "modify" | "delete";
      diff: string;
      /** Base64. */
      binaryContent?: string;
    }[];
  }
  interface Remote {
    remoteRunId?: string;
    workspaceId?: string;
    containerId?: string;
  }
  export type SandboxProviderResult =
    | (Remote & { bundlePath: string })
    | (Remote & {
        status: "finished" | "failed" | "cancelled";
        output?: unknown;
        outputs?: unknown;
        runId?: string;
        diffBundle?: SandboxDiffBundleLike;
        patches?: { path: string; content: string }[];
        artifacts?: { path: string; content: string }[];
        streamLogPath?: string;
      });
  export interface SandboxProvider {
    id: string;
    run(request: SandboxProviderRequest): Promise<SandboxProviderResult> | SandboxProviderResult;
    cleanup?(request: SandboxProviderRequest): Promise<void> | void;
  }
  /** The options with which a `<Sandbox>` is executed. */
  export interface ExecuteSandboxOptions {
    sandboxId: string;
    provider?: unknown;
    runtime?: "bubblewrap" | "docker" | "codeplane";
    workflow: SandboxChildWorkflowDefinition;
    parentWorkflow?: SandboxWorkflow;
    executeChildWorkflow: ExecuteSandboxChildWorkflow;
    input?: unknown;
    rootDir: string;
    allowNetwork: boolean;
    maxOutputBytes: number;
    toolTimeoutMs: number;
    reviewDiffs?: boolean;
    autoAcceptDiffs?: boolean;
    allowNested?: boolean;
    egress?: SandboxEgressConfig;
    config?: Record<string, unknown>;
  }
  /** Registers a provider under its id, for `provider={id}`; the returned function removes it. */
  export function registerSandboxProvider(provider: SandboxProvider): () => void;

  /** A remote environment with files, in which a command can be executed. */
  export interface SandboxSession {
    readonly remoteId: string;
    writeFile(path: string, content: string): Promise<void> | void;
    readFile(path: string): Promise<string> | string;
    exec(
      command: string,
      options: { cwd?: string; env?: Record<string, string>; timeoutMs?: number; signal?: AbortSignal },
    ): Promise<{ exitCode: number; stdout: string; stderr: string }>;
    destroy?(): Promise<void> | void;
  }
  export interface SandboxProviderCommandOptions {
    id: string;
    createSession(request: SandboxProviderRequest): Promise<SandboxSession> | SandboxSession;
    command?: string;
    workdir?: string;
    requestFile?: string;
    resultFile?: string;
    env?: Record<string, string>;
    cleanup?: "destroy" | "keep";
  }
  /**
   * A provider that executes one command in a session. The command reads its request from a file, and prints its
   * result or writes it to a file.
   */
  export function createCommandSandboxProvider(options: SandboxProviderCommandOptions): SandboxProvider;
  export function parseSandboxProviderResult(
    raw: string,
    remoteId: string,
    context?: { provider?: string; resultPath?: string; secrets?: string[] },
  ): SandboxProviderResult;
  export function redactSandboxProviderValue<T>(value: T): T;
  export function writeSandboxProviderRequestFile(
    session: SandboxSession,
    path: string,
    request: SandboxProviderRequest,
  ): Promise<Record<string, unknown>>;
  export function uploadEgressCaToSession(
    session: SandboxSession,
    egress: SandboxEgressConfig | undefined,
    workdir: string,
  ): Promise<string | null>;
  export const SANDBOX_PROVIDER_REQUEST_ENV: "SMITHERS_SANDBOX_REQUEST_PATH";
  export const SANDBOX_PROVIDER_RESULT_ENV: "SMITHERS_SANDBOX_RESULT_PATH";
}

declare module "stockade" {
  export * from "smithers-orchestrator";
}

declare module "stockade/sandbox" {
  export * from "smithers-orchestrator/sandbox";
}

declare module "stockade/jsx-runtime" {
  export * from "smithers-orchestrator/jsx-runtime";
}

declare const process: {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly argv: readonly string[];
  readonly platform: "linux";
  /** Where agents find the project. */
  cwd(): string;
};
