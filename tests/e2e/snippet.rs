//! `stockade snippet`: what a snippet did is told, and it was done behind walls.

use serde_json::json;

use crate::harness::World;

const COUNTER: &str = "import { createModule, createSystem, t } from \"@directive-run/core\";\n\
    const counter = createModule(\"counter\", {\n\
      schema: { facts: { count: t.number() } },\n\
      init: (facts) => { facts.count = 0; },\n\
      derive: { isPositive: (facts) => facts.count > 0 },\n\
      events: { bump: (facts) => { facts.count += 1; } },\n\
    });\n\
    const system = createSystem({ module: counter });\n\
    system.start(); system.events.bump(); system.events.bump(); await system.settle();\n\
    console.log(\"count =\", system.facts.count);\n";

fn answers_with_a_transcript(world: &World) {
    let file = world.write("counter.ts", COUNTER);
    let outcome = world.stockade(&["snippet", "run", "--json", file.to_str().unwrap()]).finish();
    outcome.succeeds();
    let transcript = outcome.json();
    assert_eq!(transcript["logs"], json!(["[log] count = 2"]), "{transcript}");
    assert_eq!(transcript["facts"], json!({"count": 2}));
    assert_eq!(transcript["derived"], json!({"isPositive": true}));
    assert_eq!(transcript["errors"], json!([]));
}

fn takes_a_directory(world: &World) {
    world.write("demo/main.ts", "import { two } from \"./lib/two.js\"; console.log(two);");
    world.write("demo/lib/two.ts", "export const two: number = 2;");
    let outcome = world.stockade(&["snippet", "run", "demo"]).finish();
    outcome.succeeds();
    assert!(outcome.stdout.starts_with("[log] 2\n"), "{outcome}");
}

fn ends_in_time_with_what_was_written(world: &World) {
    let file = world.write("main.ts", "console.log(\"before\");\nfor (;;) {}\n");
    let file = file.to_str().unwrap();
    let outcome =
        world.stockade(&["snippet", "run", "--json", "--timeout-ms", "300", file]).finish();
    outcome.ends_with(1);
    let transcript = outcome.json();
    assert_eq!(transcript["timedOut"], json!(true), "{transcript}");
    assert_eq!(transcript["logs"], json!(["[log] before"]));
    assert_eq!(transcript["errors"], json!(["wall-clock budget of 300ms elapsed"]));
}

fn survives_what_takes_its_worker_down(world: &World) {
    // Deeper than the stack on which files are read.
    let file = world.write("main.ts", "(".repeat(199_000));
    let outcome = world.stockade(&["snippet", "run", "--json", file.to_str().unwrap()]).finish();
    outcome.ends_with(1);
    let code = outcome.json()["errorCode"].clone();
    assert!(code == "worker-error" || code == "validation-failed", "{outcome}");
}

fn tells_what_a_snippet_may_not_say(world: &World) {
    let file = world.write("main.ts", "const a = 1;\nconsole.log(process.env, a);\n");
    let outcome = world.stockade(&["snippet", "check", file.to_str().unwrap()]).finish();
    outcome.ends_with(1);
    assert!(outcome.stdout.contains("main.ts:2:13 — identifier \"process\""), "{outcome}");
}

as_root_and_as_user![
    answers_with_a_transcript,
    takes_a_directory,
    ends_in_time_with_what_was_written,
    survives_what_takes_its_worker_down,
    tells_what_a_snippet_may_not_say,
];
