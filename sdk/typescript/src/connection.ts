// A connection that an operation has taken over.
import type { IncomingHttpHeaders } from "node:http";
import type { Duplex } from "node:stream";

/** A connection to a port inside a sandbox: a stream in both directions. */
export interface Connection {
  readonly stream: Duplex;
  readonly headers: IncomingHttpHeaders;
}
