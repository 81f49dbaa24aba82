// For clients and servers: types and schemas only.
export * from "./types.ts";
