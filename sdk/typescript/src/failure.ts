// Errors from what a server sends.
import { BY_CODE, IoError } from "./generated/errors.ts";
import { StockadeError } from "./problem.ts";

/** The error that a value describes: a problem, or an object with one in `error`. */
export const errorOf = (value: unknown): StockadeError | undefined => {
  if (typeof value !== "object" || value === null) return undefined;
  const found: unknown = "error" in value ? value.error : value;
  if (typeof found !== "object" || found === null) return undefined;
  const problem = found as { code?: string; message?: unknown; [name: string]: unknown };
  if (typeof problem.message !== "string") return undefined;
  const classes: Record<string, typeof StockadeError> = BY_CODE;
  // A later server may have codes that this version does not know.
  const kind = classes[problem.code ?? ""] ?? StockadeError;
  return new kind(problem.message, problem);
};

/** The error of a response that has failed. */
export const failureOf = (status: number, text: string): StockadeError => {
  let error: StockadeError | undefined;
  try {
    error = errorOf(JSON.parse(text));
  } catch {
    // It is no JSON, which the error below reports.
  }
  return error ?? new IoError("the server's response cannot be read", { cause: `status ${status}` });
};

/** Parses JSON of a server. */
export const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new IoError("the server's response cannot be read", { cause: String(error) });
  }
};
