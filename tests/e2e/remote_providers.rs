//! The providers in `examples` that send work elsewhere, with local doubles of what is there.

use std::path::Path;

use serde_json::json;

use crate::harness::World;
use crate::providers::{flow, grant, runner};
use crate::sandbox::{call, is_clean};

as_root_and_as_user! {
    a_vm_does_the_work_and_is_deleted,
    a_service_answers_with_signed_callbacks,
}

/// A double of the package `freestyle`: a VM is a directory of this machine.
const FREESTYLE: &str = r#"
import { appendFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
const root = process.env.FREESTYLE_DOUBLE;
const note = (text) => appendFileSync(`${root}/notes`, `${text}\n`);
export const freestyle = { vms: {
  async create({ idleTimeoutSeconds }) {
    const vmId = `vm-${process.pid}`;
    mkdirSync(`${root}/${vmId}/workspace`, { recursive: true });
    note(`create ${idleTimeoutSeconds}`);
    const at = (path) => `${root}/${vmId}${path}`;
    return { vmId, vm: {
      fs: {
        async writeTextFile(path, text) { writeFileSync(at(path), text); },
        async readTextFile(path) { return readFileSync(at(path), "utf8"); },
      },
      async exec({ command }) {
        const line = command.replaceAll("/workspace", at("/workspace"));
        const done = spawnSync("sh", ["-c", line], { cwd: at("/workspace"), encoding: "utf8" });
        return { statusCode: done.status, stdout: done.stdout, stderr: done.stderr };
      },
    } };
  },
  async delete({ vmId }) { rmSync(`${root}/${vmId}`, { recursive: true }); note("delete"); },
} };
"#;

/// A double of a service: it checks what it gets, and tries what a stranger could send.
const SERVICE: &str = r#"
import { createServer } from "node:http";
import { writeFileSync, appendFileSync } from "node:fs";
import { sign, verify } from "./signature.mjs";
const secret = process.env.PROVIDER_SECRET;
const note = (text) => appendFileSync("notes", `${text}\n`);
const runs = new Map();
let refused = 0;
async function work(run, { callbackUrl, input }) {
  const { pathname } = new URL(callbackUrl);
  const send = async (message, key = secret, age = 0, target = `POST ${pathname}`) => {
    const body = JSON.stringify(message);
    const headers = sign(key, target, body, Date.now() - age);
    return (await fetch(callbackUrl, { method: "POST", body, headers })).status;
  };
  const forged = { type: "result", sequence: 9, result: { status: "finished", output: { n: 666 } } };
  note(`wrong key ${await send(forged, "x".repeat(32))}`);
  note(`too old ${await send(forged, secret, 3600_000)}`);
  note(`other path ${await send(forged, secret, 0, "POST /callbacks/other")}`);
  note(`heartbeat ${await send({ type: "heartbeat", sequence: 1, data: { phase: "working" } })}`);
  note(`replay ${await send({ type: "heartbeat", sequence: 1, data: {} })}`);
  const result = { status: "finished", output: { n: input.n + 1 } };
  note(`result ${await send({ type: "result", sequence: 2, result })}`);
}
createServer((incoming, answer) => {
  const parts = [];
  incoming.on("data", (part) => parts.push(part));
  incoming.on("end", () => {
    const body = Buffer.concat(parts);
    const reply = (status, value) => answer.writeHead(status).end(value && JSON.stringify(value));
    if (!verify(secret, `${incoming.method} ${incoming.url}`, body, incoming.headers)) return reply(401);
    // A service that is busy is asked again.
    if ((refused += 1) <= 2) return reply(refused === 1 ? 429 : 500);
    const key = incoming.headers["idempotency-key"];
    if (incoming.method === "DELETE") { note(`delete ${runs.delete(key)}`); return reply(204); }
    if (incoming.method === "GET") return reply(200, { phase: "working" });
    const known = runs.has(key);
    const run = known ? runs.get(key) : { remoteRunId: "run-1" };
    runs.set(key, run);
    reply(202, run);
    const request = JSON.parse(body);
    note(`start ${known} ${Object.keys(request).sort()}`);
    if (!known) work(run, request).catch((error) => note(String(error)));
  });
}).listen(0, "127.0.0.1", function () { writeFileSync("port", String(this.address().port)); });
"#;

fn notes(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("notes")).unwrap_or_default()
}

fn a_vm_does_the_work_and_is_deleted(world: &World) {
    let test = "a_vm_does_the_work_and_is_deleted";
    let Some(node) = runner(world, "node", test) else { return };
    let at = world.outside();
    let module = at.join("provider.mjs");
    world.plant(&module, include_str!("../../examples/freestyle/provider.mjs"));
    let package = at.join("node_modules/freestyle");
    std::fs::create_dir_all(&package).unwrap();
    world.chown(&at.join("node_modules"));
    world.chown(&package);
    world.plant(&package.join("index.mjs"), FREESTYLE);
    let manifest = json!({ "name": "freestyle", "type": "module", "exports": "./index.mjs" });
    world.plant(&package.join("package.json"), &manifest.to_string());
    let environment = ["FREESTYLE_DOUBLE"];
    grant(world, &json!({ "module": module, "program": node, "environment": environment }));
    let file = flow(world, "vm", "", "provider=\"mine\"");
    let work = "node -e 'const fs = require(\"fs\"); \
        const { input } = JSON.parse(fs.readFileSync(\"smithers-request.json\")); \
        fs.writeFileSync(\"smithers-result.json\", JSON.stringify({ output: { n: input.n * 2 } }))'";
    let run = |name: &str, input: &serde_json::Value| {
        let double = format!("FREESTYLE_DOUBLE={}", at.display());
        let input = input.to_string();
        call(world, &["up", &file, "--run-id", name, "--env", &double, "--input", &input])
    };
    let done = run("works", &json!({ "n": 21, "command": work, "setup": "echo set up" }));
    done.succeeds();
    assert_eq!(done.json(), json!({ "n": 42 }), "{done}");
    assert_eq!(notes(&at), "create 600\ndelete\n");
    let failed = run("fails", &json!({ "n": 1, "command": "exit 3" }));
    assert_ne!(failed.code(), 0, "{failed}");
    assert_eq!(notes(&at), "create 600\ndelete\ncreate 600\ndelete\n");
    let left = std::fs::read_dir(&at).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("vm-"));
    assert_eq!(left.count(), 0);
    is_clean(world);
}

fn a_service_answers_with_signed_callbacks(world: &World) {
    let test = "a_service_answers_with_signed_callbacks";
    let Some(node) = runner(world, "node", test) else { return };
    let at = world.outside();
    let module = at.join("provider.mjs");
    world.plant(&module, include_str!("../../examples/http-provider/provider.mjs"));
    let signature = include_str!("../../examples/http-provider/signature.mjs");
    world.plant(&at.join("signature.mjs"), signature);
    world.plant(&at.join("service.mjs"), SERVICE);
    let secret = "0123456789abcdef0123456789abcdef";
    let service = world
        .on_host(&node, &["service.mjs"])
        .current_dir(&at)
        .env("PROVIDER_SECRET", secret)
        .start();
    let port = || std::fs::read_to_string(at.join("port")).unwrap_or_default();
    crate::daemons::wait_until("the service listens", || !port().is_empty());
    let port = port();
    let environment = ["PROVIDER_URL", "PROVIDER_SECRET"];
    grant(world, &json!({ "module": module, "program": node, "environment": environment }));
    let file = flow(world, "remote", "", "provider=\"mine\"");
    let run = |name: &str, secret: &str| {
        let input = json!({ "n": 6 }).to_string();
        let url = format!("PROVIDER_URL=http://127.0.0.1:{port}");
        let secret = format!("PROVIDER_SECRET={secret}");
        let variables = ["--env", &url, "--env", &secret];
        call(world, &[&["up", &file, "--run-id", name, "--input", &input][..], &variables].concat())
    };
    let done = run("works", secret);
    done.succeeds();
    assert_eq!(done.json(), json!({ "n": 7 }), "{done}");
    let expected = "start false allowNetwork,callbackUrl,input,maxOutputBytes,runId,sandboxId,toolTimeoutMs\n\
        wrong key 401\ntoo old 401\nother path 401\nheartbeat 204\nreplay 409\nresult 204\ndelete true\n";
    assert_eq!(notes(&at), expected);
    service.signal(rustix::process::Signal::KILL);
    service.finish();
    is_clean(world);
}
