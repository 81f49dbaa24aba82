//! What programs with the core library that is built in print: the behaviour of the published package, written
//! down case by case.

use stockade_script::SourceFile;

use super::built_in;
use crate::imports::Imports;
use crate::payload::Input;
use crate::run::execute;

/// The start of each program: `make` creates and starts a system with one module, which has the fact `n`.
const START: &str = r#"import { createModule, createSystem, t, Backoff, req, forType, RequirementSet, evaluatePredicate, generateRequirementId } from "@directive-run/core";
import { createCircuitBreaker, devtoolsPlugin, loggingPlugin, performancePlugin } from "@directive-run/core/plugins";
const n = { n: t.number() };
const make = (more: any, options: any = {}): any => { const s: any = createSystem({ module: createModule("m", { schema: { facts: n }, init: (f: any) => { f.n = 0; }, ...more } as any), ...options }); s.start(); return s; };
"#;

/// Programs, and the lines that they print.
const CASES: &[(&str, &str, &[&str])] = &[
    (
        "a watcher is notified at once, and once after an event",
        r#"
         const s = make({ events: { two: (f: any) => { f.n += 1; f.n += 1; } } });
         s.watch("n", (now: any, before: any) => console.log(before, now));
         s.facts.n = 1;
         console.log("set");
         s.events.two();
         console.log("end");
         "#,
        &[r#"[log] 0 1"#, r#"[log] set"#, r#"[log] 1 3"#, r#"[log] end"#],
    ),
    (
        "an event has its type and payload",
        r#"
         const s = make({ events: { go: (f: any, e: any) => console.log(JSON.stringify(e)) } });
         s.events.go({ by: 2 });
         s.dispatch({ type: "go", by: 3 });
         "#,
        &[r#"[log] {"type":"go","by":2}"#, r#"[log] {"type":"go","by":3}"#],
    ),
    (
        "derivations are kept until what they read changes",
        r#"
         const s = make({ derive: { d: (f: any) => { console.log("compute"); return f.n * 2; }, e: (f: any, d: any) => d.d + 1 } });
         console.log(s.derive.e, s.derive.e);
         s.facts.n = 1;
         console.log(s.derive.e);
         "#,
        &[r#"[log] compute"#, r#"[log] 1 1"#, r#"[log] compute"#, r#"[log] 3"#],
    ),
    (
        "a derivation that fails throws to its reader",
        r#"
         const s = make({ derive: { d: (f: any) => { if (f.n > 0) throw new Error("no"); return 0; } } });
         s.facts.n = 1;
         try { s.derive.d; } catch (e: any) { console.log(e.message); }
         "#,
        &[r#"[log] no"#],
    ),
    (
        "derivations in a circle are refused",
        r#"
         const s: any = createSystem({ module: createModule("m", { schema: { facts: n }, derive: { a: (f: any, d: any) => d.b, b: (f: any, d: any) => d.a } } as any) });
         try { s.start(); } catch (e: any) { console.log(e.message); }
         "#,
        &[r#"[log] [Directive] Circular dependency detected in derivation: a"#],
    ),
    (
        "a requirement that stays is resolved once",
        r#"
         let runs = 0;
         const s = make({ constraints: { c: { when: (f: any) => f.n < 3, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { runs += 1; c.facts.n += 1; } } } });
         await s.settle();
         console.log(runs, s.facts.n);
         "#,
        &[r#"[log] 1 1"#],
    ),
    (
        "requeue resolves it again",
        r#"
         let runs = 0;
         const s = make({ constraints: { c: { when: (f: any) => f.n < 3, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { runs += 1; c.facts.n += 1; c.requeue(); } } } });
         await s.settle();
         console.log(runs, s.facts.n);
         "#,
        &[r#"[log] 3 3"#],
    ),
    (
        "a requirement that changes is resolved again",
        r#"
         const s = make({ constraints: { c: { when: (f: any) => f.n < 3, require: (f: any) => ({ type: "A", at: f.n }) } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { console.log(q.at); c.facts.n += 1; } } } });
         await s.settle();
         console.log(s.facts.n);
         "#,
        &[r#"[log] 0"#, r#"[log] 1"#, r#"[log] 2"#, r#"[log] 3"#],
    ),
    (
        "priorities order conditions",
        r#"
         const c = (name: string, priority?: number) => ({ priority, when: () => { console.log(name); return false; }, require: { type: "A" } });
         const s = make({ constraints: { low: c("low"), high: c("high", 9), mid: c("mid", 5) } });
         await s.settle();
         "#,
        &[r#"[log] high"#, r#"[log] mid"#, r#"[log] low"#],
    ),
    (
        "after waits for a resolver",
        r#"
         const s = make({ constraints: { b: { after: ["a"], when: () => true, require: { type: "B" } }, a: { when: () => true, require: { type: "A" } } }, resolvers: { b: { requirement: "B", resolve: async () => console.log("b") }, a: { requirement: "A", resolve: async () => { console.log("a starts"); await null; console.log("a ends"); } } } });
         await s.settle();
         "#,
        &[r#"[log] a starts"#, r#"[log] a ends"#, r#"[log] b"#],
    ),
    (
        "conditions run again only for what they read",
        r#"
         let runs = 0;
         const s = createSystem({ module: createModule("m", { schema: { facts: { a: t.number(), b: t.number() } }, init: (f: any) => { f.a = 0; f.b = 0; }, constraints: { c: { when: (f: any) => { runs += 1; return f.a > 5; }, require: { type: "A" } } } } as any) }) as any;
         s.start();
         await s.settle();
         s.facts.b = 1;
         await s.settle();
         s.facts.a = 1;
         await s.settle();
         console.log(runs);
         "#,
        &[r#"[log] 2"#],
    ),
    (
        "errors of a resolver are quiet, and reach the boundary",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } } }, resolvers: { r: { requirement: "A", retry: { attempts: 3, backoff: "none", initialDelay: 1 }, resolve: async () => { console.log("try"); throw new Error("no"); } } } }, { errorBoundary: { onResolverError: (e: any, id: string) => { console.log("boundary", e.message, id); } } });
         await s.settle();
         console.log("settled");
         "#,
        &[
            r#"[log] try"#,
            r#"[log] try"#,
            r#"[log] try"#,
            r#"[log] boundary no r"#,
            r#"[log] settled"#,
        ],
    ),
    (
        "shouldRetry ends attempts",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } } }, resolvers: { r: { requirement: "A", retry: { attempts: 5, initialDelay: 1, shouldRetry: (e: any, at: number) => at < 2 }, resolve: async () => { console.log("try"); throw new Error("no"); } } } });
         await s.settle();
         "#,
        &[r#"[log] try"#, r#"[log] try"#],
    ),
    (
        "a resolver in time, and too late",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } } }, resolvers: { r: { requirement: "A", timeout: 20, resolve: () => new Promise(() => {}) } } }, { errorBoundary: { onResolverError: (e: any) => { console.log(e.message); } } });
         await s.settle();
         "#,
        &[r#"[log] Resolver "r" timed out after 20ms"#],
    ),
    (
        "a resolver is aborted when its requirement is gone",
        r#"
         const s = make({ constraints: { c: { when: (f: any) => f.n === 0, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: (q: any, c: any) => new Promise((done: any) => c.signal.addEventListener("abort", () => { console.log("aborted"); done(); })) } } });
         await s.whenReady();
         s.facts.n = 1;
         await s.settle();
         console.log("settled");
         "#,
        &[r#"[log] aborted"#, r#"[log] settled"#],
    ),
    (
        "effects: previous facts, what they read, clean up",
        r#"
         const s = make({ effects: { e: { run: (f: any, before: any) => { console.log(f.n, JSON.stringify(before)); return () => console.log("clean"); } } } });
         await s.settle();
         s.facts.n = 1;
         await s.settle();
         s.destroy();
         "#,
        &[r#"[log] 0 null"#, r#"[log] clean"#, r#"[log] 1 {"n":0}"#, r#"[log] clean"#],
    ),
    (
        "effects: deps",
        r#"
         const s = createSystem({ module: createModule("m", { schema: { facts: { a: t.number(), b: t.number() } }, init: (f: any) => { f.a = 0; f.b = 0; }, effects: { e: { deps: ["a"], run: (f: any) => console.log(f.a, f.b) } } } as any) }) as any;
         s.start();
         await s.settle();
         s.facts.b = 1;
         await s.settle();
         s.facts.a = 2;
         await s.settle();
         "#,
        &[r#"[log] 0 0"#, r#"[log] 2 1"#],
    ),
    (
        "effects: errors are reported and stop nothing",
        r#"
         const s = make({ effects: { bad: { run: () => { throw new Error("no"); } }, good: { run: (f: any) => console.log("good", f.n) } } });
         await s.settle();
         console.log(s.isSettled);
         "#,
        &[
            r#"[log] good 0"#,
            r#"[error] [Directive] Effect "bad" threw an error: Error: no"#,
            r#"[log] true"#,
        ],
    ),
    (
        "effects and constraints get derivations",
        r#"
         const s = make({ derive: { d: (f: any) => f.n * 2 }, effects: { e: { run: (f: any, p: any, d: any) => console.log("effect", d.d) } }, constraints: { c: { when: (f: any, d: any) => { console.log("when", d.d); return false; }, require: { type: "A" } } } });
         await s.settle();
         s.facts.n = 2;
         await s.settle();
         "#,
        &[r#"[log] effect 0"#, r#"[log] when 0"#, r#"[log] effect 4"#, r#"[log] when 4"#],
    ),
    (
        "facts are checked",
        r#"
         const s = make({});
         for (const [k, v] of [["n", "x"], ["n", null], ["m", 1]] as any) try { s.facts[k] = v; } catch (e: any) { console.log(e.message); } console.log(s.facts.n);
         "#,
        &[
            r#"[log] [Directive] Validation failed for "n": expected number, got string "x""#,
            r#"[log] [Directive] Validation failed for "n": expected number, got null null"#,
            r#"[log] [Directive] Unknown fact key: "m": the schema does not have it"#,
            r#"[log] 0"#,
        ],
    ),
    (
        "a change within an object causes a warning and no notification",
        r#"
         const s = createSystem({ module: createModule("m", { schema: { facts: { o: t.object<any>() } }, init: (f: any) => { f.o = { a: [1] }; } } as any) }) as any;
         s.start();
         s.watch("o", () => console.log("notified"));
         s.facts.o.a.push(2);
         console.log(JSON.stringify(s.facts.o), s.facts.o === s.facts.o);
         "#,
        &[
            r#"[warn] [Directive] no listener is notified of a change of facts.o.a.1: set facts.o to a new value"#,
            r#"[warn] [Directive] no listener is notified of a change of facts.o.a.length: set facts.o to a new value"#,
            r#"[log] {"a":[1,2]} false"#,
        ],
    ),
    (
        "types: limits, unions, objects",
        r#"
         const check = (type: any, ...values: any[]) => console.log(values.map((v) => Number(type._validators.every((c: any) => c(v)))).join(""));
         check(t.number().min(1).max(3), 0, 1, 3, 4);
         check(t.string().minLength(2).pattern(/^a/), "a", "ab", "ba");
         check(t.enum("a", "b"), "a", "c");
         check(t.union(t.string(), t.number()), "x", 1, true);
         check(t.object<any>().shape({ a: t.number() }), { a: 1 }, { a: "" }, []);
         check(t.array<any>().of(t.number()).nonEmpty(), [1], [], ["x"]);
         check(t.tuple(t.string(), t.number()), ["a", 1], ["a"]);
         check(t.record(t.number()), { a: 1 }, { a: "" });
         check(t.literal(1), 1, "1");
         check(t.nullable(t.date()), null, new Date(0), new Date(NaN));
         check(t.string().optional(), undefined, "a", null);
         check(t.number().default(5), 5, "x");
         console.log(t.string().nullable()._typeName, (t.string().nullable() as any).minLength);
         "#,
        &[
            r#"[log] 0110"#,
            r#"[log] 010"#,
            r#"[log] 10"#,
            r#"[log] 110"#,
            r#"[log] 100"#,
            r#"[log] 100"#,
            r#"[log] 10"#,
            r#"[log] 10"#,
            r#"[log] 10"#,
            r#"[log] 110"#,
            r#"[log] 110"#,
            r#"[log] 10"#,
            r#"[log] string | null undefined"#,
        ],
    ),
    (
        "keys of resolvers say what is the same",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: [{ type: "A", id: 1, x: 1 }, { type: "A", id: 1, x: 2 }] } }, resolvers: { r: { requirement: "A", key: (q: any) => "k" + q.id, resolve: async (q: any) => console.log(q.x) } } });
         await s.settle();
         "#,
        &[r#"[log] 1"#],
    ),
    (
        "requirements with the same content are one",
        r#"
         const s = make({ constraints: { a: { when: () => true, require: { type: "A", x: 1, y: 2 } }, b: { when: () => true, require: { y: 2, type: "A", x: 1 } } }, resolvers: { r: { requirement: "A", resolve: async () => console.log("once") } } });
         await s.settle();
         console.log(generateRequirementId({ type: "A", b: [1], a: "x" } as any));
         "#,
        &[r#"[log] once"#, r#"[log] A:{"a":"x","b":[1]}"#],
    ),
    (
        "a requirement without a resolver is warned of",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } } } });
         await s.settle();
         console.log(s.inspect().unmet.length);
         "#,
        &[
            r#"[warn] [Directive] No resolver found for requirement type "A" (id: A:{})"#,
            r#"[log] 1"#,
        ],
    ),
    (
        "batches collect requirements",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: [{ type: "A", id: 1 }, { type: "A", id: 2 }] } }, resolvers: { r: { requirement: "A", batch: { enabled: true, windowMs: 5 }, resolveBatch: async (list: any[]) => console.log(list.map((q) => q.id).join()) } } });
         await s.settle();
         console.log("settled");
         "#,
        &[r#"[log] 1,2"#, r#"[log] settled"#],
    ),
    (
        "async conditions",
        r#"
         const s = make({ constraints: { c: { async: true, deps: ["n"], when: async (f: any) => f.n === 0, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { c.facts.n = 1; } } } });
         await s.settle();
         console.log(s.facts.n);
         "#,
        &[r#"[log] 1"#],
    ),
    (
        "batches of changes",
        r#"
         const s = make({});
         let count = 0;
         s.watch("n", () => { count += 1; });
         s.batch(() => { s.facts.n = 1; s.facts.n = 2; console.log(s.facts.n); });
         console.log(count);
         "#,
        &[r#"[log] 2"#, r#"[log] 1"#],
    ),
    (
        "read, subscribe, when",
        r#"
         const s = make({ derive: { d: (f: any) => f.n > 1 } });
         console.log(s.read("d"));
         try { s.read("n"); } catch (e: any) { console.log(e.message); } const stop = s.subscribe(["n", "d"], () => console.log("changed"));
         s.facts.n = 1;
         stop();
         s.facts.n = 2;
         await s.when((f: any) => f.n === 2);
         const w = s.when((f: any) => f.n === 3).then(() => console.log("when"));
         s.facts.n = 3;
         await w;
         "#,
        &[
            r#"[log] false"#,
            r#"[log] [Directive] Unknown derivation: n"#,
            r#"[log] changed"#,
            r#"[log] changed"#,
            r#"[log] when"#,
        ],
    ),
    (
        "settle has a limit",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: () => new Promise(() => {}) } } });
         await s.settle(20).catch((e: any) => console.log(e.message));
         s.destroy();
         "#,
        &[
            r#"[log] [Directive] settle() timed out after 20ms. 1 resolvers inflight: r; 1 unmet requirements: A"#,
        ],
    ),
    (
        "several modules",
        r#"
         const a = createModule("a", { schema: { facts: { on: t.boolean() } }, init: (f: any) => { f.on = false; }, events: { flip: (f: any) => { f.on = !f.on; } } } as any);
         const b = createModule("b", { schema: { facts: n }, crossModuleDeps: { a: a.schema }, init: (f: any) => { f.n = 0; }, derive: { both: (f: any) => f.a.on && f.self.n > 0 }, constraints: { c: { when: (f: any) => f.a.on && f.self.n === 0, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { c.facts.n = 1; } } } } as any);
         const s: any = createSystem({ modules: { a, b } });
         s.start();
         s.events.a.flip();
         await s.settle();
         console.log(JSON.stringify(s.facts), s.derive.b.both, s.read("b.both"));
         s.watch("b.n", (x: any) => console.log("b.n", x));
         s.facts.b.n = 5;
         "#,
        &[r#"[log] {"a":{"on":true},"b":{"n":1}} true true"#, r#"[log] b.n 5"#],
    ),
    (
        "initial facts, hydrated facts",
        r#"
         const s: any = createSystem({ module: createModule("m", { schema: { facts: n }, init: (f: any) => { f.n = 1; } } as any), initialFacts: { n: 2 } } as any);
         await s.hydrate(() => ({ n: 3 }));
         s.start();
         console.log(s.facts.n);
         await s.hydrate(() => ({})).catch((e: any) => console.log(e.message));
         "#,
        &[r#"[log] 3"#, r#"[log] [Directive] hydrate() must be called before start()"#],
    ),
    (
        "history goes back and forward",
        r#"
         const s = make({}, { history: true });
         await s.settle();
         s.facts.n = 1;
         await s.settle();
         s.facts.n = 2;
         await s.settle();
         console.log(s.history.snapshots.map((x: any) => x.trigger + x.facts.n).join());
         s.history.goBack();
         console.log(s.facts.n);
         s.history.goBack();
         console.log(s.facts.n);
         s.history.goForward(2);
         console.log(s.facts.n, s.history.currentIndex);
         "#,
        &[
            r#"[log] facts-changed:n0,facts-changed:n1,facts-changed:n2"#,
            r#"[log] 1"#,
            r#"[log] 0"#,
            r#"[log] 2 2"#,
        ],
    ),
    (
        "observers and plugins",
        r#"
         const s: any = createSystem({ module: createModule("m", { schema: { facts: n }, init: (f: any) => { f.n = 0; }, constraints: { c: { when: (f: any) => f.n === 0, require: { type: "A" } } }, resolvers: { r: { requirement: "A", resolve: async (q: any, c: any) => { c.facts.n = 1; } } } } as any), plugins: [{ name: "p", onStart: () => console.log("plugin start"), onFactsBatch: (x: any) => console.log("batch", x.length) } as any] });
         s.observe((e: any) => { if (e.type !== "derivation.compute") console.log(e.type); });
         s.start();
         await s.settle();
         "#,
        &[
            r#"[log] batch 1"#,
            r#"[log] plugin start"#,
            r#"[log] system.start"#,
            r#"[log] system.init"#,
            r#"[log] reconcile.start"#,
            r#"[log] constraint.evaluate"#,
            r#"[log] requirement.created"#,
            r#"[log] resolver.start"#,
            r#"[log] batch 1"#,
            r#"[log] reconcile.end"#,
            r#"[log] reconcile.start"#,
            r#"[log] resolver.complete"#,
            r#"[log] requirement.met"#,
            r#"[log] constraint.evaluate"#,
            r#"[log] reconcile.end"#,
        ],
    ),
    (
        "start, stop, destroy",
        r#"
         const s = make({ hooks: { onStart: () => console.log("on"), onStop: () => console.log("off") } });
         console.log(s.isRunning, s.isSettled);
         s.stop();
         s.start();
         s.destroy();
         s.start();
         console.log(s.isRunning);
         "#,
        &[
            r#"[log] on"#,
            r#"[log] true false"#,
            r#"[log] off"#,
            r#"[log] on"#,
            r#"[log] off"#,
            r#"[warn] [Directive] the system is destroyed and does not start again: create another"#,
            r#"[log] false"#,
        ],
    ),
    (
        "snapshots",
        r#"
         const s = make({ derive: { d: (f: any) => f.n + 1 } });
         const snap = s.getSnapshot();
         s.facts.n = 5;
         s.restore(snap);
         console.log(s.facts.n, JSON.stringify(s.getDistributableSnapshot({ includeFacts: ["n"] }).data));
         "#,
        &[r#"[log] 0 {"d":1,"n":0}"#],
    ),
    (
        "unknown events, facts and modules",
        r#"
         const s = make({});
         s.events.nope();
         console.log("n" in s.facts, "x" in s.facts, Object.keys(s.facts).join(), s.derive.nope);
         for (const o of [{}, { module: undefined }, { modules: [] }] as any) try { createSystem(o); } catch (e: any) { console.log(e.message); }
         "#,
        &[
            r#"[warn] [Directive] Unknown event type "nope"; there are none"#,
            r#"[log] true false n undefined"#,
            r#"[log] [Directive] createSystem requires a module. Got: undefined"#,
            r#"[log] [Directive] createSystem requires a module. Got: undefined"#,
            r#"[log] [Directive] createSystem expects modules as an object, not an array: createSystem({ modules: { name: module } })"#,
        ],
    ),
    (
        "helpers",
        r#"
         console.log(Backoff.Linear, JSON.stringify(req("A")({ x: 1 })), forType("A")({ type: "A" } as any));
         const set = new RequirementSet();
         set.add({ id: "1", requirement: { type: "A" }, fromConstraint: "c" } as any);
         console.log(set.size, set.diff(new RequirementSet()).added.length);
         "#,
        &[r#"[log] linear {"type":"A","x":1} true"#, r#"[log] 1 1"#],
    ),
    (
        "names of facts that are taken",
        r#"
         for (const key of ["self", "prev"]) try { createModule("m", { schema: { facts: { [key]: t.any() } } } as any); } catch (e: any) { console.log(e.message); } try { make({ schema: { facts: { $x: t.any() } } }); } catch (e: any) { console.log(e.message); }
         "#,
        &[
            r#"[log] [Directive] module "m": no fact may be called "self", which is a name for other facts"#,
            r#"[log] [Directive] module "m": no fact may be called "prev", which is a name for other facts"#,
            r#"[log] [Directive] the module "m" has the fact "$x": names with "$" are for $store and $snapshot"#,
        ],
    ),
    (
        "constraints and effects are disabled",
        r#"
         const s = make({ constraints: { c: { when: () => { console.log("when"); return false; }, require: { type: "A" } } }, effects: { e: { run: (f: any) => console.log("effect", f.n) } } });
         s.constraints.disable("c");
         s.effects.disable("e");
         await s.settle();
         console.log(s.constraints.isDisabled("c"), s.effects.isEnabled("e"));
         s.effects.enable("e");
         s.facts.n = 1;
         await s.settle();
         s.constraints.disable("zz");
         "#,
        &[
            r#"[log] true false"#,
            r#"[log] effect 1"#,
            r#"[warn] [Directive] constraints.disable("zz"): there is no such constraint"#,
        ],
    ),
    (
        "a listener that changes what it hears is stopped",
        r#"
         const s = make({});
         s.watch("n", (x: any) => { s.facts.n = x + 1; });
         try { s.facts.n = 1; } catch (e: any) { console.log(e.message); }
         "#,
        &[r#"[log] [Directive] Infinite notification loop: listeners changed facts 100 times"#],
    ),
    (
        "strategies after errors",
        r#"
         let fails = 2;
         const s = make({ constraints: { c: { when: () => true, require: { type: "A" } }, x: { when: () => { throw new Error("bad"); }, require: { type: "B" } } }, resolvers: { r: { requirement: "A", resolve: async () => { console.log("try"); if (fails-- > 0) throw new Error("no"); } } } }, { errorBoundary: { onResolverError: "retry", onConstraintError: "disable" } });
         await s.settle();
         console.log(s.constraints.isDisabled("x"));
         "#,
        &[r#"[log] try"#, r#"[log] try"#, r#"[log] try"#, r#"[log] true"#],
    ),
    (
        "conditions, texts and changes that are data",
        r#"
         const s: any = createSystem({ module: createModule("m", {
           schema: { facts: { phase: t.string(), at: t.number(), label: t.string() } },
           init: (f: any) => { f.phase = "red"; f.at = 0; f.label = "x"; },
           derive: { late: { compute: { at: { $gte: 30 } } }, name: { compute: { $template: "Hi ${label}, $${x}" } } },
           events: { to: { patch: { $set: { phase: { $ref: "value" }, at: 0, label: { $template: "by ${who}" } } } } },
           constraints: { t: { when: { phase: "red", at: { $gte: 30 } }, require: { type: "T", to: "green" } } },
           effects: { e: { on: { phase: { $changed: true }, at: { $lt: 5 } }, run: (f: any) => console.log("effect", f.phase) } },
           resolvers: { t: { requirement: "T", key: ["to"], resolve: async (q: any, c: any) => { c.facts.phase = q.to; c.facts.at = 0; } } },
         } as any) });
         s.observe((e: any) => { if (e.type === "constraint.evaluate") console.log(e.active, e.whenExplain.map((x: any) => x.path + x.op + x.pass).join()); });
         s.start();
         await s.settle();
         console.log(s.derive.late, s.derive.name);
         s.facts.at = 31;
         await s.settle();
         s.events.to({ value: "blue", who: "me" });
         await s.settle();
         console.log(s.facts.label);
         "#,
        &[
            r#"[log] effect red"#,
            r#"[log] false phase$eqtrue,at$gtefalse"#,
            r#"[log] false Hi x, ${x}"#,
            r#"[log] true phase$eqtrue,at$gtetrue"#,
            r#"[log] effect green"#,
            r#"[log] false phase$eqfalse,at$gtefalse"#,
            r#"[log] effect blue"#,
            r#"[log] false phase$eqfalse,at$gtefalse"#,
            r#"[log] by me"#,
        ],
    ),
    (
        "predicates",
        r#"
         const is = (spec: any, facts: any, before?: any) => Number(evaluatePredicate(spec, facts, before));
         console.log(is({ a: 1 }, { a: 1 }), is({ a: { b: 1 } }, { a: { b: 2 } }), is([{ fact: "a", op: "$gt", value: 1 }], { a: 2 }));
         console.log(is({ $any: [{ a: 1 }, { b: { $in: [2] } }] }, { b: 2 }), is({ $not: { a: 1 } }, { a: 1 }), is({ $all: [] }, {}));
         console.log(is({ a: { $between: [1, 3] } }, { a: 3 }), is({ a: { $contains: "x" } }, { a: ["x"] }), is({ a: { $matches: /x/ } }, { a: "axb" }), is({ a: { $exists: false } }, {}));
         console.log(is({ a: { $eq: { b: [1] } } }, { a: { b: [1] } }), is({ a: { $gt: "1" } }, { a: 2 }), is({ a: { $changed: true } }, { a: 1 }, { a: 1 }));
         "#,
        &[r#"[log] 1 0 1"#, r#"[log] 1 0 1"#, r#"[log] 1 1 1 1"#, r#"[log] 1 0 0"#],
    ),
    (
        "what is tried later",
        r#"
         const s = make({ constraints: { c: { when: () => true, require: (f: any) => ({ type: "A", at: f.n }) } }, resolvers: { r: { requirement: "A", resolve: async () => { throw new Error("no"); } } } }, { errorBoundary: { onResolverError: "retry-later", retryLater: { delayMs: 10, maxRetries: 1 } } });
         await s.settle();
         s.facts.n = 1;
         await s.settle();
         s.destroy();
         "#,
        &[r#"[warn] [Directive] the resolver "r" has been tried 1 times later, and is skipped"#],
    ),
    (
        "a circuit breaker",
        r#"
         const b = createCircuitBreaker({ name: "x", failureThreshold: 2, recoveryTimeMs: 1000, onStateChange: (from: any, to: any) => console.log(from, to) });
         for (let at = 0; at < 3; at += 1) await b.execute(async () => { throw new Error("no"); }).catch((e: any) => console.log(e.name));
         console.log(b.getState(), b.isAllowed(), b.getStats().totalRejected);
         b.forceState("HALF_OPEN");
         for (let at = 0; at < 3; at += 1) await b.execute(async () => 1);
         b.reset();
         console.log(b.getStats().totalRequests);
         try { createCircuitBreaker({ failureThreshold: 0 }); } catch (e: any) { console.log(e.message); }
         "#,
        &[
            r#"[log] Error"#,
            r#"[log] CLOSED OPEN"#,
            r#"[log] Error"#,
            r#"[log] CircuitBreakerOpenError"#,
            r#"[log] OPEN false 1"#,
            r#"[log] OPEN HALF_OPEN"#,
            r#"[log] HALF_OPEN CLOSED"#,
            r#"[log] 0"#,
            r#"[log] [Directive CircuitBreaker] failureThreshold must be >= 1, got 0"#,
        ],
    ),
    (
        "plugins that log and measure",
        r#"
         const p = performancePlugin();
         const s = make({ effects: { e: { run: (f: any) => f.n } } }, { plugins: [loggingPlugin(), p, devtoolsPlugin({ name: "x" })] });
         await s.settle();
         s.facts.n = 1;
         await s.settle();
         const { effects, reconcile } = p.getSnapshot();
         console.log(effects.e.runs, reconcile.runs);
         s.destroy();
         "#,
        &[r#"[log] [Directive] start"#, r#"[log] 2 2"#, r#"[log] [Directive] stop"#],
    ),
];

#[test]
fn programs_print_what_they_print_with_the_package() {
    let library = built_in();
    for (name, source, logs) in CASES {
        let file =
            SourceFile { path: "src/main.ts".to_owned(), source: format!("{START}{source}") };
        let input = Input { files: Some(vec![file]), ..Input::default() };
        let transcript = execute(input, &Imports::default(), &library);
        // A derivation that fails does so too when it is reported at the end.
        let failed: Vec<_> =
            transcript.errors.iter().filter(|error| !error.starts_with("derivation ")).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        assert_eq!(transcript.logs, *logs, "{name}");
    }
}
