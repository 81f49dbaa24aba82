// What a command writes while it runs.
import type { OutputEnd } from "./generated/models.ts";

/** Bytes that a command has written. */
export interface Output {
  kind: "stdout" | "stderr";
  data: Uint8Array;
}

/** Bytes that the command wrote, how many were lost, or its end. */
export type SessionEvent = Output | { kind: "lost"; bytes: number } | ({ kind: "ended" } & OutputEnd);
