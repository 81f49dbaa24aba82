// The base of all errors. `errors` has a class for each stable code.

/** What an error consists of. */
export interface ProblemDetails {
  code?: string;
  cause?: string | null;
  remediation?: string | null;
  retryable?: boolean;
}

/** An operation failed: what failed, why, and what to do about it. */
export class StockadeError extends Error {
  static readonly code: string = "UNKNOWN";
  /** The stable code. Its page is `docs/errors/CODE.md`. */
  readonly code: string;
  /** Why, if that is known. */
  override readonly cause: string | null;
  /** What to do about it, if that is known. */
  readonly remediation: string | null;
  /** Whether the same call may succeed later without a change. */
  readonly retryable: boolean;

  constructor(message: string, details: ProblemDetails = {}) {
    super(message);
    this.name = new.target.name;
    this.code = details.code ?? new.target.code;
    this.cause = details.cause ?? null;
    this.remediation = details.remediation ?? null;
    this.retryable = details.retryable ?? false;
  }
}
