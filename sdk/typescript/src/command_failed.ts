// An error that is not one of a server.
import { textOf } from "./bytes.ts";
import type { ExecuteResult } from "./generated/models.ts";
import { StockadeError } from "./problem.ts";

/** A command that was to succeed has ended in another way. */
export class CommandFailedError extends StockadeError {
  static override readonly code = "COMMAND_FAILED";

  constructor(readonly result: ExecuteResult) {
    const { exitCode, ending } = result;
    const how = exitCode === null || exitCode === undefined ? ending : `the exit code ${exitCode}`;
    super(`the command has ended with ${how}`, { cause: textOf(result.stderr).trim() || null });
  }
}
