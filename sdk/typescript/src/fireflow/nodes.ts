// The fifteen nodes, by their names, with the types of their ports. Each is run by the operation
// `run_node` of a server.
import type { SendOperation } from "./client.ts";
import type { SandboxInstanceRow } from "./db.ts";
import type {
  SandboxAccessRule,
  SandboxNetworkPolicy,
  SandboxProxyConfig,
  SandboxResourceSpec,
  SandboxStatus,
  SandboxUserConfig,
  SandboxWorkflowStatus,
  SyncCompleted,
} from "./types.ts";

/** Bytes: text, or base64 where they are not UTF-8. */
export type Bytes = string | { base64: string };

/** The ports that pass through every node. */
export interface SandboxPassthrough {
  sandboxId: string;
  accessRules?: SandboxAccessRule[];
  proxyConfig?: SandboxProxyConfig | null;
}

type Through<Outputs> = Outputs & SandboxPassthrough;

/** The outputs of a node that changes or reads a state. */
export interface SandboxState {
  status: SandboxStatus;
  expiresAt: string | null;
}

export interface SandboxCreateInputs {
  image?: string;
  resources?: SandboxResourceSpec;
  users?: SandboxUserConfig[];
  defaultUid?: number;
  env?: Record<string, string>;
  accessRules?: SandboxAccessRule[];
  secrets?: string[];
  networkPolicy?: SandboxNetworkPolicy;
  proxyConfig?: SandboxProxyConfig;
  metadata?: Record<string, string>;
  workspaceId?: string;
  timeoutSeconds?: number;
  runtime?: string;
}

export interface SandboxExecuteInputs extends SandboxPassthrough {
  command: string | string[];
  workingDirectory?: string;
  env?: Record<string, string>;
  uid?: number;
  gid?: number;
  user?: string;
  stdin?: Bytes;
  timeoutSeconds?: number;
}

export interface SandboxSyncInputs extends SandboxPassthrough {
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
  /** Whether the node waits for the end; it does by default. */
  wait?: boolean;
}

export interface SandboxSyncOutputs extends SyncCompleted {
  workflowId: string;
  status: SandboxWorkflowStatus;
  report: unknown;
}

export interface SandboxHttpInputs extends SandboxPassthrough {
  /** The default port of `proxyConfig` if absent. */
  port?: number;
  method?: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";
  path?: string;
  headers?: Record<string, string>;
  body?: Bytes;
  timeoutSeconds?: number;
  limitBytes?: number;
}

/** The inputs of each node. */
export interface SandboxNodeInputs {
  SandboxCreateNode: SandboxCreateInputs;
  SandboxExecuteNode: SandboxExecuteInputs;
  SandboxExecuteStreamNode: SandboxExecuteInputs;
  SandboxKillNode: SandboxPassthrough & { discard?: boolean };
  SandboxPauseNode: SandboxPassthrough;
  SandboxResumeNode: SandboxPassthrough;
  SandboxRenewNode: SandboxPassthrough & { timeoutSeconds: number; shorten?: boolean };
  SandboxStatusNode: SandboxPassthrough & { includeMetrics?: boolean };
  SandboxSyncFromVFSNode: SandboxSyncInputs;
  SandboxSyncToVFSNode: SandboxSyncInputs;
  SandboxWriteSecretFileNode: SandboxPassthrough & {
    secret: string;
    field?: string;
    scope?: "caller" | "flowOwner";
    path: string;
    uid?: number;
  };
  SandboxHttpRequestNode: SandboxHttpInputs & { markdown?: boolean };
  SandboxHttpStreamNode: SandboxHttpInputs;
  SandboxWebSocketNode: SandboxPassthrough & {
    port?: number;
    path?: string;
    headers?: Record<string, string>;
    protocols?: string[];
    messages?: Bytes[];
    receive?: number;
    timeoutSeconds?: number;
    limitBytes?: number;
  };
  SandboxStreamSplitterNode: Partial<SandboxPassthrough> & { workflowId: string };
}

/** The outputs of each node. */
export interface SandboxNodeOutputs {
  SandboxCreateNode: Through<SandboxState & { image: string; createdAt: string }>;
  SandboxExecuteNode: Through<{
    stdout: Bytes;
    stderr: Bytes;
    exitCode: number | null;
    timedOut: boolean;
    durationMs: number;
    workflowId: string;
  }>;
  SandboxExecuteStreamNode: Through<{ workflowId: string; status: SandboxWorkflowStatus }>;
  SandboxKillNode: Through<SandboxState & { terminatedAt: string | null }>;
  SandboxPauseNode: Through<SandboxState>;
  SandboxResumeNode: Through<SandboxState>;
  SandboxRenewNode: Through<SandboxState>;
  SandboxStatusNode: Through<
    SandboxState & {
      isAlive: boolean;
      sandbox: SandboxInstanceRow;
      rules: string;
      metrics: Record<string, unknown> | null;
    }
  >;
  SandboxSyncFromVFSNode: Through<SandboxSyncOutputs>;
  SandboxSyncToVFSNode: Through<SandboxSyncOutputs>;
  SandboxWriteSecretFileNode: Through<{ path: string }>;
  SandboxHttpRequestNode: Through<{
    statusCode: number;
    headers: Record<string, string>;
    body: Bytes;
    truncated: boolean;
    markdown: boolean;
  }>;
  SandboxHttpStreamNode: Through<{
    statusCode: number;
    headers: Record<string, string>;
    chunks: string[];
    truncated: boolean;
  }>;
  SandboxWebSocketNode: Through<{
    protocol: string | null;
    messages: Bytes[];
    closeCode: number | null;
  }>;
  SandboxStreamSplitterNode: Partial<SandboxPassthrough> & {
    stdout: string[];
    stderr: string[];
    exit: number[];
    exitCode: number | null;
    error: string | null;
  };
}

/** The name of a node. */
export type SandboxNodeName = keyof SandboxNodeInputs & keyof SandboxNodeOutputs;

/** A node, which a server runs. */
export class SandboxNode<Name extends SandboxNodeName> {
  readonly category = "sandbox";
  readonly execution = { dbos: true } as const;

  constructor(readonly name: Name) {}

  /** Runs the node; `send` sends operations to a server. */
  async execute(
    send: SendOperation,
    inputs: SandboxNodeInputs[Name],
  ): Promise<SandboxNodeOutputs[Name]> {
    const answer = (await send("run_node", { node: this.name, inputs })) as {
      outputs: SandboxNodeOutputs[Name];
    };
    return answer.outputs;
  }
}

export const SandboxCreateNode = new SandboxNode("SandboxCreateNode");
export const SandboxExecuteNode = new SandboxNode("SandboxExecuteNode");
export const SandboxExecuteStreamNode = new SandboxNode("SandboxExecuteStreamNode");
export const SandboxKillNode = new SandboxNode("SandboxKillNode");
export const SandboxPauseNode = new SandboxNode("SandboxPauseNode");
export const SandboxResumeNode = new SandboxNode("SandboxResumeNode");
export const SandboxRenewNode = new SandboxNode("SandboxRenewNode");
export const SandboxStatusNode = new SandboxNode("SandboxStatusNode");
export const SandboxSyncFromVFSNode = new SandboxNode("SandboxSyncFromVFSNode");
export const SandboxSyncToVFSNode = new SandboxNode("SandboxSyncToVFSNode");
export const SandboxWriteSecretFileNode = new SandboxNode("SandboxWriteSecretFileNode");
export const SandboxHttpRequestNode = new SandboxNode("SandboxHttpRequestNode");
export const SandboxHttpStreamNode = new SandboxNode("SandboxHttpStreamNode");
export const SandboxWebSocketNode = new SandboxNode("SandboxWebSocketNode");
export const SandboxStreamSplitterNode = new SandboxNode("SandboxStreamSplitterNode");
