//! Library sets from directories: which packages are found, which are omitted, and how they run.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use stockade_script::LibrarySet;
use tempfile::TempDir;

use super::{Error, Selection, built_in, import_scan, load_installed};
use crate::imports::Imports;
use crate::payload::Input;
use crate::run::execute;
use crate::transcript::{ErrorCode, Transcript};

/// A `node_modules` directory with these files.
fn packages(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn imports(packages: &[&str]) -> Imports {
    let packages = packages.iter().map(ToString::to_string).collect();
    Imports { packages, ..Imports::default() }
}

fn set(directory: &TempDir, names: &[&str]) -> Result<LibrarySet, Error> {
    load_installed(directory.path(), &imports(names), Selection::All)
}

fn run(directory: &TempDir, names: &[&str], source: &str) -> Transcript {
    let input = Input { source: Some(source.to_owned()), ..Input::default() };
    execute(input, &imports(names), &set(directory, names).unwrap())
}

/// The output lines of a snippet that succeeds.
fn lines(directory: &TempDir, names: &[&str], source: &str) -> Vec<String> {
    let transcript = run(directory, names, source);
    assert_eq!(transcript.errors, [""; 0]);
    transcript.logs
}

#[test]
fn packages_import_their_own_files_and_each_other() {
    let directory = packages(&[
        (
            "a/package.json",
            "{\"name\": \"a\", \"version\": \"1.2.3\", \"type\": \"module\", \"imports\": \
             {\"#inner\": \"./lib/inner.js\"}, \"exports\": {\".\": {\"types\": \"./a.d.ts\", \
             \"import\": \"./lib/a.js\", \"require\": \"./a.cjs\"}, \"./extra\": \"./lib/extra.js\"}}",
        ),
        (
            "a/lib/a.js",
            "import b, { two } from \"b/two\"; import { inner } from \"#inner\";\n\
                        export const sum = b + two + inner;\nexport default () => sum;",
        ),
        ("a/lib/inner.js", "import data from \"../data.json\"; export const inner = data.n;"),
        (
            "a/lib/extra.js",
            "import * as a from \"a\"; export const extra = a.sum * 10;\n\
                            export const lazily = () => import(\"./lazy.js\");",
        ),
        ("a/lib/lazy.js", "export const lazy = \"late\";"),
        ("a/data.json", "{\"n\": 300}"),
        ("a/node_modules/b/package.json", "{\"main\": \"./none.js\"}"),
        ("a/node_modules/b/two.mjs", "export const two = 20; export default 1;"),
        ("b/package.json", "{\"version\": \"9.0.0\"}"),
        ("b/two.mjs", "export const two = 0; export default 0;"),
    ]);
    let source = "import call, { sum } from \"a\"; import { extra, lazily } from \"a/extra\";\n\
                  console.log(sum, call(), extra, (await lazily()).lazy);";
    let transcript = run(&directory, &["a"], source);
    assert_eq!(transcript.logs, ["[log] 321 321 3210 late"], "{transcript:?}");
    assert_eq!(
        json!(transcript.libraries),
        json!([{"name": "a", "version": "1.2.3", "builtIn": false}])
    );
    assert_eq!(transcript.warnings, [""; 0]);
}

#[test]
fn links_within_the_directory_are_followed() {
    let store = ".pnpm/a@1.0.0/node_modules";
    let directory = packages(&[
        (&format!("{store}/a/package.json"), "{\"version\": \"1.0.0\", \"module\": \"index.js\"}"),
        (&format!("{store}/a/index.js"), "export { b as a } from \"b\";"),
        (".pnpm/b@2.0.0/node_modules/b/package.json", "{\"exports\": \"./b.mjs\"}"),
        (".pnpm/b@2.0.0/node_modules/b/b.mjs", "export const b = \"linked\";"),
    ]);
    symlink(".pnpm/a@1.0.0/node_modules/a", directory.path().join("a")).unwrap();
    symlink("../../b@2.0.0/node_modules/b", directory.path().join(store).join("b")).unwrap();
    assert_eq!(
        lines(&directory, &["a"], "import { a } from \"a\"; console.log(a);"),
        ["[log] linked"]
    );

    let outside = packages(&[("c/package.json", "{}"), ("c/index.js", "export const c = 1;")]);
    symlink(outside.path().join("c"), directory.path().join("c")).unwrap();
    assert!(matches!(set(&directory, &["a", "c"]), Err(Error::OutsideDirectory(_))));
}

#[test]
fn what_cannot_be_had_is_told_when_it_is_imported() {
    let directory = packages(&[
        ("old/package.json", "{\"main\": \"main.js\"}"),
        ("old/main.js", "module.exports = require(\"fs\");"),
        ("node/package.json", "{\"type\": \"module\", \"exports\": \"./index.js\"}"),
        ("node/index.js", "import \"node:fs\";"),
        (
            "needs/package.json",
            "{\"type\": \"module\", \"exports\": {\".\": \"./a.js\", \
                                \"./fine\": \"./fine.js\", \"./gone\": \"./gone.js\"}}",
        ),
        ("needs/a.js", "export * from \"./b.js\";"),
        ("needs/b.js", "import \"react\";"),
        ("needs/fine.js", "export const fine = 1;"),
        ("wrong/package.json", "{\"type\": \"module\"}"),
        ("wrong/index.js", "let = ;"),
    ]);
    let names = ["old", "node", "needs", "wrong"];
    for (specifier, why) in [
        ("old", "old/main.js is a CommonJS module"),
        ("node", "node/index.js imports \"node:fs\", a part of Node.js"),
        ("needs", "needs/b.js imports \"react\", which is not installed"),
        ("needs/gone", "needs/gone.js does not exist"),
        ("wrong", "wrong/index.js:1:"),
        ("needs/b.js", "the library set has only needs/fine"),
    ] {
        let transcript = run(&directory, &names, &format!("import \"{specifier}\";"));
        assert_eq!(transcript.error_code, Some(ErrorCode::BundleFailed), "{specifier}");
        assert!(transcript.errors[0].contains(why), "{specifier}: {transcript:?}");
    }
    let fine = "import { fine } from \"needs/fine\"; console.log(fine);";
    assert_eq!(lines(&directory, &names, fine), ["[log] 1"]);
}

#[test]
fn only_what_is_wanted_is_read() {
    let directory = packages(&[
        (
            "a/package.json",
            "{\"type\": \"module\", \"exports\": {\".\": \"./a.js\", \"./*\": \"./parts/*.js\"}}",
        ),
        ("a/a.js", "export const all = 1;"),
        ("a/parts/one.js", "export const one = 1;"),
        ("b/package.json", "{\"type\": \"module\"}"),
        ("b/index.js", "let = ;"),
    ]);
    let set = |names: &[&str], source: &str| {
        let mut wanted = Default::default();
        import_scan::imports(source, &mut wanted);
        load_installed(directory.path(), &imports(names), Selection::Imports(&wanted)).unwrap()
    };
    let exported =
        |set: &LibrarySet| set.exported_specifiers().map(ToOwned::to_owned).collect::<Vec<_>>();
    let one =
        set(&["a", "b"], "import \"a/one\"; import \"a/none\"; import \"@directive-run/ai\";");
    assert_eq!(exported(&one), ["a/one", "@directive-run/core", "@directive-run/core/plugins"]);
    assert_eq!(one.absent["a/none"], "a/parts/none.js does not exist");
    assert_eq!(one.absent["@directive-run/ai"], "@directive-run/ai is not installed");
    assert_eq!(one.packages.len(), 2);
    // A subpath that is allowed by name is available without a request, and its siblings may not be
    // imported.
    let all = load_installed(directory.path(), &imports(&["a/one"]), Selection::All).unwrap();
    assert_eq!(exported(&all), ["a/one", "@directive-run/core", "@directive-run/core/plugins"]);
    assert!(imports(&["a/one"]).refusal("a").is_some());
    assert_eq!(
        exported(&set(&["a", "a/one"], "\"a/one\"")),
        ["a/one", "@directive-run/core", "@directive-run/core/plugins"]
    );
    assert_eq!(exported(&set(&["a/one"], "import \"a\"; import \"b\"")), exported(&built_in()));
}

#[test]
fn a_directory_without_what_is_asked_for_is_refused() {
    let directory = packages(&[("a/package.json", "{}"), ("bad/package.json", "[")]);
    let error = |names: &[&str]| set(&directory, names).unwrap_err().to_string();
    assert_eq!(error(&["zod"]), "zod is not installed");
    assert!(error(&[]).ends_with("has none of the packages that snippets may import"));
    assert!(error(&["bad"]).starts_with("bad/package.json is invalid"));
    let nowhere = directory.path().join("nowhere");
    assert!(matches!(
        load_installed(&nowhere, &imports(&[]), Selection::All),
        Err(Error::Open(..))
    ));
}

#[test]
fn the_small_core_stands_in_where_there_is_none() {
    let directory = packages(&[("a/package.json", "{\"type\": \"module\"}"), ("a/index.js", "")]);
    let source = "import { createModule, createSystem } from \"@directive-run/core\";\n\
                  const s = createSystem({ module: createModule(\"m\", { schema: { facts: {} }, init: (f) => { f.n = 1; } }) });\n\
                  s.start();";
    let transcript = run(&directory, &["a"], source);
    assert_eq!(Value::Object(transcript.facts), json!({"n": 1}));
    assert_eq!(
        json!(transcript.libraries),
        json!([{"name": "@directive-run/core", "version": null, "builtIn": true}])
    );
}

/// A substitute with the interface of the package: its result for systems of several modules
/// differs from that of the small one.
const CORE: &str = "export const createModule = (id, definition) => ({ id, ...definition });\n\
    const store = (values) => ({ toObject: () => ({ ...values }) });\n\
    export function createSystem({ module, modules }) {\n\
      const values = {};\n\
      const facts = (before) => new Proxy({}, {\n\
        get: (_, key) => (key === \"$store\" ? store(values) : values[before + key]),\n\
        set: (_, key, value) => { values[before + key] = value; return true; },\n\
      });\n\
      const derive = (one, before) => new Proxy({}, {\n\
        get: (_, key) => one.derive[key](facts(before)) });\n\
      if (module) {\n\
        module.init(facts(\"\"));\n\
        return { facts: facts(\"\"), derive: derive(module, \"\") };\n\
      }\n\
      const all = (make) => Object.fromEntries(Object.entries(modules)\n\
        .map(([name, one]) => [name, make(one, `${name}::`)]));\n\
      all((one, before) => one.init(facts(before)));\n\
      return { facts: all((_, before) => facts(before)), derive: all(derive) };\n\
    }\n\
    export const Backoff = { None: \"none\" };";

#[test]
fn systems_of_the_installed_core_are_told_whatever_they_are_called() {
    let directory = packages(&[
        (
            "@directive-run/core/package.json",
            "{\"name\": \"@directive-run/core\", \"version\": \"1.29.4\", \"type\": \"module\", \
             \"exports\": {\".\": {\"require\": \"./dist/index.cjs\", \"import\": \
             \"./dist/index.js\"}, \"./internals\": {\"import\": \"./dist/internals.js\"}}}",
        ),
        ("@directive-run/core/dist/index.js", "export * from \"./chunk-1.js\";"),
        ("@directive-run/core/dist/chunk-1.js", CORE),
        ("@directive-run/core/dist/internals.js", "export { createSystem } from \"./chunk-1.js\";"),
    ]);
    let one = "import { Backoff, createModule, createSystem } from \"@directive-run/core\";\n\
               import { createSystem as inner } from \"@directive-run/core/internals\";\n\
               const m = createModule(\"m\", { init: (f) => { f.n = 2; },\n\
                 derive: { twice: (f) => f.n * 2 } });\n\
               inner({ module: m });\n\
               console.log(Backoff.None);\n";
    let single = run(&directory, &[], &format!("{one}const mine = createSystem({{ module: m }});"));
    assert_eq!(single.errors, [""; 0]);
    assert_eq!(Value::Object(single.facts), json!({"n": 2}));
    assert_eq!(Value::Object(single.derived), json!({"twice": 4}));
    assert_eq!(
        json!(single.libraries),
        json!([{"name": "@directive-run/core", "version": "1.29.4", "builtIn": false}])
    );
    let both =
        run(&directory, &[], &format!("{one}createSystem({{ modules: {{ a: m, b: m }} }});"));
    assert_eq!(both.errors, [""; 0]);
    assert_eq!(Value::Object(both.facts), json!({"a": {"n": 2}, "b": {"n": 2}}));
    assert_eq!(Value::Object(both.derived), json!({"a": {"twice": 4}, "b": {"twice": 4}}));
}

#[test]
fn a_package_may_ask_for_its_mode_and_snippets_may_not() {
    let directory = packages(&[
        (
            "a/package.json",
            "{\"type\": \"module\", \"exports\": {\".\": \"./a.js\", \
                            \"./node\": \"./node.js\"}}",
        ),
        (
            "a/a.js",
            "export const mode = process.env.NODE_ENV !== \"production\" ? \"dev\" : \"\";\n\
                    export const fail = () => { throw new Error(\"x\"); };",
        ),
        (
            "a/node.js",
            "export const where = typeof process === \"undefined\" ? \"web\" : \
                       process.versions.node + process.env.NODE_ENV;",
        ),
    ]);
    let source = "import { mode } from \"a\"; import { where } from \"a/node\";\n\
                  console.log(mode, where);";
    assert_eq!(lines(&directory, &["a"], source), ["[log] dev web"]);
    let failed = run(&directory, &["a"], "import { fail } from \"a\"; fail();");
    assert!(failed.errors[0].contains("library:a/a.js:2:"), "{failed:?}");
}

#[test]
fn deeply_nested_packages_are_read() {
    let (open, close) = ("[".repeat(10_000), "]".repeat(10_000));
    let nested = format!("export const nested = {open}{close};");
    let directory =
        packages(&[("a/package.json", "{\"type\": \"module\"}"), ("a/index.js", &nested)]);
    assert!(set(&directory, &["a"]).unwrap().exports("a"));
}

#[test]
fn an_error_in_a_package_names_its_file() {
    let directory = packages(&[
        ("a/package.json", "{\"type\": \"module\"}"),
        ("a/index.js", "\nexport const fail = () => { throw new Error(\"inside\"); };"),
    ]);
    let transcript = run(&directory, &["a"], "import { fail } from \"a\";\nfail();");
    let error = &transcript.errors[0];
    assert!(error.contains("library:a/index.js:2:") && error.contains("src/main.ts:2:"), "{error}");
}
