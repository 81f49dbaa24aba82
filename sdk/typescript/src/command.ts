// Commands that run without their caller.
import { bytesOf } from "./bytes.ts";
import type { Client } from "./client.ts";
import { errorOf } from "./failure.ts";
import { IoError } from "./generated/errors.ts";
import type { CommandInfo, OutputEnd } from "./generated/models.ts";
import type { SessionEvent } from "./output.ts";

/** A command that was started. Its output is stored, and it continues when its caller ends. */
export class Command {
  constructor(
    readonly client: Client,
    readonly workflowId: string,
  ) {}

  /** Its properties. */
  info(): Promise<CommandInfo> {
    return this.client.getCommand(this.workflowId);
  }

  /** Its output from the beginning, and last its end; without `follow`, what there is now. */
  async *output(options: { follow?: boolean } = {}): AsyncGenerator<SessionEvent, void, undefined> {
    const request = { workflowId: this.workflowId, follow: options.follow ?? true };
    for await (const item of this.client.readOutput(request)) {
      if (item.kind === "truncated") yield { kind: "lost", bytes: item.bytes };
      else if (item.kind === "exit") yield { ...item, kind: "ended" };
      else yield { kind: item.kind, data: bytesOf(item.data) };
    }
  }

  /** Waits for its end. */
  async wait(): Promise<OutputEnd> {
    for (;;) {
      const info = await this.client.waitOperation(this.workflowId);
      if (info.error) throw errorOf(info.error) ?? new IoError(info.error.message);
      if (info.status === "succeeded") return info.result as OutputEnd;
    }
  }

  /** Ends it with all processes that it has started, or sends a signal to its process group. */
  kill(signal?: number): Promise<CommandInfo> {
    return this.client.killCommand({ workflowId: this.workflowId, signal });
  }
}
