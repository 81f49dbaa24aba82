// For servers: everything.
export * from "./client.ts";
export * from "./db.ts";
export * from "./nodes.ts";
export * from "./types.ts";
export { SandboxContextService, SandboxWorkflows, checkSandboxACL } from "./service.ts";
