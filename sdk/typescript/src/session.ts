// The streams of a command: its input, its output while it runs, and its end.
import { once } from "node:events";
import type { Duplex } from "node:stream";

import type { Client } from "./client.ts";
import type { Connection } from "./connection.ts";
import { errorOf, parseJson } from "./failure.ts";
import { IoError, UnreachableError } from "./generated/errors.ts";
import type { OutputEnd } from "./generated/models.ts";
import type { SessionEvent } from "./output.ts";
import { StockadeError } from "./problem.ts";

const [STDOUT, STDERR, , PROBLEM, STDIN, INPUT] = [1, 2, 3, 4, 5, 6];
const HEAD_BYTES = 5;
const FRAME_BYTES = 1 << 20;

/**
 * A command with its streams. As an iterator it has what the command writes, and last its end. When it is
 * closed before, the command is ended.
 */
export class Session implements AsyncIterable<SessionEvent> {
  readonly #stream: Duplex;
  /** The operation, for its record. */
  readonly workflowId: string;
  /** How the command ended, once it has. */
  end: OutputEnd | undefined;

  readonly #client: Client;
  #isClosed = false;

  constructor(client: Client, { stream, headers }: Connection) {
    this.#client = client;
    this.#stream = stream;
    this.workflowId = String(headers["stockade-workflow-id"]);
    // An error is also one of the iterator.
    stream.on("error", () => {});
  }

  /** Writes to the standard input of the command. */
  async send(data: string | Uint8Array): Promise<void> {
    const bytes = Buffer.from(data);
    for (let start = 0; start < bytes.length; start += FRAME_BYTES) {
      await this.#frame(STDIN, bytes.subarray(start, start + FRAME_BYTES));
    }
  }

  /** Ends the standard input of the command. */
  sendEnd(): Promise<void> {
    return this.#input({ kind: "end" });
  }

  /** Changes the size of its terminal. */
  resize(rows: number, columns: number): Promise<void> {
    return this.#input({ kind: "resize", rows, columns });
  }

  /** Sends a signal to its process group. */
  signal(signal: number): Promise<void> {
    return this.#input({ kind: "signal", signal });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<SessionEvent, void, undefined> {
    let buffer = Buffer.alloc(0);
    for await (const part of this.#parts()) {
      buffer = Buffer.concat([buffer, part]);
      for (;;) {
        const length = buffer.length < HEAD_BYTES ? Infinity : buffer.readUInt32BE(1);
        if (buffer.length < HEAD_BYTES + length) break;
        const kind = buffer.readUInt8(0);
        const payload = buffer.subarray(HEAD_BYTES, HEAD_BYTES + length);
        buffer = buffer.subarray(HEAD_BYTES + length);
        yield this.#event(kind, payload);
        if (this.end !== undefined) return;
      }
    }
    throw new UnreachableError("the connection was lost", { retryable: true });
  }

  /** Closes it. A command that has not ended is ended. */
  async close(): Promise<void> {
    const isLeft = this.end === undefined && !this.#isClosed;
    this.#isClosed = true;
    try {
      // An iteration that was left has destroyed the stream.
      if (isLeft) {
        await this.#client.killCommand({ workflowId: this.workflowId });
      }
    } catch (error) {
      // It has ended with its sandbox, or its server cannot be reached.
      if (!(error instanceof StockadeError)) throw error;
    } finally {
      this.#stream.destroy();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async *#parts(): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield* this.#stream as AsyncIterable<Buffer>;
    } catch (error) {
      throw new UnreachableError("the connection was lost", { cause: String(error), retryable: true });
    }
  }

  #event(kind: number, payload: Buffer): SessionEvent {
    if (kind === STDOUT) return { kind: "stdout", data: payload };
    if (kind === STDERR) return { kind: "stderr", data: payload };
    const value = parseJson(payload.toString());
    if (kind === PROBLEM) throw errorOf(value) ?? new IoError("the session has failed");
    const event = value as SessionEvent;
    if (event.kind === "ended") this.end = event;
    return event;
  }

  #input(value: unknown): Promise<void> {
    return this.#frame(INPUT, Buffer.from(JSON.stringify(value)));
  }

  async #frame(kind: number | undefined, payload: Buffer): Promise<void> {
    const head = Buffer.alloc(HEAD_BYTES);
    head.writeUInt8(kind ?? 0, 0);
    head.writeUInt32BE(payload.length, 1);
    if (!this.#stream.write(Buffer.concat([head, payload]))) await once(this.#stream, "drain");
  }
}
