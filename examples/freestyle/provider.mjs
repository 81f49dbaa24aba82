// A provider of <Sandbox> that runs its work in a VM of Freestyle: it creates the VM, writes the request
// and a setup script, executes a command, and reads smithers-result.json. `npm install freestyle` beside
// this file; then name it in providers.json of the data directory:
//   { "freestyle": { "module": "/path/to/provider.mjs", "environment": ["FREESTYLE_API_KEY"] } }
import { readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { freestyle } from "freestyle";

const REQUEST = "/workspace/smithers-request.json";
const RESULT = "/workspace/smithers-result.json";
const SETUP = "/workspace/setup.sh";
/** A VM that nobody uses ends by itself, also if `cleanup` never comes. */
const IDLE_SECONDS = 600;

/** Where the id of the VM is, so that a later process can remove it. */
const note = (request) => join(dirname(request.requestBundlePath), "freestyle-vm");

export default {
  id: "freestyle",

  async run(request) {
    const { vm, vmId } = await freestyle.vms.create({ idleTimeoutSeconds: IDLE_SECONDS });
    // Before anything else: after a crash, `cleanup` finds it.
    await writeFile(note(request), vmId);
    request.heartbeat({ phase: "created", vmId });
    const { command = "true", setup = "", ...input } = request.input ?? {};
    // Only what the work needs: no path, key or variable of this machine.
    const sent = { input, allowNetwork: request.allowNetwork, egress: request.egress };
    await vm.fs.writeTextFile(REQUEST, JSON.stringify(sent));
    await vm.fs.writeTextFile(SETUP, setup);
    request.signal?.throwIfAborted();
    request.heartbeat({ phase: "executing" });
    const timeoutMs = request.toolTimeoutMs;
    const done = await vm.exec({ command: `sh ${SETUP} && ${command}`, timeoutMs });
    if (done.statusCode !== 0) {
      const why = String(done.stderr ?? "").slice(0, 2000);
      return { status: "failed", output: { error: `exit code ${done.statusCode}: ${why}` }, remoteRunId: vmId };
    }
    const text = await vm.fs.readTextFile(RESULT);
    if (text.length > request.maxOutputBytes) {
      throw new Error(`${RESULT} has more than ${request.maxOutputBytes} characters`);
    }
    const { output, diffBundle } = JSON.parse(text);
    return { status: "finished", output, diffBundle, remoteRunId: vmId, workspaceId: vmId };
  },

  async cleanup(request) {
    const vmId = await readFile(note(request), "utf8").catch(() => undefined);
    if (vmId === undefined) return;
    await freestyle.vms.delete({ vmId });
    await rm(note(request), { force: true });
  },
};
