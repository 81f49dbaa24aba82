//! A thousand hostile snippets, half of them as packages, which are not validated: each ends, has
//! no effect outside, and leaves nothing behind.

use std::sync::Arc;

use stockade_core::address::hosts::Hosts;
use stockade_script::LibraryModule;
use stockade_script::fetch::Fetcher;
use stockade_snippet::{ErrorCode, Runner, Transcript};
use stockade_test_support::skipped;

use crate::support::{children_of, options, run, zygote};

/// The text that is printed when an attack reached something that it must not.
const TRACE: &str = "ESCAPED";
/// How many snippets of each kind.
const COUNT: usize = 500;
/// How much larger the zygote may be afterwards.
const GROWTH_KIB: u64 = 4 << 10;

/// Escapes that worked in other sandboxes, and ways to exhaust resources. `N` is replaced by a
/// number of the attack, `E` by code that prints the trace.
const ATTACKS: &[&str] = &[
    // Code from strings.
    "const F = (() => {})[\"construct\" + \"or\"]; F(\"E\")();",
    "const F = (async () => {})[[\"con\", \"structor\"].join(\"\")]; await F(\"E\")();",
    "const F = Object.getPrototypeOf(async function* () {})[`${\"constructor\"}`]; await F(\"E\")().next();",
    "const { constructor: F } = function* () {}; F(\"E\")().next();",
    "Reflect.construct(Reflect.get(() => {}, \"constructor\"), [\"E\"])();",
    "Reflect.getPrototypeOf(class {}).constructor.call(null, \"E\")();",
    "(0, globalThis[\"ev\" + \"al\"])(\"E\");",
    "setTimeout(\"E\", 0); await new Promise((r) => setTimeout(r, 5));",
    "new (Object.getPrototypeOf(function () {}).constructor)(\"E\")();",
    "Function.prototype.constructor = null; (() => {}).constructor(\"E\")();",
    "Object.defineProperty(Function.prototype, \"constructor\", { get() { return (s) => () => E; } }); [].constructor.constructor(\"E\");",
    "const e = new Error(); e.constructor.constructor(\"E\")();",
    "try { null.x; } catch (e) { e.constructor.constructor(\"return process\")().exit(N); E; }",
    "Error.prepareStackTrace = (e, frames) => frames[0].getFunction().constructor(\"E\")(); new Error().stack;",
    "const r = await import(\"data:text/javascript,E\").catch(() => null); if (r) { E; }",
    "for (const m of [\"fs\", \"node:fs\", \"os\", \"std\", \"qjs:std\", \"bjson\"]) { const r = await import(m).catch(() => null); if (r) { E; } }",
    "new ShadowRealm().evaluate(\"E\");",
    // Globals of other hosts.
    "if (typeof process !== \"undefined\") { E; }",
    "for (const n of [\"process\", \"require\", \"module\", \"Deno\", \"Bun\", \"std\", \"os\", \"bjson\", \"print\", \"scriptArgs\", \"load\", \"Worker\", \"SharedWorker\", \"BroadcastChannel\", \"MessageChannel\", \"postMessage\", \"WebAssembly\", \"importScripts\", \"XMLHttpRequest\", \"WebSocket\", \"Buffer\", \"navigator\", \"performance\", \"gc\", \"read\", \"host\"]) { if (n !== \"performance\" && globalThis[n] !== undefined) { E; } }",
    "globalThis.postMessage?.({ type: \"result\", logs: [] }); self.postMessage?.(N);",
    "console.log(import.meta.url?.includes(\"/\") ? \"TRACE\" : \"no\");",
    "const g = (function () { return this; })(); if (g && g.process) { E; }",
    // The host's own functions, and their arguments.
    "Array.prototype.map = function () { E; return []; }; console.log([1]);",
    "Object.prototype.then = function (r) { r(N); }; await {};",
    "String.prototype.toWellFormed = () => ({ toString() { throw N; } }); console.log(\"x\");",
    "console.log({ get $store() { for (;;) {} } });",
    "console.log({ toJSON() { throw { toString() { throw N; } }; } });",
    "console.log(new Proxy({}, { get() { throw N; }, ownKeys() { throw N; }, getPrototypeOf() { throw N; } }));",
    "throw new Proxy(new Error(\"x\"), { get() { for (;;) {} } });",
    "const e = new Error(\"x\"); Object.defineProperty(e, \"stack\", { get() { throw e; } }); throw e;",
    "const e = new Error(\"x\"); e.cause = e; throw e;",
    "throw { toString: () => \"x\".repeat(1 << 28) };",
    "throw Object.assign(new Error(\"\\0\\ud800\".repeat(N)), { name: \"\\u202e\".repeat(N), code: {} });",
    "structuredClone(new Proxy([], { get: () => { throw N; } }));",
    "const a = []; a[0] = a; structuredClone(a); console.log(a);",
    "structuredClone({ get x() { return structuredClone(this); } });",
    "crypto.getRandomValues(new Uint8Array(65537)); E;",
    "crypto.getRandomValues({ buffer: new ArrayBuffer(8), byteOffset: -N, byteLength: 1e9 }); E;",
    "new TextDecoder().decode(new Uint8Array(new ArrayBuffer(8), 9)); E;",
    "new URL(\"http://\" + \"a\".repeat(1 << 20) + \"/\"); new URL(\"http://[::N\");",
    "const u = new URL(\"http://a/\"); for (;;) u.searchParams.append(\"k\", \"v\".repeat(N));",
    "setTimeout({ toString() { E; } }, 0); await 0;",
    "const c = new AbortController(); c.signal.onabort = () => c.abort(); c.abort(); c.signal.addEventListener(\"abort\", null);",
    "queueMicrotask(null);",
    "await globalThis[\"fet\" + \"ch\"](\"http://127.0.0.1:N/\"); E;",
    "await globalThis[\"fet\" + \"ch\"](\"http://169.254.169.254/latest/meta-data\"); E;",
    "await Promise.all(Array.from({ length: 300 }, () => globalThis[\"fet\" + \"ch\"](\"http://[::1]:N/\"))); E;",
    "await globalThis[\"fet\" + \"ch\"](\"http://localhost\", { method: \"POST\", body: \"x\".repeat(6e6) }); E;",
    "await globalThis[\"fet\" + \"ch\"](\"http://a.example\", { headers: { \"x\\r\\ny\": \"z\" } }); E;",
    // The engine: memory that moves during callbacks.
    "const a = [1, 2, 3]; a.sort(() => { a.length = 0; for (let i = 0; i < N; i++) a.push({}); return -1; });",
    "const a = new Array(N).fill(0); a.map(() => { a.length = 1; return [].concat(a); }); a.splice(0, N, ...a);",
    "const b = new ArrayBuffer(N, { maxByteLength: 1 << 20 }); const v = new Uint8Array(b); v.set({ get length() { b.resize(1); return 8; } }); v[N] = 1;",
    "const b = new ArrayBuffer(64); const v = new DataView(b); b.transfer?.(); v.setInt32(0, N);",
    "const v = new Uint8Array(64); v.fill({ valueOf() { v.buffer.transfer?.(1); return N; } });",
    "(function (x) { arguments[0] = {}; const a = arguments; for (let i = 0; i < N; i++) { a[i] = [a]; delete a[0]; } x = 1; })(1, 2);",
    "const w = new WeakMap(); let k = {}; for (let i = 0; i < N; i++) { const n = {}; w.set(k, n); k = n; } k = null;",
    "const r = new FinalizationRegistry(() => N); for (let i = 0; i < N; i++) r.register({}, i);",
    "const p = new Proxy({}, {}); Object.setPrototypeOf(p, new Proxy(p, {}));",
    "const m = new Map([[1, 1]]); m.forEach((v, k) => { m.delete(k); m.set(k + 1, v); if (k > N * 10) m.clear(); });",
    "const s = \"a\".repeat(N); s.replace(/a/g, () => s.replace(/a/g, () => { throw N; }));",
    "class A { constructor() { return new Proxy(this, { has: () => { E; return true; } }); } #x = 1; static t(o) { return #x in o; } } A.t(new A());",
    "const g = (function* () { try { yield 1; } finally { g.return(); g.next(); } })(); g.next(); g.return();",
    "const it = { [Symbol.iterator]() { return this; }, next() { return { get done() { throw N; } }; } }; new Set(it);",
    "const d = new Date(N); d[Symbol.toPrimitive] = () => { throw d; }; d + 1;",
    "BigInt.asUintN(2 ** 53 - 1, -1n); (2n ** 100000n) ** BigInt(N); 10n ** 1000000n;",
    "JSON.parse(\"[\".repeat(1e5)); ",
    "JSON.stringify(Array.from({ length: N }).reduce((a) => [a, a], []));",
    "Array.from({ length: -1 >>> 0 }); new Array(2 ** 32 - 1).join(\"x\".repeat(N));",
    "\"x\".padEnd(2 ** 30 - N); \"ab\".repeat(2 ** 29);",
    "new RegExp(\"(\".repeat(N) + \")\".repeat(N)); new RegExp(\"a{\" + N + \"}\".repeat(9));",
    // Exhaustion of memory, stack, time and output.
    "const a = []; for (;;) a.push(new Array(N).fill(a.length));",
    "let s = \"N\"; for (;;) s += s;",
    "const a = []; for (;;) a.push(new ArrayBuffer(1 << 16));",
    "const a = []; for (;;) a.push(Symbol(String(a.length)), new Map(), () => a);",
    "let o = {}; for (let i = 0; ; i++) o[\"k\" + i] = { o };",
    "const f = (n) => f(n + 1) + f(n + 2); f(N);",
    "const f = () => { try { f(); } finally { f(); } }; f();",
    "let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; JSON.stringify(o); structuredClone(o);",
    "let p = Promise.resolve(); const f = () => { p = p.then(f); return p.then(f); }; f(); await new Promise(() => {});",
    "const f = () => queueMicrotask(f); f(); await new Promise(() => {});",
    "const f = () => { setTimeout(f, 0); setTimeout(f, 0); }; f(); await new Promise(() => {});",
    "await new Promise(() => {});",
    "setInterval(() => {}, 0); await new Promise(() => {});",
    "for (;;) { try { for (;;) {} } catch {} finally { for (;;) {} } }",
    "/^(([a-z])+.)+[A-Z]([a-z])+$/.test(\"a\".repeat(N)); /(x+x+)+y/.test(\"x\".repeat(40)); /(a*)*b/.test(\"a\".repeat(5000));",
    "for (;;) console.log(\"x\".repeat(N));",
    "for (let i = 0; i < 1e6; i++) console.error(i);",
    "console.log(\"x\".repeat(1 << 24)); console.log(\"\\u001b]0;x\\u0007\".repeat(N));",
    "for (;;) Promise.reject(new Error(\"x\".repeat(N)));",
    "const g = (async function* () { for (;;) yield N; })(); for await (const x of g) { if (x < 0) { E; } }",
    "while (true) { Date.now(); Math.random(); }",
    "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60000);",
    // The response itself.
    "import(\"stockade:systems\").then((m) => m.register({ facts: { $store: { toObject: () => \"TRACE\" } } }, [])).catch(() => {});",
    "Object.prototype.toJSON = () => ({ Ran: { logs: [\"TRACE\"] } });",
    "JSON.stringify = () => { throw N; }; JSON.parse = () => ({ facts: {}, derived: {}, errors: [] });",
    "console.log(\"\\n\\u0000A\\u0001\\u0000\\u0000\\u0000{}\");",
];

/// The attack with this number: one of the list, with its own number, in one of several settings.
fn attack(index: usize) -> String {
    let number = [1, 7, 100, 4_096, 65_535][index / ATTACKS.len() % 5] + index % 3;
    let body = ATTACKS[index % ATTACKS.len()]
        .replace("TRACE", TRACE)
        .replace("\"E\"", &format!("\"globalThis.console.log('{TRACE}')\""))
        .replace(" E;", &format!(" console.log(\"{TRACE}\");"))
        .replace("=> E", &format!("=> console.log(\"{TRACE}\")"));
    let mut words = String::new();
    let mut before = ' ';
    for (at, character) in body.char_indices() {
        let after = body[at + character.len_utf8()..].chars().next().unwrap_or(' ');
        let alone = |c: char| !c.is_alphanumeric() && c != '_' && c != '.';
        if character == 'N' && alone(before) && alone(after) {
            words.push_str(&number.to_string());
        } else {
            words.push(character);
        }
        before = character;
    }
    match index / ATTACKS.len() % 4 {
        0 => words,
        1 => format!("try {{ {words} }} catch (e) {{ console.log(String(e).slice(0, 99)); }}"),
        2 => format!("await (async () => {{ {words} }})().finally(() => {{}});"),
        _ => format!(
            "setTimeout(async () => {{ {words} }}, 1); await new Promise((r) => setTimeout(r, 20));"
        ),
    }
}

/// What can be observed of a process from outside.
#[derive(Debug)]
struct ProcessUsage {
    resident_kib: u64,
    descriptors: Option<usize>,
}

fn process_usage(process: u32) -> ProcessUsage {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok();
    ProcessUsage { resident_kib: resident, descriptors: descriptors.map(Iterator::count) }
}

/// The same once it has no workers, and has released the resources of the former ones.
async fn usage_at_rest(zygote: u32) -> ProcessUsage {
    let pause = || tokio::time::sleep(std::time::Duration::from_millis(20));
    while !children_of(zygote).is_empty() {
        pause().await;
    }
    let mut seen = process_usage(zygote);
    loop {
        pause().await;
        let now = process_usage(zygote);
        if now.descriptors == seen.descriptors {
            return now;
        }
        seen = now;
    }
}

/// What is wrong with the result of an attack.
fn escape_reason(transcript: &Transcript) -> Option<&'static str> {
    let reported = serde_json::to_string(&(&transcript.facts, &transcript.derived)).unwrap();
    let lines: usize = transcript.logs.iter().map(String::len).sum();
    if transcript.logs.iter().any(|line| line.contains(TRACE)) || reported.contains(TRACE) {
        Some("something was reached")
    } else if lines > 3 << 20 {
        Some("too much was written")
    } else if transcript.error_code == Some(ErrorCode::WorkerError) {
        // The engine has to survive it, too.
        Some("it was the end of a worker")
    } else {
        None
    }
}

/// Runs every source with a runner, several concurrently, and checks what is left.
async fn run_all(runner: Runner, sources: Vec<String>) {
    let runner = Arc::new(runner);
    runner.warm().await.unwrap();
    run(&runner, "export {};", 100.0).await;
    let zygote = zygote();
    let before = usage_at_rest(zygote).await;
    let mut attacks = tokio::task::JoinSet::new();
    for source in sources {
        let runner = Arc::clone(&runner);
        attacks.spawn(async move {
            let transcript = run(&runner, &source, 100.0).await;
            escape_reason(&transcript)
                .map(|wrong| format!("{wrong}: {source}: {:?}", transcript.errors))
        });
    }
    let judged = attacks.join_all().await;
    let wrong: Vec<String> = judged.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let after = usage_at_rest(zygote).await;
    assert_eq!(crate::support::zygote(), zygote, "another one took its place");
    let growth_kib = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(growth_kib < GROWTH_KIB, "{before:?} {after:?}");
    if before.descriptors.is_none() {
        skipped("only root sees the descriptors of what workers are forked from");
    }
    assert_eq!(before.descriptors, after.descriptors);
    // The attacks changed nothing that later snippets see.
    let transcript = run(&runner, "console.log(1 + 1);", 1_000.0).await;
    assert_eq!(transcript.logs, ["[log] 2"], "{transcript:?}");
    drop(runner);
    assert!(children_of(std::process::id()).is_empty());
}

#[tokio::test]
async fn five_hundred_hostile_snippets_reach_nothing() {
    let sources = (0..COUNT).map(attack).collect();
    run_all(Runner::new(options()), sources).await;
}

#[tokio::test]
async fn five_hundred_hostile_packages_reach_nothing() {
    let mut options = options();
    options.fetcher = Fetcher::new(Hosts::Nowhere);
    let name = |index: usize| format!("@directive-run/lint/{index}");
    for index in 0..COUNT {
        options.library.modules.push(LibraryModule {
            specifier: name(index),
            source: attack(index),
            exported: true,
            ..LibraryModule::default()
        });
    }
    let source = |index| format!("import \"{}\";", name(index));
    run_all(Runner::new(options), (0..COUNT).map(source).collect()).await;
}
