// Checked by the compiler, never run: the imports and the use of every entry point.
import { SandboxAccessRule, type SandboxEventPayload } from "stockade";
import { SandboxContextService, SandboxWorkflows, checkSandboxACL } from "stockade/server";
import { sandboxInstances } from "stockade/db";
import type { SandboxInstanceInsert, SandboxInstanceRow } from "stockade/db";
import type { SandboxNodeInputs, SandboxNodeName } from "stockade/nodes";
import { SandboxExecuteNode, SandboxStreamSplitterNode } from "stockade/nodes";
import type { ISandboxWorkflowHandle, SandboxProxyConfig } from "stockade/types";

const rule: SandboxAccessRule = SandboxAccessRule.parse({ effect: "deny", level: "read", path: "/w" });
const bad: SandboxAccessRule = {
  effect: "deny",
  // @ts-expect-error there are three levels
  level: "write",
  path: "/",
};

export const told = (event: SandboxEventPayload): string => {
  switch (event.type) {
    case "COMMAND_COMPLETED":
      return String(event.data.exitCode);
    case "SYNC_TO_VFS_COMPLETED":
      return event.data.commitId ?? String(event.data.copied);
    // @ts-expect-error it is not one of the eight events
    case "SANDBOX_LOST":
      return "";
    default:
      return event.sandboxId;
  }
};

const proxy: SandboxProxyConfig = { defaultPort: 3000, exposedPorts: [3000] };
const row: SandboxInstanceInsert = { id: "a", owner_id: "u", image: "host", access_rules: [rule, bad] };
const column: keyof SandboxInstanceRow = sandboxInstances.columns.proxy_config;

export const chain = async (send: (operation: string, request: unknown) => Promise<unknown>) => {
  const service = new SandboxContextService(send);
  const made = await service.create({ accessRules: [rule], proxyConfig: proxy });
  const { sandboxId, accessRules, proxyConfig } = made;
  const { exitCode } = await SandboxExecuteNode.execute(send, { sandboxId, accessRules, command: "true" });
  const stream: ISandboxWorkflowHandle<unknown> = await service.executeStream({ sandboxId, command: ["true"] });
  const parts = await SandboxStreamSplitterNode.execute(send, { workflowId: stream.workflowId });
  const synced = await (await new SandboxWorkflows(send).syncToVFS({ sandboxId, path: "/w", workspaceId: "w" })).getResult();
  // @ts-expect-error it needs a command
  await SandboxExecuteNode.execute(send, { sandboxId });
  const acl: SandboxInstanceRow = await checkSandboxACL(send, sandboxId);
  return [exitCode, parts.exit[0], synced.copied, proxyConfig, row, column, acl.status];
};

export const names: Record<SandboxNodeName, true> = {
  SandboxCreateNode: true,
  SandboxExecuteNode: true,
  SandboxExecuteStreamNode: true,
  SandboxKillNode: true,
  SandboxPauseNode: true,
  SandboxResumeNode: true,
  SandboxRenewNode: true,
  SandboxStatusNode: true,
  SandboxSyncFromVFSNode: true,
  SandboxSyncToVFSNode: true,
  SandboxWriteSecretFileNode: true,
  SandboxHttpRequestNode: true,
  SandboxHttpStreamNode: true,
  SandboxWebSocketNode: true,
  SandboxStreamSplitterNode: true,
};
export type Inputs = SandboxNodeInputs;
