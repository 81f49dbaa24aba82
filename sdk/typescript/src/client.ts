// A client of one server.
import type { DiffBundle, Event, OutputItem, PathDiff, ReadEvents, ReadOutput } from "./generated/models.ts";
import type { CallOptions } from "./generated/operations.ts";
import { Operations } from "./generated/operations.ts";
import type { ServerOptions } from "./locate.ts";
import { locate } from "./locate.ts";
import { Transport } from "./transport.ts";

/**
 * A client of one server: of the one at a URL, or of that of the data directory, which `stockade` starts when
 * it is needed. It has a method for each operation of the server. `Sandbox` is easier to use.
 */
export class Client extends Operations {
  readonly transport: Transport;

  constructor(options: ServerOptions = {}) {
    super();
    this.transport = new Transport(locate(options));
  }

  protected override call(operation: string, request: unknown, options?: CallOptions): Promise<unknown> {
    return this.transport.call(operation, request, options?.key);
  }

  /** Sends an operation by its name, as FireFlow's nodes and services need it. */
  readonly send = (operation: string, request: unknown): Promise<unknown> =>
    this.transport.call(operation, request);

  /** Reads the output of `executeStream`, beginning at an offset; ends after the command's end. */
  readOutput(request: ReadOutput): AsyncGenerator<OutputItem, void, undefined> {
    return this.transport.lines("/v0/output", request) as AsyncGenerator<OutputItem, void, undefined>;
  }

  /** Reads the events of the caller's sandboxes. */
  readEvents(request: ReadEvents): AsyncGenerator<Event, void, undefined> {
    return this.transport.lines("/v0/events", request) as AsyncGenerator<Event, void, undefined>;
  }

  /** Shows the changed lines of a bundle, path by path. */
  diffBundle(request: DiffBundle): AsyncGenerator<PathDiff, void, undefined> {
    return this.transport.lines("/v0/diff", request) as AsyncGenerator<PathDiff, void, undefined>;
  }

  /** Closes the connections. The sandboxes and the server keep running. */
  close(): void {
    this.transport.close();
  }
}
