// Requests to one server, and what comes back: JSON, lines of JSON, bytes, or the connection itself.
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { Readable } from "node:stream";
import type { ReadableStream } from "node:stream/web";

import type { Connection } from "./connection.ts";
import { errorOf, failureOf, parseJson } from "./failure.ts";
import { UnreachableError, UnsupportedError } from "./generated/errors.ts";
import { VERSION } from "./generated/operations.ts";
import type { LocalServer } from "./locate.ts";
import { RemoteServer } from "./locate.ts";

/** The content of a file. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;

/** A response: its head, and its body as a stream. */
export interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: Readable;
}

const CONNECT_MS = 10_000;
const ANSWER_MS = 600_000;
/** Operations that last as long as a command, or the download of an image. */
const WAITING = ["create", "execute", "restore", "run_node", "run_tool", "wait_operation"];

/** Sends requests to a server. The server of a data directory is started when it does not run. */
export class Transport {
  #agent: http.Agent | undefined;
  #ready: Promise<void> | undefined;

  constructor(readonly server: LocalServer | RemoteServer) {}

  /**
   * Calls a plain operation. If the connection is lost, it is sent once more: the key makes sure that it is
   * done once.
   */
  async call(operation: string, request: unknown, key?: string): Promise<unknown> {
    const headers = { "idempotency-key": key ?? newKey() };
    const timeout = WAITING.includes(operation) ? undefined : ANSWER_MS;
    const send = () => this.#send(`/v0/call/${operation}`, request, headers, { timeout });
    const answer = await send().catch((error: unknown) => {
      if (error instanceof UnreachableError) return send();
      throw error;
    });
    return parseJson(await readText(answer.body));
  }

  /** Opens a response that is not only JSON. With `content`, that is the body of the request. */
  async open(path: string, request: unknown, content?: Content): Promise<Answer> {
    return this.#send(path, request, { "idempotency-key": newKey() }, { content });
  }

  /** Reads lines of JSON. A failure is the last one. */
  async *lines(path: string, request: unknown): AsyncGenerator<unknown, void, undefined> {
    const { body } = await this.open(path, request);
    try {
      let rest = "";
      body.setEncoding("utf8");
      for await (const part of body as AsyncIterable<string>) {
        const lines = (rest + part).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) yield item(line);
      }
      if (rest !== "") yield item(rest);
    } catch (error) {
      throw lost(error);
    } finally {
      body.destroy();
    }
  }

  /** Reads bytes, as a stream of the Web. */
  async content(path: string, request: unknown): Promise<ReadableStream<Uint8Array>> {
    return Readable.toWeb((await this.open(path, request)).body) as ReadableStream<Uint8Array>;
  }

  /** Opens a connection that belongs to the operation from then on. */
  async upgrade(path: string, request: unknown): Promise<Connection> {
    await this.#connected();
    const upgrade = { connection: "upgrade", upgrade: "stockade", "idempotency-key": newKey() };
    const text = JSON.stringify(request);
    const sent = this.#request(path, { ...upgrade, "content-type": "application/json" }, false);
    return new Promise((resolve, reject) => {
      sent.once("upgrade", (response, stream, first) => {
        if (first.length > 0) stream.unshift(first);
        resolve({ stream, headers: response.headers });
      });
      sent.once("response", (response) => {
        readText(response).then((body) => reject(failureOf(response.statusCode ?? 0, body)), reject);
      });
      sent.once("error", (error) => reject(lost(error)));
      sent.end(text);
    });
  }

  /** Closes the connections. The server keeps running. */
  close(): void {
    this.#forget();
    if (!(this.server instanceof RemoteServer)) this.server.close();
  }

  async #send(
    path: string,
    request: unknown,
    headers: Record<string, string>,
    { content, timeout }: { content?: Content; timeout?: number },
  ): Promise<Answer> {
    await this.#connected();
    const text = JSON.stringify(request);
    const kind: Record<string, string> =
      content === undefined
        ? { "content-type": "application/json" }
        : { "stockade-request": Buffer.from(text).toString("base64") };
    const sent = this.#request(path, { ...headers, ...kind }, this.#agent);
    const answer = await this.#answer(sent, content ?? text, timeout).catch((error: unknown) => {
      this.#forget();
      throw lost(error);
    });
    if (answer.status < 400) return answer;
    throw failureOf(answer.status, await readText(answer.body));
  }

  #answer(sent: http.ClientRequest, body: Content, timeout?: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      sent.once("error", reject);
      sent.once("response", (response) => {
        clearTimeout(timer);
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response });
      });
      const timer =
        timeout === undefined
          ? undefined
          : setTimeout(() => sent.destroy(new Error("it took too long")), timeout);
      timer?.unref();
      if (typeof body === "string" || body instanceof Uint8Array) sent.end(body);
      else {
        const source = Readable.from(body);
        source.once("error", (error) => sent.destroy(error));
        source.pipe(sent);
      }
    });
  }

  /** A request that is not sent yet. */
  #request(
    path: string,
    headers: Record<string, string>,
    agent: http.Agent | false | undefined,
    method = "POST",
  ): http.ClientRequest {
    const common = { method, agent, timeout: CONNECT_MS };
    const version = { "stockade-version": VERSION };
    let request: http.ClientRequest;
    if (this.server instanceof RemoteServer) {
      const { url, authorities } = this.server;
      const all = { ...version, ...this.server.headers(), ...headers };
      const ca = authorities === undefined ? undefined : fs.readFileSync(authorities);
      const target = new URL(`/stockade${path}`, url);
      request =
        url.protocol === "https:"
          ? https.request(target, { ...common, headers: all, ca })
          : http.request(target, { ...common, headers: all });
    } else {
      const all = { host: "stockade", ...version, ...headers };
      request = http.request({ ...common, socketPath: this.server.socket(), path, headers: all });
    }
    // The time is that to connect: later a command may be silent for any time.
    request.once("socket", (socket) => {
      const stop = () => socket.setTimeout(0);
      if (socket.connecting) socket.once("connect", stop);
      else stop();
    });
    request.once("timeout", () => request.destroy(new Error("it does not accept the connection")));
    return request;
  }

  async #connected(): Promise<void> {
    this.#ready ??= this.#connect().catch((error: unknown) => {
      // A server that is ending may still have taken the connection that looked for it.
      if (error instanceof UnreachableError && !(this.server instanceof RemoteServer)) return this.#connect();
      throw error;
    });
    try {
      await this.#ready;
    } catch (error) {
      this.#forget();
      throw error;
    }
  }

  async #connect(): Promise<void> {
    const isSecure = this.server instanceof RemoteServer && this.server.url.protocol === "https:";
    this.#agent = isSecure ? new https.Agent({ keepAlive: true }) : new http.Agent({ keepAlive: true });
    if (!(this.server instanceof RemoteServer)) await this.server.start();
    const sent = this.#request("/v0/health", {}, this.#agent, "GET");
    const answer = await this.#answer(sent, "", CONNECT_MS).catch((error: unknown) => {
      throw lost(error);
    });
    const text = await readText(answer.body);
    if (answer.status >= 400) throw failureOf(answer.status, text);
    const { version } = parseJson(text) as { version: string };
    if (version !== VERSION) {
      throw new UnsupportedError(`the package \`stockade\` is ${VERSION}, and the server is ${version}`, {
        remediation: `npm install stockade@${version}`,
      });
    }
  }

  #forget(): void {
    this.#agent?.destroy();
    this.#agent = undefined;
    this.#ready = undefined;
  }
}

const newKey = (): string => randomBytes(16).toString("hex");

const item = (line: string): unknown => {
  const value = parseJson(line);
  const isFailure = typeof value === "object" && value !== null && Object.keys(value).join() === "error";
  const error = isFailure ? errorOf(value) : undefined;
  if (error !== undefined) throw error;
  return value;
};

const lost = (error: unknown): unknown => {
  if (error instanceof Error && "code" in error && "remediation" in error) return error;
  const cause = error instanceof Error ? error.message : String(error);
  return new UnreachableError("the server does not answer", { cause, retryable: true });
};

const readText = async (body: Readable): Promise<string> => (await readBytes(body)).toString();

/** The bytes of a body. */
export const readBytes = async (body: Readable): Promise<Buffer> => {
  const parts: Buffer[] = [];
  try {
    for await (const part of body as AsyncIterable<Buffer>) parts.push(part);
  } catch (error) {
    throw lost(error);
  }
  return Buffer.concat(parts);
};
