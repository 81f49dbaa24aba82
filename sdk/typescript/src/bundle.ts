// Bundles: changes of a project that wait for a decision.
import { Client } from "./client.ts";
import type {
  AppliedBundle,
  ApplyBundle,
  Bundle as BundleInfo,
  BundleEntry,
  PathDiff,
  RejectedBundle,
} from "./generated/models.ts";

/** What of a bundle is applied, and how. */
export type ApplyOptions = Omit<ApplyBundle, "id">;

/** A bundle: the changes of a sandbox or of a run. Nothing of it is in the project before `apply`. */
export class Bundle {
  constructor(
    readonly client: Client,
    readonly info: BundleInfo,
  ) {}

  /** The readable bundles that wait for a decision, the newest first. */
  static async list(client = new Client()): Promise<Bundle[]> {
    const { bundles } = await client.bundles({});
    const readable = bundles.filter((bundle): bundle is BundleInfo => "project" in bundle);
    return readable.map((bundle) => new Bundle(client, bundle));
  }

  /** The bundle with an id, a unique prefix of an id, or `latest`. */
  static async get(id: string, client = new Client()): Promise<Bundle> {
    const { entries: _entries, ...info } = await client.showBundle({ id });
    return new Bundle(client, info);
  }

  /** Its id: the hash of its content. */
  get id(): string {
    return this.info.id;
  }

  /** Its changes, or those at or below some paths. */
  async show(paths: string[] = []): Promise<BundleEntry[]> {
    return (await this.client.showBundle({ id: this.id, paths })).entries;
  }

  /** The changed lines, path by path. */
  diff(paths: string[] = []): AsyncGenerator<PathDiff, void, undefined> {
    return this.client.diffBundle({ id: this.id, paths });
  }

  /** Applies its changes, or those at or below some paths, to its project: all or none. */
  apply(options: ApplyOptions = {}): Promise<AppliedBundle> {
    return this.client.applyBundle({ ...options, id: this.id });
  }

  /** Deletes it. */
  reject(): Promise<RejectedBundle> {
    return this.client.rejectBundle({ id: this.id });
  }
}
