// The files of a sandbox.
import type { ReadableStream } from "node:stream/web";

import type { Client } from "./client.ts";
import { FileNotFoundError } from "./generated/errors.ts";
import type { FileEntry, WriteResult } from "./generated/models.ts";
import { parseJson } from "./failure.ts";
import type { Content } from "./transport.ts";
import { readBytes } from "./transport.ts";

/** The files of a sandbox. A path is absolute. */
export class Files {
  constructor(
    readonly client: Client,
    readonly sandboxId: string,
  ) {}

  /** The content of a file, or a part of it. */
  async read(path: string, part: { offset?: number; length?: number } = {}): Promise<Uint8Array> {
    const { body } = await this.client.transport.open("/v0/read", this.#about(path, part));
    return readBytes(body);
  }

  /** The content of a file as text. */
  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path));
  }

  /** The content of a file as a stream. */
  stream(path: string): Promise<ReadableStream<Uint8Array>> {
    return this.client.transport.content("/v0/read", this.#about(path));
  }

  /** Writes a file, completely or not at all, and returns its length. */
  async write(path: string, content: Content, options: { mode?: number } = {}): Promise<number> {
    const answer = await this.client.transport.open("/v0/write", this.#about(path, options), content);
    const text = (await readBytes(answer.body)).toString();
    return (parseJson(text) as WriteResult).sizeBytes;
  }

  /** The properties of a file; with `follow`, of the target of a link. */
  stat(path: string, options: { follow?: boolean } = {}): Promise<FileEntry> {
    return this.client.statFile(this.#about(path, options));
  }

  /** Whether there is a file or directory. */
  async exists(path: string): Promise<boolean> {
    try {
      await this.stat(path);
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundError) return false;
      throw error;
    }
  }

  /** The content of a directory, sorted by name. */
  async list(path: string, options: { depth?: number } = {}): Promise<FileEntry[]> {
    return (await this.client.listDirectory(this.#about(path, options))).entries;
  }

  /** The files below a directory whose paths match a pattern. */
  async search(path: string, pattern: string): Promise<FileEntry[]> {
    return (await this.client.searchFiles(this.#about(path, { pattern }))).entries;
  }

  /** Creates a directory, and missing parent directories. */
  makeDirectory(path: string, options: { mode?: number } = {}): Promise<void> {
    return this.client.makeDirectory(this.#about(path, options));
  }

  /** Renames or moves a file or directory. */
  move(from: string, to: string): Promise<void> {
    return this.client.moveFile({ sandboxId: this.sandboxId, from, to });
  }

  /** Removes a file, or a directory with its content. */
  remove(path: string): Promise<void> {
    return this.client.removeFile(this.#about(path));
  }

  #about<Members extends object>(path: string, members?: Members) {
    return { sandboxId: this.sandboxId, path, ...(members as Members) };
  }
}
