//! Cases that the reference does not cover: attempts to bypass the rules, and code that is not one.

use super::*;

fn faults(source: &str) -> Vec<String> {
    let file = SourceFile { path: "src/main.ts".to_owned(), source: source.to_owned() };
    let faults = check_file(&file, &Imports::default()).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn names_are_judged_by_scope() {
    for source in [
        "const xs = [{ name: 1 }]; console.log(xs.map((module) => module.name));",
        "interface Wide { module: string; process(): void } export type { Wide };",
        "class A { process = 1; fetch() { return 2; } } console.log(new A());",
        "function f(require: number) { const eval2 = require; return eval2; } f(1);",
        "const o = { process: 1, constructor: 2, \"fetch\": 3 }; console.log(o);",
        "class A { constructor() { console.log(arguments.length); } } new A();",
        "process: for (;;) { break process; }",
        "const process = { env: 1 }; console.log(process);",
        "import { fetch } from \"./mine.js\"; fetch();",
        "enum Kind { A, B } console.log(Kind.A, globalThis.Math.max(1, 2));",
        "try { throw 1; } catch (module) { console.log(module); }",
    ] {
        assert_eq!(faults(source), [""; 0], "{source}");
    }
    assert_eq!(
        faults("{ const process = 1; console.log(process); }\nconsole.log(process);"),
        ["src/main.ts:2:13 — identifier \"process\" is denied in the sandbox (FS/network/eval \
          surface)"]
    );
}

#[test]
fn elements_need_a_function_or_a_library() {
    let check = |source: &str, imports: &Imports| {
        let file = SourceFile { path: "view.tsx".to_owned(), source: source.to_owned() };
        check_file(&file, imports).err().unwrap_or_default()
    };
    let faults = check("console.log(<b />);", &Imports::default());
    assert!(faults[0].message.contains("/** @jsx NAME */"), "{faults:?}");
    let react = Imports { packages: vec!["react".to_owned()], ..Imports::default() };
    assert_eq!(check("console.log(<b />);", &react), []);
    let own = "/** @jsx h */\nconst h = (name: string) => name;\nconsole.log(<b />);";
    assert_eq!(check(own, &Imports::default()), []);
}

#[test]
fn a_name_declared_nowhere_is_refused() {
    for name in ["BroadcastChannel", "WebAssembly", "Worker", "window", "self", "global", "exports"]
    {
        let expected =
            format!("src/main.ts:1:13 — identifier \"{name}\" is not available in the sandbox");
        assert_eq!(faults(&format!("console.log({name});")), [expected]);
    }
}

#[test]
fn declarations_for_the_compiler_declare_nothing() {
    for source in [
        "declare const process: any; console.log(process.env);",
        "declare function fetch(u: string): any; fetch(\"x\");",
        "declare class Buffer { static alloc(n: number): any } Buffer.alloc(1);",
        "declare namespace process { const env: any } console.log(process.env);",
        "declare global { var process: any } console.log(process);",
        "declare enum process { A } console.log(process.A);",
        "import type { process } from \"./a.js\"; console.log(process);",
        "import { type process } from \"./a.js\"; console.log(process);",
        "interface process {} console.log(process);",
        "type eval = string; eval(\"1\");",
        "export declare let require: any; require(\"fs\");",
    ] {
        assert!(!faults(source).is_empty(), "{source}");
    }
}

#[test]
fn no_spelling_reaches_a_denied_name() {
    for source in [
        "const { constructor: F } = (() => {}) as any; F(\"\")();",
        "const { [\"proc\" + \"ess\"]: p } = globalThis as any; console.log(p);",
        "let F: any; ({ constructor: F } = (() => {}) as any);",
        "let constructor: any; ({ constructor } = {} as any);",
        "const key = `con${\"struct\"}or`; console.log(({} as any)[key]);",
        "const a = \"const\", b = a + \"ructor\"; console.log(([] as any)[b]);",
        "console.log(({} as any)[(1, \"constructor\")]);",
        "console.log(({} as any)?.[\"constructor\"], ({} as any)?.constructor);",
        "const g = globalThis; console.log((g as any)[\"x\"]);",
        "console.log((globalThis as any)[[\"proc\", \"ess\"].join(\"\")]);",
        "const p = Reflect.get(globalThis, \"proc\" + \"ess\"); console.log(p);",
        "console.log(Object.getOwnPropertyDescriptors(globalThis));",
        "console.log(Object.keys(globalThis), \"process\" in globalThis);",
        "const F = Reflect.get(async () => {}, \"constructor\"); F(\"\");",
        "console.log(globalThis.globalThis);",
        "console.log((globalThis as any)!.process, (globalThis satisfies any).fetch);",
        "console.log(\\u0070rocess);",
        "console.log(import.meta.url);",
        "await import(\"./a.js\");",
        "export { readFileSync } from \"node:fs\";",
        "export * from \"node:fs\";",
        "import { type Stats, readFileSync } from \"node:fs\"; readFileSync(\"x\");",
        "import {} from \"node:fs\";",
        "export { type Stats, readFileSync } from \"node:fs\";",
        "export {} from \"node:fs\";",
        "import fs = require(\"node:fs\"); fs.x();",
        "const o = { process }; console.log(o);",
        "console.log(`${process}`, typeof require);",
        "Function(\"return 1\")();",
        "globalThis.fetch = 1 as any;",
    ] {
        assert!(!faults(source).is_empty(), "{source}");
    }
}

// The compiler removes these imports: no module is loaded.
#[test]
fn imports_of_types_only_are_accepted() {
    for source in [
        "import type { Stats } from \"node:fs\"; export type { Stats };",
        "import { type Stats } from \"node:fs\"; const a: Stats | null = null; console.log(a);",
        "export type { Stats } from \"node:fs\";",
        "export type * from \"node:fs\";",
    ] {
        assert_eq!(faults(source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn syntax_that_the_engine_lacks_is_refused_by_name() {
    let decorated =
        faults("function d(v: any) {}\n@d class A { @d m() {} accessor x = 1; }\nnew A();");
    let expected = [
        "src/main.ts:2:1 — decorators are not available in the sandbox",
        "src/main.ts:2:14 — decorators are not available in the sandbox",
        "src/main.ts:2:24 — `accessor` is not available in the sandbox",
    ];
    assert_eq!(decorated, expected);
}

#[test]
fn syntax_that_is_wrong_has_its_place() {
    assert!(faults("const a = ;\n")[0].starts_with("src/main.ts:1:11 — "));
    assert!(faults("const a = 1;\nconst a = 2;\n")[0].starts_with("src/main.ts:2:7 — "));
    assert!(faults("const a = 1;\nconst b = `\0`;\n")[0].starts_with("src/main.ts:2:12 — "));
}
