// A sandbox: commands, files, ports, snapshots, its life, and what it has changed.
import * as path from "node:path";

import { Bundle } from "./bundle.ts";
import { fromBytes } from "./bytes.ts";
import { Client } from "./client.ts";
import { Command } from "./command.ts";
import { CommandFailedError } from "./command_failed.ts";
import { Files } from "./files.ts";
import type {
  CommandLine,
  CreateSandbox,
  Execute,
  ExecuteResult,
  Network,
  Sandbox as SandboxInfo,
  Snapshot,
  Terminal,
  ToolResult,
  Workspace,
} from "./generated/models.ts";
import { Ports } from "./ports.ts";
import { Session } from "./session.ts";

/** How a sandbox is created, and by whom. */
export interface CreateOptions extends Omit<CreateSandbox, "workspace" | "network"> {
  /** A directory of this machine that the sandbox sees copy-on-write, at the same path; commands start there. */
  workspace?: string | Workspace;
  /** The hosts that may be reached. */
  network?: string[] | Network;
  client?: Client;
  /** The key of this one call: another one with the same key does nothing and has the same result. */
  key?: string;
}

/** How a command runs. */
export interface CommandOptions {
  environment?: Record<string, string>;
  workingDirectory?: string;
  /** The name or the id of a user. */
  user?: string | number;
  timeoutSeconds?: number;
  /** Whether an exit code other than 0 is an error; for `run` only. */
  check?: boolean;
  key?: string;
}

/**
 * A sandbox. With `await using` it is killed at the end of the block; what it has changed in its workspace is a
 * bundle then.
 */
export class Sandbox {
  readonly id: string;
  readonly files: Files;
  readonly ports: Ports;
  #isKilled = false;

  constructor(
    readonly client: Client,
    info: SandboxInfo,
    private readonly ownsClient = false,
  ) {
    this.id = info.id;
    this.files = new Files(client, info.id);
    this.ports = new Ports(client, info.id);
  }

  /** Creates a sandbox. The default has the programs of the server's machine and no network. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { client, key, workspace, network, ...rest } = options;
    const seen = typeof workspace === "string" ? sameDirectory(workspace) : workspace;
    const request: CreateSandbox = {
      ...(seen === undefined ? {} : { workspace: seen, workingDirectory: seen.inside }),
      ...(network === undefined ? {} : { network: Array.isArray(network) ? { allow: network } : network }),
      ...rest,
    };
    return withClient(client, (own) => own.create(request, key === undefined ? {} : { key }));
  }

  /** A sandbox that exists. */
  static connect(id: string, options: { client?: Client } = {}): Promise<Sandbox> {
    return withClient(options.client, (own) => own.getStatus({ id }));
  }

  /** Creates a sandbox with the files of a snapshot. */
  static restore(
    snapshotId: string,
    { client, ...sandbox }: CreateSandbox & { client?: Client } = {},
  ): Promise<Sandbox> {
    return withClient(client, (own) => own.restore({ snapshotId, sandbox }));
  }

  /** The properties of the caller's sandboxes, the newest first. */
  static async list(client?: Client): Promise<SandboxInfo[]> {
    const own = client ?? new Client();
    try {
      const found: SandboxInfo[] = [];
      for (;;) {
        const page = await own.list({ after: found.at(-1)?.id ?? null });
        found.push(...page.sandboxes);
        if (!page.more) return found;
      }
    } finally {
      if (client === undefined) own.close();
    }
  }

  /** Its properties; with `metrics`, also its resource usage. */
  info(options: { metrics?: boolean } = {}): Promise<SandboxInfo> {
    return this.client.getStatus({ id: this.id, ...options });
  }

  /** Runs a command and waits for its end. */
  async run(
    command: string | string[],
    options: CommandOptions & { input?: string | Uint8Array } = {},
  ): Promise<ExecuteResult> {
    const { input, check, key } = options;
    const request = this.#execute(command, options);
    const stdin = input === undefined ? {} : { stdin: fromBytes(input) };
    const result = await this.client.execute({ ...request, ...stdin }, key === undefined ? {} : { key });
    if (check === true && result.exitCode !== 0) throw new CommandFailedError(result);
    return result;
  }

  /** Starts a command whose output is stored, and does not wait for it. */
  async startCommand(command: string | string[], options: CommandOptions = {}): Promise<Command> {
    const { key } = options;
    const request = this.#execute(command, options);
    const info = await this.client.executeStream(request, key === undefined ? {} : { key });
    return new Command(this.client, info.workflowId);
  }

  /** A command whose streams the caller has. With `input`, the caller writes to its standard input. */
  async openSession(
    command: string | string[],
    options: CommandOptions & { input?: boolean; terminal?: Terminal } = {},
  ): Promise<Session> {
    const { input = false, terminal } = options;
    const request = { execute: this.#execute(command, options), input, terminal };
    return new Session(this.client, await this.client.transport.upgrade("/v0/session", request));
  }

  /** Runs a tool of the server in the sandbox. */
  runTool(
    tool: string,
    toolArguments: Record<string, unknown>,
    options: { timeoutSeconds?: number } = {},
  ): Promise<ToolResult> {
    return this.client.runTool({ sandboxId: this.id, tool, arguments: toolArguments, ...options });
  }

  /** Starts it again after `stop`, or after it has failed. */
  start(): Promise<SandboxInfo> {
    return this.client.start({ id: this.id });
  }

  /** Ends its processes and keeps its files. */
  stop(): Promise<SandboxInfo> {
    return this.client.stop({ id: this.id });
  }

  /** Freezes all its processes. */
  pause(): Promise<SandboxInfo> {
    return this.client.pause({ id: this.id });
  }

  /** Continues its processes after `pause`. */
  resume(): Promise<SandboxInfo> {
    return this.client.resume({ id: this.id });
  }

  /** Lets it live so many seconds from now on; with `null` it never expires. */
  renew(ttlSeconds: number | null, options: { shorten?: boolean } = {}): Promise<SandboxInfo> {
    return this.client.renew({ id: this.id, ttlSeconds, ...options });
  }

  /** Takes a snapshot of its files, from which `restore` creates sandboxes. */
  snapshot(name?: string): Promise<Snapshot> {
    return this.client.snapshot({ sandboxId: this.id, name });
  }

  /** What it has changed in its workspace as a bundle; `undefined` if nothing has changed. */
  async collect(exclude: string[] = []): Promise<Bundle | undefined> {
    const { bundle } = await this.client.collectChanges({ sandboxId: this.id, exclude });
    return bundle ? new Bundle(this.client, bundle) : undefined;
  }

  /**
   * Terminates it and removes its files. What it has changed in its workspace becomes a bundle first, unless it
   * is discarded.
   */
  async kill(options: { discard?: boolean } = {}): Promise<SandboxInfo> {
    const killed = await this.client.kill({ id: this.id, ...options });
    this.#isKilled = true;
    return killed;
  }

  /** Closes the connections. The sandbox keeps running. */
  close(): void {
    if (this.ownsClient) this.client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (!this.#isKilled) await this.kill();
    } finally {
      this.close();
    }
  }

  #execute(command: CommandLine, options: CommandOptions): Execute {
    const { environment, workingDirectory, user, timeoutSeconds } = options;
    return {
      sandboxId: this.id,
      command,
      environment: environment ?? {},
      workingDirectory: workingDirectory ?? null,
      uid: typeof user === "number" ? user : null,
      user: typeof user === "string" ? user : null,
      timeoutSeconds: timeoutSeconds ?? null,
    };
  }
}

const sameDirectory = (directory: string): Workspace => {
  const absolute = path.resolve(directory);
  return { host: absolute, inside: absolute };
};

const withClient = async (
  client: Client | undefined,
  act: (own: Client) => Promise<SandboxInfo>,
): Promise<Sandbox> => {
  const own = client ?? new Client();
  try {
    return new Sandbox(own, await act(own), client === undefined);
  } catch (error) {
    if (client === undefined) own.close();
    throw error;
  }
};
