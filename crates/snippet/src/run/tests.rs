//! Runs of snippets with the built-in library set.

use serde_json::json;

use super::*;
use crate::library::built_in;
use stockade_script::SourceFile;

fn run_files(files: &[(&str, &str)]) -> Transcript {
    let file = |(path, source): &(&str, &str)| SourceFile {
        path: (*path).to_owned(),
        source: (*source).to_owned(),
    };
    let files = Some(files.iter().map(file).collect());
    let input = Input { files, timeout_ms: Some(10_000.0), ..Input::default() };
    execute(input, &Imports::default(), &built_in())
}

fn run_one(source: &str) -> Transcript {
    run_files(&[("src/main.ts", source)])
}

const COUNTER: &str = "import { createModule, createSystem, t } from \"@directive-run/core\";\n\
    const counter = createModule(\"counter\", {\n\
      schema: { facts: { count: t.number().min(0), name: t.string().nullable() } },\n\
      init: (facts) => { facts.count = 0; facts.name = null; },\n\
      derive: { doubled: (f) => f.count * 2, isBig: (_f, d) => d.doubled > 4 },\n\
      events: { add: (facts, { by = 1 }) => { facts.count += by; } },\n\
      constraints: { named: { when: (f) => f.count > 2 && f.name === null,\n\
        require: { type: \"NAME\", length: 3 } } },\n\
      resolvers: { name: { requirement: \"NAME\", retry: { attempts: 2 },\n\
        resolve: async (req, { facts }) => { facts.name = \"x\".repeat(req.length); } } },\n\
    });\n";

#[test]
fn constraints_are_met_and_derivations_follow() {
    let transcript = run_one(&format!(
        "{COUNTER}const mine = createSystem({{ module: counter }});\n\
         mine.watch(\"count\", (now, before) => console.log(before, \"->\", now));\n\
         mine.start(); mine.events.add({{ by: 3 }}); await mine.settle();\n\
         console.log(mine.facts.name, mine.read(\"doubled\"), mine.isSettled);\n\
         mine.destroy();"
    ));
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(transcript.logs, ["[log] undefined -> 0", "[log] 0 -> 3", "[log] xxx 6 true"]);
    assert_eq!(Value::Object(transcript.facts), json!({"count": 3, "name": "xxx"}));
    assert_eq!(Value::Object(transcript.derived), json!({"doubled": 6, "isBig": true}));
    assert!(transcript.warnings[0].contains("built into"), "{:?}", transcript.warnings);
}

#[test]
fn what_the_core_lacks_is_refused_by_name() {
    for (part, name) in [
        ("derive: { big: 5 }", "\"big\" in `derive` that is neither a function nor data"),
        (
            "events: { go: { nothing: 1 } }",
            "\"go\" in `events` that is neither a function nor a patch",
        ),
        (
            "constraints: { c: { when: () => false, require: { type: \"A\" }, abortOn: [\"d\"] } }",
            "`abortOn` of the constraint \"c\"",
        ),
        ("sources: { s: { attach() {} } }", "`sources` of a module"),
    ] {
        let transcript = run_one(&format!(
            "import {{ createModule, t }} from \"@directive-run/core\";\n\
             t.string(); createModule(\"m\", {{ {part} }});"
        ));
        let errors = transcript.errors.join("\n");
        assert!(errors.contains(&format!("{name} is not in the core library")), "{part}: {errors}");
    }
}

#[test]
fn several_systems_and_modules_are_told_by_name() {
    let transcript = run_one(&format!(
        "{COUNTER}const a = createSystem({{ modules: {{ one: counter, two: counter }} }});\n\
         const b = createSystem({{ module: counter, initialFacts: {{ count: 7 }} }});\n\
         a.start(); b.start(); a.events.two.add({{}}); await a.settle(); await b.settle();"
    ));
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(
        Value::Object(transcript.facts),
        json!({
            "one+two": {"one": {"count": 0, "name": null}, "two": {"count": 1, "name": null}},
            "counter": {"count": 7, "name": "xxx"},
        })
    );
    assert_eq!(transcript.derived["one+two"]["two"], json!({"doubled": 2, "isBig": false}));
}

#[test]
fn facts_survive_what_ends_a_run() {
    let source = format!(
        "{COUNTER}const s = createSystem({{ module: counter }}); s.start(); s.events.add({{}});\n"
    );
    let ends = [
        ("for (;;) {}", ErrorCode::Timeout, 500.0),
        ("await new Promise(() => {});", ErrorCode::NeverSettles, 10_000.0),
        ("const a = []; for (;;) a.push(new Uint8Array(1e6));", ErrorCode::OutOfMemory, 10_000.0),
        ("throw new Error(\"x\");", ErrorCode::RuntimeError, 10_000.0),
    ];
    for (end, code, timeout) in ends {
        let source = format!("{source}{end}");
        let input = Input { source: Some(source), timeout_ms: Some(timeout), ..Input::default() };
        let (imports, library) = (Imports::default(), built_in());
        let transcript = execute(input, &imports, &library);
        assert_eq!(transcript.error_code, Some(code), "{end}: {:?}", transcript.errors);
        assert_eq!(transcript.facts.get("count"), Some(&json!(1)), "{end}: {transcript:?}");
    }
}

#[test]
fn what_a_system_lacks_is_refused_by_name() {
    for (use_of_it, name) in [
        ("s.explain(\"A:{}\");", "system.explain()"),
        ("s.registerModule(m);", "system.registerModule()"),
        ("s.constraints.register(\"c\", {});", "system.constraints.register()"),
        ("s.derive.assign(\"d\", () => 1);", "system.derive.assign()"),
        ("s.meta.byTag(\"x\");", "system.meta"),
        ("predict({}, {});", "predict"),
        ("doctor.checkAgainst({}, []);", "doctor"),
        ("persistencePlugin();", "persistencePlugin()"),
        ("createSystem({ module: m, other: 1 } as any);", "the option `other` of createSystem()"),
    ] {
        let transcript = run_one(&format!(
            "import {{ createModule, createSystem, doctor as d, predict as p, t }} from \"@directive-run/core\";\n\
             import {{ persistencePlugin as q }} from \"@directive-run/core/plugins\";\n\
             const [doctor, predict, persistencePlugin]: any[] = [d, p, q];\n\
             const m: any = createModule(\"m\", {{ schema: {{ facts: {{ n: t.number() }} }} }} as any);\n\
             const s: any = createSystem({{ module: m }}); s.start(); {use_of_it}"
        ));
        let errors = transcript.errors.join("\n");
        assert!(
            errors.contains(&format!("{name} is not in the core library")),
            "{use_of_it}: {errors}"
        );
    }
    let part = run_one("import \"@directive-run/core/testing\";");
    assert!(
        part.errors[0].contains("@directive-run/core/testing is not in the core library"),
        "{part:?}"
    );
}

#[test]
fn what_a_snippet_does_to_built_ins_changes_no_fact() {
    for change in [
        "Object.keys = () => [\"forged\"]; Object.fromEntries = () => ({ count: 9 });",
        "Map.prototype.get = () => 9; (Map.prototype as any)[Symbol.iterator] = function* () {};",
        "Object.defineProperty(Object.prototype, \"count\", { set() {}, configurable: true });",
        "(Array.prototype as any)[Symbol.iterator] = function* () { yield 9; };",
    ] {
        let transcript = run_one(&format!(
            "{COUNTER}const s: any = createSystem({{ module: counter }}); s.start(); await s.settle(); {change}"
        ));
        assert_eq!(transcript.errors, [""; 0], "{change}");
        let facts = Value::Object(transcript.facts);
        assert_eq!(facts, json!({"count": 0, "name": null}), "{change}");
    }
    let halves = run_one(&format!(
        "{COUNTER}const s: any = createSystem({{ module: counter }}); s.start(); s.facts.name = \"\\ud800\";"
    ));
    assert_eq!(halves.errors, [""; 0]);
    assert_eq!(halves.facts["name"], json!("\u{fffd}"));
}

#[test]
fn a_lack_of_memory_is_told_as_such() {
    for source in [
        "const a: any[] = []; function* g() { yield new Array(100); } for (;;) { const i = g(); i.next(); a.push(i); }",
        "let p: any = {}; for (;;) p = new Proxy(p, {});",
        "let p: any = Promise.resolve(); for (;;) p = p.then(() => 1);",
    ] {
        let input = Input {
            source: Some(source.to_owned()),
            timeout_ms: Some(2_000.0),
            ..Input::default()
        };
        let transcript = execute(input, &Imports::default(), &built_in());
        assert_eq!(transcript.error_code, Some(ErrorCode::OutOfMemory), "{source}: {transcript:?}");
    }
}

#[test]
fn a_package_that_the_set_lacks_is_told() {
    let transcript = run_one("import { useFact } from \"@directive-run/react\"; useFact();");
    assert_eq!(transcript.phase, Phase::Bundle);
    assert!(transcript.errors[0].ends_with("has only @directive-run/core"), "{transcript:?}");
}

#[test]
fn errors_name_the_files_of_the_snippet() {
    let transcript = run_files(&[
        ("src/main.ts", "import { f } from \"./lib/f.js\";\n\nf();\n"),
        ("src/lib/f.ts", "type T = 1;\nexport const f = () => { null!.x; };\n"),
    ]);
    let error = &transcript.errors[0];
    assert!(error.contains("src/lib/f.ts:2:") && error.contains("src/main.ts:3:"), "{error}");
}
