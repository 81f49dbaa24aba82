// Uses a server through the client library @alibaba-group/opensandbox of npm, and prints as JSON what it
// observed.
//
// Called as: node opensandbox_client.mjs MODULES HOST:PORT KEY SERVER_INSIDE

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, domain, apiKey, serverInside] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { ConnectionConfig, Sandbox, SandboxApiException, SandboxManager } = await load(
  "@alibaba-group/opensandbox",
);
const { WebSocket } = await load("undici");

const report = {};
const texts = (messages) => messages.map((message) => message.text);
const wait = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const connectionConfig = new ConnectionConfig({ domain, apiKey, requestTimeoutSeconds: 60 });

async function commands(sandbox) {
  const order = [];
  const ran = await sandbox.commands.run("printf 'hello\\n\\nend'; echo oops >&2", undefined, {
    onInit: () => order.push("init"),
    onExecutionComplete: () => order.push("complete"),
    onError: () => order.push("error"),
  });
  report.echo = {
    stdout: texts(ran.logs.stdout),
    stderr: texts(ran.logs.stderr),
    exit: ran.exitCode,
    order,
  };
  const failed = await sandbox.commands.run("exit 3");
  report.failed = { exit: failed.exitCode, name: failed.error.name };
  const options = { envs: { GIVEN: "per call" }, workingDirectory: "/tmp" };
  report.environment = texts(
    (await sandbox.commands.run('echo "$GIVEN"; pwd', options)).logs.stdout,
  );
  const late = await sandbox.commands.run("sleep 60", { timeoutSeconds: 1 });
  report.timeout = late.exitCode;
  const large = await sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x");
  report.large = texts(large.logs.stdout).join("").length;
  const ended = await sandbox.commands.run("sleep 60", undefined, {
    onInit: (init) => sandbox.commands.interrupt(init.id),
  });
  report.interrupted = ended.error !== undefined;
  const started = await sandbox.commands.run("echo one; sleep 0.2; echo two", {
    background: true,
  });
  let status = await sandbox.commands.getCommandStatus(started.id);
  for (let turn = 0; status.running && turn < 600; turn += 1) {
    await wait(50);
    status = await sandbox.commands.getCommandStatus(started.id);
  }
  const logs = await sandbox.commands.getBackgroundCommandLogs(started.id);
  report.background = { exit: status.exitCode, running: status.running, logs: logs.content };
}

async function files(sandbox) {
  const content = new Uint8Array(1 << 20).map((_, at) => at % 251);
  await sandbox.files.writeFiles([
    { path: "/tmp/work/binary", data: content },
    { path: "/tmp/work/a.txt", data: "0123456789", mode: 640 },
  ]);
  const read = await sandbox.files.readBytes("/tmp/work/binary");
  report.binary = Buffer.compare(Buffer.from(read), Buffer.from(content)) === 0;
  report.range = await sandbox.files.readFile("/tmp/work/a.txt", { range: "bytes=2-5" });
  const info = await sandbox.files.getFileInfo(["/tmp/work/a.txt"]);
  report.mode = info["/tmp/work/a.txt"].mode;
  await sandbox.files.replaceContents([
    { path: "/tmp/work/a.txt", oldContent: "345", newContent: "x" },
  ]);
  await sandbox.files.moveFiles([{ src: "/tmp/work/a.txt", dest: "/tmp/work/b.txt" }]);
  report.moved = await sandbox.files.readFile("/tmp/work/b.txt");
  const found = await sandbox.files.search({ path: "/tmp/work", pattern: "*.txt" });
  report.search = found.map((entry) => entry.path);
  await sandbox.files.deleteDirectories(["/tmp/work"]);
  try {
    await sandbox.files.readFile("/tmp/work/b.txt");
  } catch (error) {
    report.missing = error instanceof SandboxApiException ? error.statusCode : `${error}`;
  }
}

async function ports(sandbox) {
  await sandbox.files.writeFiles([{ path: "/tmp/server.py", data: readFileSync(serverInside) }]);
  await sandbox.commands.run("python3 /tmp/server.py 8123", { background: true });
  const { endpoint, headers } = await sandbox.getEndpoint(8123);
  for (let turn = 0; turn < 600; turn += 1) {
    const answer = await fetch(`http://${endpoint}/a?b=c`, { headers });
    if (answer.status === 200) {
      report.get = await answer.text();
      break;
    }
    await wait(50);
  }
  const posted = await fetch(`http://${endpoint}/p`, { method: "POST", body: "body", headers });
  report.post = await posted.text();
  report.refused = (await fetch(`http://${endpoint}/a`)).status;
  report.socket = await new Promise((resolve) => {
    const socket = new WebSocket(`ws://${endpoint}/ws`, { headers });
    socket.addEventListener("open", () => socket.send("over"));
    socket.addEventListener("message", (event) => {
      resolve(event.data);
      socket.close();
    });
    socket.addEventListener("error", (event) => resolve(`error ${event.message}`));
  });
}

async function life(sandbox) {
  const session = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
  const first = await sandbox.commands.runInSession(session, "pwd; export KEPT_HERE=kept");
  const second = await sandbox.commands.runInSession(session, 'echo "$KEPT_HERE"');
  report.session = [...texts(first.logs.stdout), ...texts(second.logs.stdout)];
  await sandbox.commands.deleteSession(session);
  await sandbox.files.writeFiles([{ path: "/tmp/state", data: "still here" }]);
  await sandbox.pause();
  const paused = (await sandbox.getInfo()).status.state;
  const healthy = await sandbox.isHealthy();
  const resumed = await Sandbox.resume({ sandboxId: sandbox.id, connectionConfig });
  const state = (await resumed.getInfo()).status.state;
  report.paused = [paused, healthy, state, await resumed.files.readFile("/tmp/state")];
  const before = (await sandbox.getInfo()).expiresAt;
  report.renewed = (await sandbox.renew(2 * 60 * 60)).expiresAt > before;
  const metrics = await sandbox.getMetrics();
  report.memory = metrics.memoryTotalMiB > 0;
  const manager = SandboxManager.create({ connectionConfig });
  const listed = await manager.listSandboxInfos({
    states: ["Running", "Allocated"],
    metadata: { team: "a b" },
  });
  report.listed = listed.items.map((info) => info.id === sandbox.id);
}

const sandbox = await Sandbox.create({
  connectionConfig,
  image: "host",
  timeoutSeconds: 30 * 60,
  metadata: { team: "a b" },
  extensions: { "opensandbox.extensions.own": "value" },
});
try {
  report.extensions = (await sandbox.getInfo()).extensions;
  await commands(sandbox);
  await files(sandbox);
  await ports(sandbox);
  await life(sandbox);
} finally {
  await sandbox.kill();
}
try {
  await sandbox.files.readFile("/etc/passwd");
} catch (error) {
  report.killed = error.statusCode;
}
const wrong = new ConnectionConfig({ domain, apiKey: `e2b_${"0".repeat(40)}` });
try {
  await Sandbox.create({ connectionConfig: wrong, image: "host" });
} catch (error) {
  report.wrongKey = error.statusCode;
}
console.log(JSON.stringify(report));
process.exit(0);
