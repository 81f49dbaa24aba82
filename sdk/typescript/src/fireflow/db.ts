// The table of sandboxes: the entity of ownership of every operation.
import type {
  SandboxAccessRule,
  SandboxProxyConfig,
  SandboxResourceSpec,
  SandboxStatus,
  SandboxUserConfig,
} from "./types.ts";

/** A row of `fireflow_sandbox_instances`, as `SandboxStatusNode` returns it in `sandbox`. */
export interface SandboxInstanceRow {
  id: string;
  owner_id: string;
  execution_id: string | null;
  workflow_id: string | null;
  image: string;
  status: SandboxStatus;
  visibility: string;
  workspace_id: string | null;
  access_rules: SandboxAccessRule[];
  sandbox_users: SandboxUserConfig[];
  default_uid: number | null;
  metadata: Record<string, string>;
  resource_spec: SandboxResourceSpec;
  proxy_config: SandboxProxyConfig | null;
  created_at: string;
  expires_at: string | null;
  terminated_at: string | null;
}

/** A new row: what has a default may be left out. */
export type SandboxInstanceInsert = Pick<SandboxInstanceRow, "id" | "owner_id" | "image"> &
  Partial<SandboxInstanceRow>;

const columns: { readonly [Column in keyof SandboxInstanceRow]: Column } = {
  id: "id",
  owner_id: "owner_id",
  execution_id: "execution_id",
  workflow_id: "workflow_id",
  image: "image",
  status: "status",
  visibility: "visibility",
  workspace_id: "workspace_id",
  access_rules: "access_rules",
  sandbox_users: "sandbox_users",
  default_uid: "default_uid",
  metadata: "metadata",
  resource_spec: "resource_spec",
  proxy_config: "proxy_config",
  created_at: "created_at",
  expires_at: "expires_at",
  terminated_at: "terminated_at",
};

/** The table and its columns. */
export const sandboxInstances = {
  name: "fireflow_sandbox_instances",
  columns,
  indexes: ["owner_id", "execution_id", "status"],
} as const;
