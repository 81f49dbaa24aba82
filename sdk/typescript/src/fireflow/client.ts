// Calls operations of a Stockade server. The caller gives the function that sends requests, since only
// it knows the server and its key.
import type { ISandboxWorkflowHandle, SandboxWorkflowStatus } from "./types.ts";

/** Sends an operation with its request as JSON, and returns its answer. */
export type SendOperation = (operation: string, request: unknown) => Promise<unknown>;

/** The record of an operation. */
export interface OperationInfo {
  workflowId: string;
  name: string;
  status: SandboxWorkflowStatus;
  result: unknown;
  error: { code: string; message: string; cause?: string | null } | null;
}

/** An error with its stable code. */
export class SandboxError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = "SandboxError";
  }
}

/** The handle of a long operation. */
export const handleOf = <Result>(
  send: SendOperation,
  workflowId: string,
): ISandboxWorkflowHandle<Result> => ({
  workflowId,
  async getStatus() {
    return ((await send("operation", workflowId)) as OperationInfo).status;
  },
  async getResult() {
    for (;;) {
      const info = (await send("wait_operation", workflowId)) as OperationInfo;
      if (info.error !== null) throw new SandboxError(info.error.code, info.error.message);
      if (info.status !== "waiting" && info.status !== "running") return info.result as Result;
    }
  },
});
