// FireFlow's service of a flow, on a Stockade server: short operations are awaited, long ones return a
// handle. The server checks the owner first in every operation.
import { SandboxError, handleOf } from "./client.ts";
import type { OperationInfo, SendOperation } from "./client.ts";
import {
  SandboxCreateNode,
  SandboxExecuteNode,
  SandboxHttpRequestNode,
  SandboxKillNode,
  SandboxPauseNode,
  SandboxRenewNode,
  SandboxResumeNode,
  SandboxStatusNode,
  SandboxWriteSecretFileNode,
} from "./nodes.ts";
import type { SandboxExecuteInputs, SandboxNodeInputs, SandboxSyncInputs } from "./nodes.ts";
import type { CommandCompleted, ISandboxWorkflowHandle, SyncCompleted } from "./types.ts";

/** The operations on sandboxes that nodes use, `context.services.sandbox`. */
export interface ISandboxContextService {
  create: SandboxContextService["create"];
  execute: SandboxContextService["execute"];
  executeStream: SandboxContextService["executeStream"];
  kill: SandboxContextService["kill"];
  pause: SandboxContextService["pause"];
  resume: SandboxContextService["resume"];
  renew: SandboxContextService["renew"];
  getStatus: SandboxContextService["getStatus"];
  resolveEndpoint: SandboxContextService["resolveEndpoint"];
  httpRequest: SandboxContextService["httpRequest"];
  writeSecretFile: SandboxContextService["writeSecretFile"];
  syncFromVFS: SandboxContextService["syncFromVFS"];
  syncToVFS: SandboxContextService["syncToVFS"];
}

export class SandboxContextService {
  constructor(private readonly send: SendOperation) {}

  create(inputs: SandboxNodeInputs["SandboxCreateNode"]) {
    return SandboxCreateNode.execute(this.send, inputs);
  }

  execute(inputs: SandboxExecuteInputs) {
    return SandboxExecuteNode.execute(this.send, inputs);
  }

  kill(inputs: SandboxNodeInputs["SandboxKillNode"]) {
    return SandboxKillNode.execute(this.send, inputs);
  }

  pause(inputs: SandboxNodeInputs["SandboxPauseNode"]) {
    return SandboxPauseNode.execute(this.send, inputs);
  }

  resume(inputs: SandboxNodeInputs["SandboxResumeNode"]) {
    return SandboxResumeNode.execute(this.send, inputs);
  }

  renew(inputs: SandboxNodeInputs["SandboxRenewNode"]) {
    return SandboxRenewNode.execute(this.send, inputs);
  }

  getStatus(inputs: SandboxNodeInputs["SandboxStatusNode"]) {
    return SandboxStatusNode.execute(this.send, inputs);
  }

  httpRequest(inputs: SandboxNodeInputs["SandboxHttpRequestNode"]) {
    return SandboxHttpRequestNode.execute(this.send, inputs);
  }

  writeSecretFile(inputs: SandboxNodeInputs["SandboxWriteSecretFileNode"]) {
    return SandboxWriteSecretFileNode.execute(this.send, inputs);
  }

  /** Whether a port is reachable; its address is never told. */
  async resolveEndpoint(sandboxId: string, port: number) {
    return (await this.send("resolve_endpoint", { id: sandboxId, port })) as {
      sandboxId: string;
      port: number;
      listening: boolean;
    };
  }

  executeStream(inputs: SandboxExecuteInputs) {
    const { accessRules: _rules, proxyConfig: _proxy, env, ...rest } = inputs;
    return this.#long<CommandCompleted>("execute_stream", { ...rest, environment: env ?? {} });
  }

  syncFromVFS(inputs: SandboxSyncInputs) {
    return this.#sync("sync_from_vfs", inputs);
  }

  syncToVFS(inputs: SandboxSyncInputs) {
    return this.#sync("sync_to_vfs", inputs);
  }

  #sync(operation: string, inputs: SandboxSyncInputs) {
    const {
      accessRules: _rules,
      proxyConfig: _proxy,
      wait: _wait,
      workspaceId,
      directory,
      vfsPath,
      branch,
      vfs,
      ...rest
    } = inputs;
    const other = vfs ?? { workspace: workspaceId, directory, path: vfsPath, branch };
    return this.#long<SyncCompleted>(operation, { ...rest, vfs: other });
  }

  async #long<Result>(
    operation: string,
    request: unknown,
  ): Promise<ISandboxWorkflowHandle<Result>> {
    const info = (await this.send(operation, request)) as OperationInfo;
    return handleOf<Result>(this.send, info.workflowId);
  }
}

/** The same operations, for a queue of their own. Every operation of a server is a durable workflow. */
export class SandboxWorkflows extends SandboxContextService {}

/** Checks that a sandbox exists, belongs to the caller and has not ended. */
export const checkSandboxACL = async (send: SendOperation, sandboxId: string) => {
  const found = await SandboxStatusNode.execute(send, { sandboxId });
  if (!found.isAlive) throw new SandboxError("SANDBOX_TERMINATED", `${sandboxId} is terminated`);
  return found.sandbox;
};
