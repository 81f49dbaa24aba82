// The client with a server: the program that STOCKADE_TEST_PROGRAM names, in the data directory
// STOCKADE_DATA_DIR. STOCKADE_TEST_PACKAGE names the directory with the built package.
import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";

const directory = process.env.STOCKADE_TEST_PACKAGE;
const load = (name) => import(pathToFileURL(path.join(directory, name)).href);
const { Bundle, Client, CommandFailedError, Sandbox, bytesOf, errors, fromBytes, textOf } = await load("index.js");
const { SandboxContextService, SandboxExecuteNode } = await load("fireflow/server.js");

const client = new Client({ program: process.env.STOCKADE_TEST_PROGRAM });
after(() => client.close());

const withSandbox = async (options, act) => {
  const sandbox = await Sandbox.create({ client, ...options });
  try {
    return await act(sandbox);
  } finally {
    await sandbox[Symbol.asyncDispose]();
  }
};

test("a command has output and an exit code", () =>
  withSandbox({ metadata: { of: "test" } }, async (sandbox) => {
    const result = await sandbox.run("echo out; echo err >&2; exit 3");
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["out\n", "err\n", 3]);
    await assert.rejects(sandbox.run(["sh", "-c", "echo why >&2; false"], { check: true }), (error) => {
      assert.ok(error instanceof CommandFailedError);
      return error.cause === "why";
    });
    const fed = await sandbox.run("cat; echo $A; pwd", {
      input: new Uint8Array([105, 255]),
      environment: { A: "b" },
      workingDirectory: "/tmp",
    });
    assert.deepEqual(Buffer.from(bytesOf(fed.stdout)), Buffer.from("i\xffb\n/tmp\n", "latin1"));
    const late = await sandbox.run("sleep 60", { timeoutSeconds: 0.2 });
    assert.deepEqual([late.ending, late.exitCode], ["timedOut", 124]);
    assert.deepEqual((await sandbox.info()).metadata, { of: "test" });
    assert.ok((await Sandbox.list(client)).some((one) => one.id === sandbox.id));
  }));

test("streams are read while a command runs", () =>
  withSandbox({}, async (sandbox) => {
    const session = await sandbox.openSession("read line; echo got $line; cat >&2; exit 4", { input: true });
    await session.send("one\n");
    const seen = [];
    for await (const event of session) {
      seen.push(event.kind === "ended" ? event.exitCode : [event.kind, textOf(Buffer.from(event.data).toString())]);
      if (seen.length === 1) {
        await session.send("rest");
        await session.sendEnd();
      }
    }
    assert.deepEqual(seen, [["stdout", "got one\n"], ["stderr", "rest"], 4]);
    await session.close();
    const left = await sandbox.openSession("echo $$; sleep 62");
    for await (const event of left) if (event.kind === "stdout") break;
    await left.close();
    const processes = await sandbox.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    assert.doesNotMatch(processes.stdout, /sleep 62/);
    const command = await sandbox.startCommand("echo a; exit 5");
    assert.equal((await command.wait()).exitCode, 5);
    const kinds = [];
    for await (const event of command.output()) kinds.push(event.kind);
    assert.deepEqual(kinds, ["stdout", "ended"]);
    const long = await sandbox.startCommand(["sleep", "60"]);
    await long.kill();
    assert.equal((await long.wait()).ending, "killed");
  }));

test("files are written and read", () =>
  withSandbox({}, async ({ files }) => {
    await files.makeDirectory("/tmp/a");
    assert.equal(await files.write("/tmp/a/b.bin", new Uint8Array([0, 255]), { mode: 0o600 }), 2);
    const parts = async function* () {
      yield Buffer.from("one");
      yield Buffer.from("two");
    };
    assert.equal(await files.write("/tmp/a/c.txt", parts()), 6);
    assert.deepEqual([...(await files.read("/tmp/a/b.bin"))], [0, 255]);
    assert.equal(await files.readText("/tmp/a/c.txt"), "onetwo");
    const streamed = [];
    for await (const part of await files.stream("/tmp/a/c.txt")) streamed.push(...part);
    assert.equal(Buffer.from(streamed).toString(), "onetwo");
    assert.deepEqual((await files.list("/tmp/a")).map((one) => one.path), ["/tmp/a/b.bin", "/tmp/a/c.txt"]);
    await files.move("/tmp/a/b.bin", "/tmp/a/d.bin");
    assert.equal((await files.search("/tmp/a", "*.bin"))[0].path, "/tmp/a/d.bin");
    await files.remove("/tmp/a");
    assert.equal(await files.exists("/tmp/a"), false);
    await assert.rejects(files.read("/tmp/absent"), errors.FileNotFoundError);
  }));

test("a sandbox is paused, resumed, renewed, stopped, started and killed", () =>
  withSandbox({ ttlSeconds: 300 }, async (sandbox) => {
    assert.equal((await sandbox.pause()).state, "paused");
    assert.equal((await sandbox.resume()).state, "running");
    assert.equal((await sandbox.renew(null)).expiresAt ?? null, null);
    await sandbox.files.write("/tmp/kept", "1");
    const snapshot = await sandbox.snapshot("before");
    assert.equal((await sandbox.stop()).state, "stopped");
    assert.equal((await sandbox.start()).state, "running");
    const again = await Sandbox.restore(snapshot.id, { client });
    assert.equal(await again.files.readText("/tmp/kept"), "1");
    await again.kill();
    await client.removeSnapshot(snapshot.id);
    await sandbox.kill();
    await assert.rejects(sandbox.run("true"), errors.SandboxTerminatedError);
  }));

test("ports are reached", () =>
  withSandbox({}, async (sandbox) => {
    await sandbox.files.write("/tmp/index.html", "hello from inside");
    await sandbox.startCommand("cd /tmp && exec python3 -m http.server 8000");
    for (let tries = 0; tries < 200 && !(await sandbox.ports.isListening(8000)); tries += 1);
    const answer = await sandbox.ports.request(8000, { path: "/index.html" });
    assert.deepEqual([answer.status, answer.body], [200, "hello from inside"]);
    const { stream } = await sandbox.ports.connect(8000);
    stream.write("GET /index.html HTTP/1.0\r\n\r\n");
    let received = "";
    for await (const part of stream) received += part;
    assert.ok(received.endsWith("hello from inside"), received);
  }));

test("changes are a bundle that is applied or rejected", async () => {
  const project = await fs.mkdtemp(path.join(os.tmpdir(), "stockade-sdk-"));
  const at = (name) => path.join(project, name);
  await fs.writeFile(at("a.txt"), "one\n");
  await withSandbox({ workspace: project }, async (sandbox) => {
    await sandbox.run("echo two >> a.txt; echo new > b.txt", { check: true });
    const bundle = await sandbox.collect();
    assert.equal(await fs.readFile(at("a.txt"), "utf8"), "one\n");
    const diffs = {};
    for await (const one of bundle.diff()) diffs[one.path] = one.diff;
    assert.match(diffs["a.txt"], /\+two/);
    assert.deepEqual((await bundle.apply({ paths: ["a.txt"] })).applied, ["a.txt"]);
    assert.equal(await fs.readFile(at("a.txt"), "utf8"), "one\ntwo\n");
    assert.ok((await Bundle.list(client)).some((one) => one.id === bundle.id));
    assert.equal((await (await Bundle.get(bundle.id.slice(0, 12), client)).reject()).rejected, true);
    await sandbox.kill({ discard: true });
  });
  await fs.rm(project, { recursive: true });
});

test("an error has the class of its code and a remedy", async () => {
  await assert.rejects(Sandbox.connect("absent", { client }), (error) => {
    assert.ok(error instanceof errors.NotFoundError);
    return error.code === "NOT_FOUND" && error.name === "NotFoundError";
  });
  await assert.rejects(Sandbox.create({ client, id: "Not An Id" }), errors.InvalidInputError);
  const elsewhere = new Client({ server: "http://127.0.0.1:1" });
  await assert.rejects(Sandbox.connect("a", { client: elsewhere }), (error) => {
    assert.ok(error instanceof errors.UnreachableError);
    return error.retryable;
  });
  assert.throws(() => new Client({ server: "http://box.test", apiKey: "k" }), errors.InvalidInputError);
});

test("the nodes of FireFlow run with the same client", async () => {
  const service = new SandboxContextService(client.send);
  const { sandboxId } = await service.create({});
  const ran = await SandboxExecuteNode.execute(client.send, { sandboxId, command: "echo hi; exit 2" });
  assert.deepEqual([ran.stdout, ran.exitCode], ["hi\n", 2]);
  const handle = await service.executeStream({ sandboxId, command: ["true"] });
  await handle.getResult();
  assert.equal((await service.kill({ sandboxId })).status, "terminated");
});

test("bytes are text where they can be", () => {
  assert.deepEqual(fromBytes(Buffer.from("ü")), "ü");
  assert.deepEqual(fromBytes(new Uint8Array([255])), { base64: "/w==" });
  assert.deepEqual([...bytesOf({ base64: "/w==" })], [255]);
});
