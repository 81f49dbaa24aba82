// The client of a Stockade server, and FireFlow's types and schemas.
export * as models from "./generated/models.ts";
export * as errors from "./generated/errors.ts";
export type { CallOptions } from "./generated/operations.ts";
export { VERSION } from "./generated/operations.ts";
export { Bundle } from "./bundle.ts";
export { bytesOf, fromBytes, textOf } from "./bytes.ts";
export { Client } from "./client.ts";
export { Command } from "./command.ts";
export type { Connection } from "./connection.ts";
export { CommandFailedError } from "./command_failed.ts";
export type { ServerOptions } from "./locate.ts";
export type { Output, SessionEvent } from "./output.ts";
export { StockadeError } from "./problem.ts";
export { Sandbox } from "./sandbox.ts";
export type { CommandOptions, CreateOptions } from "./sandbox.ts";
export { Session } from "./session.ts";
export * from "./fireflow/types.ts";
