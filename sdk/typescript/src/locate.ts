// Where the server is: that of the data directory, or the one at a URL, as for the program `stockade`.
import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as net from "node:net";
import * as path from "node:path";

import { InvalidInputError, IoError, UnreachableError, UnsupportedError } from "./generated/errors.ts";

/** Names a server. What is absent comes from the environment. */
export interface ServerOptions {
  /** A URL, or `local` for the server of the data directory; `STOCKADE_SERVER` when absent. */
  server?: string;
  /** The API key of a server at a URL; `STOCKADE_API_KEY` when absent. */
  apiKey?: string;
  /** The data directory; `STOCKADE_DATA_DIR` when absent. */
  dataDirectory?: string;
  /** The program that starts the server of the data directory; found in `PATH` when absent. */
  program?: string;
}

const LOCAL = "local";
const START_MS = 60_000;

/** A server at a URL. */
export class RemoteServer {
  readonly url: URL;
  readonly #key: string | undefined;
  readonly authorities: string | undefined;

  constructor(url: URL, key: string | undefined, authorities: string | undefined) {
    this.url = url;
    this.#key = key;
    this.authorities = authorities;
  }

  /** The headers that authenticate a request. */
  headers(): Record<string, string> {
    return this.#key === undefined ? {} : { authorization: `Bearer ${this.#key}` };
  }
}

/** The server of a data directory, which is started when it is needed. */
export class LocalServer {
  #directory: number | undefined;

  constructor(
    readonly data: string,
    readonly program: string | undefined,
  ) {}

  /** The path of its socket, in a form that fits into a socket address however long `data` is. */
  socket(): string {
    this.#directory ??= this.#open();
    return `/proc/self/fd/${this.#directory}/socket`;
  }

  /** Starts it, unless it runs. */
  async start(): Promise<void> {
    if (await this.#answers()) return;
    const program = this.program ?? findProgram(process.env.PATH ?? "");
    if (program === undefined) {
      throw new UnsupportedError(
        "no server runs, and the program `stockade` that starts one is not found",
        {
          cause: "it is in no directory of PATH",
          remediation: "add the directory of `stockade` to PATH, or set STOCKADE_SERVER",
        },
      );
    }
    const { STOCKADE_API_KEY: _key, ...environment } = process.env;
    const env = { ...environment, STOCKADE_DATA_DIR: this.data, STOCKADE_SERVER: LOCAL };
    await new Promise<void>((resolve, reject) => {
      execFile(program, ["ls", "--json"], { env, timeout: START_MS }, (error, _out, stderr) => {
        if (error === null) return resolve();
        const cause = stderr.trim() || error.message;
        reject(new UnreachableError(`${program} cannot start the server`, { cause }));
      });
    });
  }

  /** Releases what finds the server. It keeps running. */
  close(): void {
    if (this.#directory !== undefined) fs.closeSync(this.#directory);
    this.#directory = undefined;
  }

  async #answers(): Promise<boolean> {
    if (!fs.existsSync(path.join(this.data, "server"))) return false;
    const socket = net.connect(this.socket());
    return new Promise((resolve) => {
      socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    }).finally(() => socket.destroy()) as Promise<boolean>;
  }

  /** Opens the directory of the socket, which only this user may be able to enter. */
  #open(): number {
    const place = path.join(this.data, "server");
    const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fs.constants;
    let directory: number;
    try {
      directory = fs.openSync(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    } catch (error) {
      throw new IoError(`cannot use ${place}`, { cause: String(error) });
    }
    const found = fs.fstatSync(directory);
    if (found.uid !== process.geteuid?.() || (found.mode & 0o077) !== 0) {
      fs.closeSync(directory);
      throw new IoError(`${place} belongs to another user, or other users can enter it`, {
        remediation: "export STOCKADE_DATA_DIR=/a/directory/of/your/own",
      });
    }
    return directory;
  }
}

/** The server that the options name, else the environment, else that of the data directory. */
export const locate = (
  options: ServerOptions = {},
  environment: NodeJS.ProcessEnv = process.env,
): LocalServer | RemoteServer => {
  const { server, dataDirectory } = options;
  const named = server || environment.STOCKADE_SERVER || LOCAL;
  if (named === LOCAL || (dataDirectory !== undefined && server === undefined)) {
    return new LocalServer(dataPath(dataDirectory, environment), options.program);
  }
  const key = options.apiKey || environment.STOCKADE_API_KEY || undefined;
  const url = checkedUrl(named, key !== undefined, environment);
  return new RemoteServer(url, key, environment.STOCKADE_TLS_CA || undefined);
};

const dataPath = (named: string | undefined, environment: NodeJS.ProcessEnv): string => {
  if (named !== undefined) return path.resolve(named);
  const configured = environment.STOCKADE_DATA_DIR;
  if (configured) {
    if (path.isAbsolute(configured)) return configured;
    throw new InvalidInputError(
      `STOCKADE_DATA_DIR is ${configured}, which is not an absolute path`,
      { remediation: `export STOCKADE_DATA_DIR=${path.resolve(configured)}` },
    );
  }
  const bases = [
    [environment.XDG_DATA_HOME, "stockade"],
    [environment.HOME, ".local/share/stockade"],
  ] as const;
  for (const [base, below] of bases) {
    if (base !== undefined && path.isAbsolute(base)) return path.join(base, below);
  }
  throw new InvalidInputError("no data directory is configured", {
    cause: "neither STOCKADE_DATA_DIR, XDG_DATA_HOME nor HOME is an absolute path",
    remediation: "export STOCKADE_DATA_DIR=/var/lib/stockade",
  });
};

const checkedUrl = (text: string, hasKey: boolean, environment: NodeJS.ProcessEnv): URL => {
  if (!URL.canParse(text) || !/^https?:\/\//.test(text)) {
    throw new InvalidInputError(`"${text}" is no URL of the form https://HOST[:PORT]`);
  }
  const url = new URL(text);
  if (url.username !== "" || url.password !== "") {
    throw new InvalidInputError("the URL of a server must not contain a user name or password");
  }
  if (url.pathname !== "/" || url.search !== "" || url.hash !== "") {
    throw new InvalidInputError("the URL of a server has no path and no query");
  }
  const allowed = ["1", "true"].includes(environment.STOCKADE_ALLOW_PLAINTEXT ?? "");
  if (hasKey && url.protocol === "http:" && !isLoopback(url.hostname) && !allowed) {
    throw new InvalidInputError(`an API key would be sent to ${url.hostname} in plain text`, {
      remediation: "use https://, or export STOCKADE_ALLOW_PLAINTEXT=1 in a network that you trust",
    });
  }
  return url;
};

const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);

const findProgram = (directories: string): string | undefined =>
  directories
    .split(path.delimiter)
    .filter((directory) => path.isAbsolute(directory))
    .map((directory) => path.join(directory, "stockade"))
    .find((program) => {
      try {
        fs.accessSync(program, fs.constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
