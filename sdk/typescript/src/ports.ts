// The ports of a sandbox.
import type { Client } from "./client.ts";
import type { Connection } from "./connection.ts";
import type { HttpRequest, HttpResponse, OpenedPort } from "./generated/models.ts";

/** A request to a port. */
export type PortRequest = Omit<HttpRequest, "sandboxId" | "port" | "path"> & { path?: string };

/** The ports of a sandbox. They are reachable through the server only. */
export class Ports {
  constructor(
    readonly client: Client,
    readonly sandboxId: string,
  ) {}

  /** Whether a process listens on a port. */
  async isListening(port: number): Promise<boolean> {
    return (await this.client.resolveEndpoint({ id: this.sandboxId, port })).listening;
  }

  /** Sends an HTTP request to a port. */
  request(port: number, { path = "/", ...request }: PortRequest = {}): Promise<HttpResponse> {
    return this.client.httpRequest({ ...request, path, port, sandboxId: this.sandboxId });
  }

  /** A connection to a port. */
  connect(port: number): Promise<Connection> {
    return this.client.transport.upgrade("/v0/connect", { sandboxId: this.sandboxId, port });
  }

  /** A link that opens a port in a browser, once. */
  open(port: number, path?: string): Promise<OpenedPort> {
    return this.client.openPort({ sandboxId: this.sandboxId, port, path });
  }
}
