//! `stockade snippet`: the effects of a snippet are reported, and it runs in a jail.

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
    // Nested more deeply than the stack with which files are parsed allows.
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

fn takes_the_standard_input(world: &World) {
    let outcome =
        world.stockade(&["snippet", "run", "-"]).input("console.log(1 as number);").finish();
    outcome.succeeds();
    assert!(outcome.stdout.starts_with("[log] 1\n"), "{outcome}");
    let outcome = world.stockade(&["snippet", "check", "-", "--json"]).input("process;").finish();
    outcome.ends_with(1);
    assert_eq!(outcome.json()["errors"][0]["path"], "input.ts");
}

fn checks_every_file_of_a_directory(world: &World) {
    for number in 0..30 {
        world.write(&format!("many/{number:02}.ts"), "export const a = 1;");
    }
    world.write("many/last/wrong.ts", "process.exit();");
    let outcome = world.stockade(&["snippet", "check", "many"]).finish();
    outcome.ends_with(1);
    assert!(outcome.stdout.starts_with("many/last/wrong.ts:1:1 — "), "{outcome}");
    let nothing = world.stockade(&["snippet", "check", "src/deep"]).finish();
    nothing.ends_with(2);
}

/// A package of one module, and one that works only in Node.js.
fn plant_packages(world: &World) {
    world.write(
        "node_modules/greet/package.json",
        "{\"name\": \"greet\", \"version\": \"2.1.0\", \"exports\": {\"import\": \"./es.mjs\"}}",
    );
    world.write("node_modules/greet/es.mjs", "export const greet = (who) => `hello ${who}`;");
    world.write("node_modules/old/package.json", "{\"main\": \"old.js\"}");
    world.write("node_modules/old/old.js", "module.exports = 1;");
    world.write("main.ts", "import { greet } from \"greet\"; console.log(greet(\"you\"));");
}

fn imports_packages_of_a_directory(world: &World) {
    plant_packages(world);
    let flags = ["--libraries", "node_modules", "--package", "greet", "--package", "old"];
    let run = |file: &str, json: &[&str]| {
        let arguments = [&["snippet", "run"], json, &flags, &[file]].concat();
        world.stockade(&arguments).finish()
    };
    let outcome = run("main.ts", &["--json"]);
    outcome.succeeds();
    let transcript = outcome.json();
    assert_eq!(transcript["logs"], json!(["[log] hello you"]), "{transcript}");
    let used = json!([{"name": "greet", "version": "2.1.0", "builtIn": false}]);
    assert_eq!(transcript["libraries"], used);
    assert!(run("main.ts", &[]).stdout.contains("\nlibrary: greet 2.1.0\n"));

    world.write("old.ts", "import old from \"old\"; old;");
    let outcome = run("old.ts", &[]);
    outcome.ends_with(1);
    assert!(outcome.stdout.contains("old/old.js is a CommonJS module"), "{outcome}");

    let outcome = world.stockade(&["snippet", "run", "main.ts"]).finish();
    outcome.ends_with(1);
    assert!(outcome.stdout.contains("import \"greet\" is not allowed"), "{outcome}");

    let absent = ["snippet", "run", "--libraries", "node_modules", "--package", "none", "main.ts"];
    let outcome = world.stockade(&absent).finish();
    outcome.ends_with(1);
    assert!(outcome.stderr.contains("none is not installed [LIBRARY_UNAVAILABLE]"), "{outcome}");
}

fn takes_packages_from_the_environment(world: &World) {
    plant_packages(world);
    let outcome = world
        .stockade(&["snippet", "run", "main.ts"])
        .env("STOCKADE_LIBRARIES", "node_modules")
        .env("STOCKADE_PACKAGES", "greet, old")
        .finish();
    outcome.succeeds();
    assert!(outcome.stdout.starts_with("[log] hello you\n"), "{outcome}");
}

const GUIDE: &str = "# Guide\n\n```ts\nconsole.log(\"fine\");\n```\n\n- item\n\n  ```js\n  let a = 1;\n  \
                     a.b.c;\n  ```\n\n```ts skip\nprocess.exit();\n```\n\n```sh\nls\n```\n";
const SEVERAL: &str = "```ts file=src/two.ts\nexport const two = 2;\n```\n\n```ts file=src/main.ts\n\
                       import { two } from \"./two.js\";\nconsole.log(two);\n```\n";

fn gates_documents(world: &World) {
    world.write("docs/guide.md", GUIDE);
    world.write("docs/more/several.md", SEVERAL);
    world.write("docs/node_modules/other.md", "```ts\nprocess;\n```\n");
    let gate = ["snippet", "gate", "docs", "--junit", "report.xml"];
    let outcome = world.stockade(&gate).finish();
    outcome.ends_with(1);
    assert!(outcome.stdout.contains("passed  docs/guide.md:3\n"), "{outcome}");
    assert!(outcome.stdout.contains("failed  docs/guide.md:9\n"), "{outcome}");
    assert!(outcome.stdout.contains("skipped docs/guide.md:14\n"), "{outcome}");
    assert!(outcome.stdout.contains("passed  docs/more/several.md:1\n"), "{outcome}");
    // The location in the document, not in the block.
    assert!(
        outcome.stdout.contains("(docs/guide.md:11:")
            || outcome.stdout.contains(" docs/guide.md:11:"),
        "{outcome}"
    );
    assert!(outcome.stdout.ends_with("2 passed, 1 failed, 1 skipped\n"), "{outcome}");
    let report = world.read("report.xml");
    assert!(
        report.contains("<testsuites tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\""),
        "{report}"
    );
    assert!(report.contains("type=\"runtime-error\""), "{report}");

    let outcome = world.stockade(&["snippet", "gate", "--json", "docs/more"]).finish();
    outcome.succeeds();
    let report = outcome.json();
    assert_eq!(report["passed"], json!(1));
    assert_eq!(report["examples"][0]["transcript"]["logs"], json!(["[log] 2"]));
}

fn a_gate_without_examples_is_shut(world: &World) {
    world.write("docs/empty.md", "# Nothing\n\n```ts skip\nprocess;\n```\n");
    let outcome = world.stockade(&["snippet", "gate", "docs"]).finish();
    outcome.ends_with(2);
    assert!(outcome.stderr.contains("no example to run"), "{outcome}");
    world.stockade(&["snippet", "gate", "--allow-empty", "docs"]).finish().succeeds();
    world.stockade(&["snippet", "gate", "nowhere.md"]).finish().ends_with(2);
}

fn lets_packages_fetch_from_the_hosts_that_are_named(world: &World) {
    world.write("node_modules/get/package.json", "{\"exports\": \"./get.mjs\"}");
    world.write("node_modules/get/get.mjs", "export const get = (url) => fetch(url);");
    world.write(
        "main.ts",
        "import { get } from \"get\";\n\
         try { await get(\"http://example.com/\"); } catch (e) { console.log(e.message); }\n",
    );
    let arguments = ["--libraries", "node_modules", "--package", "get", "main.ts"];
    let run = |more: &[&str]| world.stockade(&[&["snippet", "run"], more, &arguments].concat());
    let refused = "[log] sandbox: outbound fetch blocked — hostname \"example.com\" is not allowed";
    for hosts in ["none", "example.org,*.example.org"] {
        let outcome = run(&["--fetch", hosts]).finish();
        outcome.succeeds();
        assert!(outcome.stdout.starts_with(refused), "{outcome}");
    }
    let outcome = run(&[]).env("STOCKADE_FETCH", "none").finish();
    assert!(outcome.stdout.starts_with(refused), "{outcome}");
    run(&["--fetch", "everywhere and nowhere"]).finish().ends_with(2);
}

fn says_that_inside_a_sandbox_it_has_the_walls_that_are_left(world: &World) {
    for name in ["stockade", "stockade-server"] {
        std::fs::copy(stockade_test_support::program(name), world.project.join(name)).unwrap();
    }
    world.write("main.ts", COUNTER);
    let snippet = ["./stockade", "snippet", "run", "--json", "main.ts"];
    let outcome = world.stockade(&[&["run", "--"][..], &snippet].concat()).finish();
    outcome.succeeds();
    let transcript = outcome.json();
    assert_eq!(transcript["facts"], json!({"count": 2}), "{transcript}");
    assert!(transcript["warnings"].to_string().contains("no namespaces"), "{transcript}");
}

as_root_and_as_user![
    lets_packages_fetch_from_the_hosts_that_are_named,
    says_that_inside_a_sandbox_it_has_the_walls_that_are_left,
    answers_with_a_transcript,
    takes_a_directory,
    ends_in_time_with_what_was_written,
    survives_what_takes_its_worker_down,
    tells_what_a_snippet_may_not_say,
    takes_the_standard_input,
    checks_every_file_of_a_directory,
    imports_packages_of_a_directory,
    takes_packages_from_the_environment,
    gates_documents,
    a_gate_without_examples_is_shut,
];
