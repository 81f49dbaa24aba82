//! What programs can and cannot do in a realm, and how runs end.

use super::*;
use crate::SourceFile;
use crate::compile::{Lenient, compile};
use crate::realm_host::{Console, FetchResult, Request, Response};

const TIMEOUT: Duration = Duration::from_secs(5);

fn run_with(files: &[(&str, &str)], timeout: Duration) -> (Outcome, Vec<String>) {
    let mut program = Program::default();
    for (path, source) in files {
        let file = SourceFile { path: (*path).to_owned(), source: (*source).to_owned() };
        let module = compile(&file, &mut Lenient).unwrap();
        for import in &module.imports {
            let name = crate::resolve(path, &import.specifier, |name| {
                files.iter().any(|(path, _)| *path == name)
            });
            let link = ((*path).to_owned(), import.specifier.clone());
            program.links.insert(link, name.unwrap_or_default());
        }
        program.modules.insert((*path).to_owned(), module);
    }
    let lines = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&lines);
    let console = move |level: &str, text: &str| {
        kept.borrow_mut().push(format!("{level}: {text}"));
    };
    let realm = Realm::new(&LibrarySet::default(), &Limits::default()).unwrap();
    let outcome = realm.run(program, "main.ts", timeout, Box::new(Console(console)));
    drop(realm);
    (outcome, lines.take())
}

fn run(source: &str) -> (Outcome, Vec<String>) {
    run_with(&[("main.ts", source)], TIMEOUT)
}

/// The output lines of a program that succeeds.
pub(super) fn lines(source: &str) -> Vec<String> {
    let (outcome, lines) = run(source);
    assert_eq!(outcome.end, RunEnd::Settled, "{source}: {lines:?}");
    lines
}

#[test]
fn modules_import_each_other_and_nothing_else() {
    let files = [
        ("main.ts", "import { two } from \"./lib/two.js\"; console.log(two as number);"),
        ("lib/two.ts", "import { one } from \"../one.js\"; export const two = one + one;"),
        ("one.js", "export const one = await Promise.resolve(1);"),
    ];
    let (outcome, lines) = run_with(&files, TIMEOUT);
    assert_eq!((outcome.end, lines), (RunEnd::Settled, vec!["log: 2".to_owned()]));
    let outcome = run("import(\"std\").catch((e) => console.log(String(e)));").0;
    assert_eq!(outcome.end, RunEnd::Settled);
}

#[test]
fn an_error_is_told_where_the_user_wrote_it() {
    let source = "type A = {\n  a: number;\n};\nfunction inner(): never {\n  throw new TypeError(\
                  \"boom\", { cause: new Error(\"why\") });\n}\ninner();\n";
    let RunEnd::Threw(failure) = run(source).0.end else { panic!("nothing was thrown") };
    assert_eq!((failure.name.as_deref(), failure.message.as_str()), (Some("TypeError"), "boom"));
    assert!(failure.frames[0].starts_with("at inner (main.ts:5:"), "{failure:?}");
    assert!(failure.frames[1].contains("main.ts:7:"), "{failure:?}");
    assert!(failure.to_string().contains("\nCause: why\nError: why\n    at "), "{failure}");
    let RunEnd::Threw(failure) = run("throw \"plain\";").0.end else { panic!("not thrown") };
    assert_eq!(failure.to_string(), "plain");
}

#[test]
fn a_run_ends_whatever_a_program_does() {
    let short = Duration::from_millis(300);
    for source in [
        "console.log(\"before\"); for (;;) {}",
        "console.log(\"before\"); const f = () => { Promise.resolve().then(f); }; f(); await new Promise(() => {});",
        "console.log(\"before\"); await new Promise((r) => setTimeout(r, 60_000));",
        "console.log(\"before\"); setInterval(() => {}, 1); await new Promise(() => {});",
        "console.log(\"before\"); try { for (;;) {} } finally { for (;;) {} }",
        "console.log(\"before\"); /(a*)*$/.test(\"a\".repeat(40) + \"b\"); for (;;) {}",
        "console.log(\"before\"); throw { toString() { for (;;) {} } };",
    ] {
        let (outcome, lines) = run_with(&[("main.ts", source)], short);
        assert_eq!(outcome.end, RunEnd::TimedOut, "{source}");
        assert_eq!(lines, ["log: before"], "{source}");
    }
    let endless = Duration::from_secs(3_600);
    let (outcome, _) = run_with(&[("main.ts", "await new Promise(() => {});")], endless);
    assert_eq!(outcome.end, RunEnd::NeverSettles);
}

#[test]
fn memory_stack_and_output_are_bounded() {
    for source in [
        "const a = []; for (;;) a.push(new Array(1000).fill(1));",
        "let s = \"x\"; for (;;) s += s;",
        "new ArrayBuffer(1 << 30);",
        "const f = () => f() + 1; f();",
        "let a: any = []; for (let i = 0; i < 1e5; i++) a = [a]; JSON.stringify(a);",
    ] {
        assert!(matches!(run(source).0.end, RunEnd::Threw(_)), "{source}");
    }
    let (outcome, lines) = run("for (let i = 0; i < 1e5; i++) console.log(\"x\".repeat(100));");
    assert!(outcome.output_truncated);
    assert!(lines.len() < 3_000, "{}", lines.len());
}

#[test]
fn no_code_is_made_of_text() {
    for source in [
        "(() => {}).constructor(\"return 1\")()",
        "(async () => {}).constructor(\"return 1\")()",
        "(function* () {}).constructor(\"yield 1\")()",
        "(async function* () {}).constructor(\"yield 1\")()",
        "new Function(\"return 1\")()",
        "Reflect.construct(Object.getPrototypeOf(class {}).constructor, [\"return 1\"])",
        "globalThis.eval(\"1\")",
        "setTimeout(\"1\", 0)",
    ] {
        let source =
            format!("let r; try {{ r = {source}; }} catch (e) {{ r = \"no\"; }} console.log(r);");
        assert_eq!(lines(&source), ["log: no"], "{source}");
    }
    let gone = "console.log([typeof eval, typeof process, typeof require, typeof std, typeof os, \
                typeof Worker, typeof print].join());";
    let expected = ["undefined"; 7].join(",");
    assert_eq!(lines(gone), [format!("log: {expected}")]);
}

#[test]
fn the_console_shows_values() {
    assert_eq!(
        lines(
            "console.log(\"a\", 1, null, undefined, NaN, [1, { b: 2 }], 10n);\n\
             console.warn({ $store: { toObject: () => ({ n: 1 }) } });\n\
             console.error({ $snapshot: () => [2] }, new TypeError(\"x\"), \"\\ud800\");"
        ),
        [
            "log: a 1 null undefined NaN [1,{\"b\":2}] 10",
            "warn: {\"n\":1}",
            "error: [2] TypeError: x \u{fffd}"
        ]
    );
}

#[test]
fn the_web_is_there_as_far_as_it_reaches_nothing() {
    assert_eq!(
        lines(
            "const u = new URL(\"../b?x=1&x=%C3%A9#h\", \"https://user@EXAMPLE.com:443/a/c\");\n\
             u.searchParams.append(\"y\", \"a b\"); u.port = \"8080\";\n\
             console.log(u.href, u.origin, u.searchParams.getAll(\"x\").join());\n\
             console.log(URL.canParse(\"nope\"), new URLSearchParams({ a: \"1\" }).toString());\n\
             const bytes = new TextEncoder().encode(\"é\");\n\
             console.log(bytes.length, new TextDecoder().decode(bytes));\n\
             try { new TextDecoder(\"utf8\", { fatal: true }).decode(new Uint8Array([255])); }\n\
             catch (e) { console.log(e instanceof TypeError); }\n\
             const copy = structuredClone({ d: new Date(0), m: new Map([[1, new Set([2])]]) });\n\
             console.log(copy.d.toISOString(), copy.m.get(1).has(2));\n\
             console.log(crypto.getRandomValues(new Uint32Array(4)).some((n) => n > 0));\n\
             console.log(/^[0-9a-f]{8}-[0-9a-f]{4}-4/.test(crypto.randomUUID()));\n\
             const c = new AbortController(); c.signal.onabort = () => console.log(\"aborted\");\n\
             c.abort(); console.log(c.signal.aborted, (c.signal.reason as Error).name);\n\
             await new Promise<void>((done) => { setTimeout(done, 1); queueMicrotask(() => {}); });\n\
             console.log(\"timer\", self === globalThis);"
        ),
        [
            "log: https://user@example.com:8080/b?x=1&x=%C3%A9&y=a+b#h https://example.com:8080 1,é",
            "log: false a=1",
            "log: 2 é",
            "log: true",
            "log: 1970-01-01T00:00:00.000Z true",
            "log: true",
            "log: true",
            "log: aborted",
            "log: true AbortError",
            "log: timer true",
        ]
    );
}

#[test]
fn an_error_with_halves_of_surrogate_pairs_is_told() {
    let RunEnd::Threw(failure) = run("throw new TypeError(\"a \\ud800 b\");").0.end else {
        panic!("it does not throw");
    };
    assert_eq!(failure.message, "a \u{fffd} b");
}

#[test]
fn a_rejection_that_nobody_looks_at_is_told() {
    let (outcome, _) = run("Promise.reject(new Error(\"lost\")); const p = Promise.reject(1); \
                            p.catch(() => {});");
    assert_eq!(outcome.end, RunEnd::Settled);
    let messages: Vec<_> = outcome.unhandled.iter().map(|f| f.message.as_str()).collect();
    assert_eq!(messages, ["lost"]);
}

/// Responds to fetches, the last one first.
#[derive(Default)]
struct Echo {
    lines: Rc<RefCell<Vec<String>>>,
    requests: Vec<(u32, Request)>,
}

impl RealmHost for Echo {
    fn write(&mut self, _: &str, text: &str) {
        self.lines.borrow_mut().push(text.to_owned());
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), String> {
        if request.url.contains("never") {
            return Err("not this".to_owned());
        }
        self.requests.push((id, request));
        Ok(())
    }

    fn abort(&mut self, id: u32) {
        self.lines.borrow_mut().push(format!("aborted {id}"));
    }

    fn wait(&mut self, _: Duration) -> Option<FetchResult> {
        let (id, Request { method, url, headers, body, .. }) = self.requests.pop()?;
        if url.ends_with("/fails") {
            return Some(FetchResult { id, result: Err("fetch failed: as asked".to_owned()) });
        }
        let text = format!("{method} {url} {headers:?} ");
        let body = [text.into_bytes(), body.unwrap_or_default()].concat();
        let headers = [("a", "1"), ("b", "2"), ("a", "3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let response = Response { status: 201, url, headers, body, ..Response::default() };
        Some(FetchResult { id, result: Ok(response) })
    }
}

fn run_fetching(source: &str) -> (RunEnd, Vec<String>) {
    let file = SourceFile { path: "main.ts".to_owned(), source: source.to_owned() };
    let module = compile(&file, &mut Lenient).unwrap();
    let modules = [("main.ts".to_owned(), module)].into();
    let program = Program { modules, ..Program::default() };
    let lines = Rc::new(RefCell::new(Vec::new()));
    let echo = Echo { lines: Rc::clone(&lines), ..Echo::default() };
    let realm = Realm::new(&LibrarySet::default(), &Limits::default()).unwrap();
    let ended = realm.run(program, "main.ts", TIMEOUT, Box::new(echo)).end;
    drop(realm);
    (ended, lines.take())
}

#[test]
fn what_is_fetched_is_answered_by_the_outside() {
    let (ended, lines) = run_fetching(
        "const a = fetch(\"https://a.example/x\", { method: \"POST\", body: \"é\", headers: { \"X-A\": 1 } });\n\
         const b = fetch(new URL(\"https://b.example/\"));\n\
         const response = await a;\n\
         console.log(response.status, response.ok, response.url, response.headers.get(\"A\"));\n\
         const copy = response.clone();\n\
         console.log(await response.text());\n\
         console.log(response.bodyUsed, (await copy.arrayBuffer()).byteLength > 10);\n\
         try { await response.json(); } catch (e) { console.log(String(e)); }\n\
         console.log([...(await b).headers].join(\" \"));\n\
         console.log(await new Response('{\"n\":[1]}').json().then((v: any) => v.n[0]));",
    );
    assert_eq!(ended, RunEnd::Settled);
    assert_eq!(
        lines,
        [
            "201 true https://a.example/x 1, 3",
            "POST https://a.example/x [(\"content-type\", \"text/plain;charset=UTF-8\"), \
             (\"x-a\", \"1\")] é",
            "true true",
            "TypeError: the body has already been read",
            "a,1, 3 b,2",
            "1",
        ]
    );
}

#[test]
fn fetches_fail_and_are_given_up() {
    let (ended, lines) = run_fetching(
        "for (const url of [\"https://a.example/fails\", \"https://never.example/\", \"nope\"]) {\n\
           try { await fetch(url); } catch (e) { console.log(String(e)); }\n\
         }\n\
         const c = new AbortController();\n\
         const p = fetch(\"https://a.example/\", { signal: c.signal });\n\
         await Promise.resolve(); c.abort();\n\
         try { await p; } catch (e) { console.log((e as Error).name); }\n\
         try { await fetch(\"https://a.example/\", { signal: AbortSignal.abort() }); }\n\
         catch (e) { console.log((e as Error).name); }",
    );
    assert_eq!(ended, RunEnd::Settled);
    assert_eq!(
        lines,
        [
            "TypeError: fetch failed: as asked",
            "TypeError: not this",
            "TypeError: Invalid URL: nope",
            "aborted 3",
            "AbortError",
            "AbortError",
        ]
    );
}

#[test]
fn a_library_set_is_compiled_first_and_bounded() {
    let module = |specifier: &str, source: &str| LibraryModule {
        specifier: specifier.to_owned(),
        source: source.to_owned(),
        ..LibraryModule::default()
    };
    let set = |modules| LibrarySet { modules, ..LibrarySet::default() };
    let broken = Realm::new(&set(vec![module("a", "let = ;")]), &Limits::default()).unwrap_err();
    assert!(matches!(&broken, Error::Library { specifier, .. } if specifier == "a"), "{broken}");
    let small = Limits { code_bytes: 100, ..Limits::default() };
    let large = set(vec![module("a", &"1;".repeat(51))]);
    let error = Realm::new(&large, &small).unwrap_err();
    assert!(error.to_string().ends_with("the code is 102 bytes (max 100)"), "{error}");
    let modules = [("main.ts".to_owned(), Module::plain("main.ts", "2;".repeat(51)))].into();
    let realm = Realm::new(&LibrarySet::default(), &small).unwrap();
    let program = Program { modules, ..Program::default() };
    let outcome = realm.run(program, "main.ts", TIMEOUT, Box::new(Console(|_: &str, _: &str| {})));
    let too_large = CodeTooLarge { bytes: 102, limit_bytes: 100 };
    assert_eq!(outcome.end, RunEnd::TooMuchCode(too_large));
}
