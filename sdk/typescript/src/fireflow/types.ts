// Types and schemas for clients and servers: access rules, events, and the configuration of sandboxes.

/** What an access rule does. */
export type SandboxAccessEffect = "allow" | "deny";

/** What an access rule is about. `read` is included in both others, which do not include each other. */
export type SandboxAccessLevel = "read" | "readwrite" | "execute";

/** An access rule: any `deny` beats any `allow`, and no rules at all allow everything. */
export interface SandboxAccessRule {
  effect: SandboxAccessEffect;
  level: SandboxAccessLevel;
  /** An absolute path inside, which includes everything below it. */
  path: string;
}

const EFFECTS: readonly string[] = ["allow", "deny"];
const LEVELS: readonly string[] = ["read", "readwrite", "execute"];

/** The schema of access rules. */
export const SandboxAccessRule = {
  /** Returns the rule, or throws. The server checks rules again. */
  parse(value: unknown): SandboxAccessRule {
    if (typeof value !== "object" || value === null) throw new TypeError("a rule is an object");
    const rule = value as Record<string, unknown>;
    const unknown = Object.keys(rule).find((key) => !["effect", "level", "path"].includes(key));
    if (unknown !== undefined) throw new TypeError(`a rule has no ${unknown}`);
    if (!EFFECTS.includes(rule.effect as string)) throw new TypeError("`effect` is allow or deny");
    if (!LEVELS.includes(rule.level as string)) {
      throw new TypeError("`level` is read, readwrite or execute");
    }
    if (typeof rule.path !== "string" || !rule.path.startsWith("/")) {
      throw new TypeError("`path` is an absolute path");
    }
    return rule as unknown as SandboxAccessRule;
  },
};

/** The status of a sandbox; `error` is an addition of Stockade. */
export type SandboxStatus = "creating" | "running" | "paused" | "terminated" | "error";

/** The ports that a browser may reach. */
export interface SandboxProxyConfig {
  defaultPort?: number;
  exposedPorts?: number[];
}

/** A user inside, by name. */
export interface SandboxUserConfig {
  name: string;
  uid: number;
  gid?: number;
}

/** The resources of a sandbox. */
export interface SandboxResourceSpec {
  memoryBytes?: number;
  cpuMillis?: number;
  processes?: number;
  diskBytes?: number;
}

/** The hosts that a sandbox may connect to. */
export interface SandboxNetworkPolicy {
  allow?: string[];
  allowInternal?: string[];
  deny?: string[];
  default?: "allow" | "deny";
  secrets?: string[];
  strictSecrets?: boolean;
  limits?: SandboxTrafficLimits;
}

/** How much traffic a sandbox may have; what is absent has no limit, or the usual one. */
export interface SandboxTrafficLimits {
  connections?: number;
  bytes?: number;
  bandwidth?: number;
}

/** A reference to a secret in a vault. */
export interface SandboxSecretMapping {
  ref: string;
  env?: string;
  field?: string;
  scope?: "caller" | "flowOwner";
}

/** The stream to which operations write their events. */
export const SANDBOX_EVENTS_STREAM = "sandbox-events";

/** The events of FireFlow. */
export type SandboxEventType =
  | "SANDBOX_CREATED"
  | "SANDBOX_KILLED"
  | "SANDBOX_PAUSED"
  | "SANDBOX_RESUMED"
  | "SANDBOX_RENEWED"
  | "COMMAND_COMPLETED"
  | "SYNC_FROM_VFS_COMPLETED"
  | "SYNC_TO_VFS_COMPLETED";

/** What the event of a command says. */
export interface CommandCompleted {
  exitCode: number | null;
  durationMs: number;
  timedOut: boolean;
  stdoutBytes: number;
  stderrBytes: number;
}

/** What the event of a file transfer says. The first four are added up to the files examined. */
export interface SyncCompleted {
  copied: number;
  unchanged: number;
  skipped: number;
  deleted: number;
  bytes: number;
  conflicts: number;
  commitId?: string;
}

/** What each event says. */
export interface SandboxEventData {
  SANDBOX_CREATED: { image: string; expiresAt: string | null };
  SANDBOX_KILLED: { reason: string; bundle?: string };
  SANDBOX_PAUSED: { reason: string };
  SANDBOX_RESUMED: Record<string, never>;
  SANDBOX_RENEWED: { expiresAt: string | null };
  COMMAND_COMPLETED: CommandCompleted;
  SYNC_FROM_VFS_COMPLETED: SyncCompleted;
  SYNC_TO_VFS_COMPLETED: SyncCompleted;
}

/** An event, as it is stored and sent. */
export type SandboxEventPayload = {
  [Type in SandboxEventType]: {
    seq: number;
    /** Derived from the operation, so a replay records no second event. */
    id: string;
    type: Type;
    sandboxId: string;
    ownerId: string;
    executionId: string | null;
    at: string;
    data: SandboxEventData[Type];
  };
}[SandboxEventType];

/** The status of a long operation. */
export type SandboxWorkflowStatus = "waiting" | "running" | "succeeded" | "failed" | "cancelled";

/** A long operation: its id, its result once it has ended, and its status now. */
export interface ISandboxWorkflowHandle<Result> {
  workflowId: string;
  getResult(): Promise<Result>;
  getStatus(): Promise<SandboxWorkflowStatus>;
}

/** A part of the output of a command. The last one is its end. */
export type SandboxOutputChunk =
  | { sequence: number; kind: "stdout"; data: string | { base64: string } }
  | { sequence: number; kind: "stderr"; data: string | { base64: string } }
  | { sequence: number; kind: "truncated"; bytes: number }
  | ({ sequence: number; kind: "exit"; ending: string } & Omit<CommandCompleted, "timedOut">);
