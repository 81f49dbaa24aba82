// The client with a server at a URL, as STOCKADE_SERVER and STOCKADE_API_KEY name it. STOCKADE_TEST_PACKAGE names
// the directory with the built package.
import assert from "node:assert/strict";
import * as path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const index = path.join(process.env.STOCKADE_TEST_PACKAGE, "index.js");
const { Client, Sandbox, errors } = await import(pathToFileURL(index).href);

test("everything goes through the URL", async () => {
  const sandbox = await Sandbox.create();
  assert.equal((await sandbox.run("cat", { input: "in" })).stdout, "in");
  const session = await sandbox.openSession("read line; echo got $line", { input: true });
  await session.send("one\n");
  const kinds = [];
  for await (const event of session) kinds.push(event.kind);
  assert.deepEqual(kinds, ["stdout", "ended"]);
  await sandbox.files.write("/tmp/a", Buffer.from("12"));
  assert.equal(await sandbox.files.readText("/tmp/a"), "12");
  await sandbox.kill();
  sandbox.close();
});

test("a wrong key is refused", async () => {
  const client = new Client({ apiKey: `e2b_${"0".repeat(40)}` });
  await assert.rejects(Sandbox.list(client), errors.UnauthenticatedError);
  client.close();
});
