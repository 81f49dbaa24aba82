//! The life cycle of workers and of the zygote.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_script::worker::{self, NoZygote};
use stockade_script::{LibraryModule, SourceFile};
use stockade_snippet::{Error, ErrorCode, Input, Phase, Runner};

use crate::support::{children_of, options, run, zygote};

const COUNTER: &str = "import { createModule, createSystem, t } from \"@directive-run/core\";\n\
    const m = createModule(\"counter\", { schema: { facts: { count: t.number() } },\n\
      init: (f) => { f.count = 0; }, derive: { isPositive: (f) => f.count > 0 },\n\
      events: { add: (f) => { f.count += 1; } } });\n\
    const system = createSystem({ module: m }); system.start();\n\
    system.events.add({}); await system.settle(); console.log(\"settled\", system.facts.count);\n";

#[tokio::test]
async fn each_snippet_begins_anew_in_a_worker_of_its_own() {
    let runner = Runner::new(options());
    let raised = runner.warm().await.unwrap();
    assert!(raised.namespaces && raised.landlock > 0, "{raised:?}");
    let mut drawn = Vec::new();
    for _ in 0..3 {
        let source = format!("{COUNTER}console.log(Math.random());");
        let mut transcript = run(&runner, &source, 5_000.0).await;
        assert_eq!(transcript.errors, [""; 0]);
        assert_eq!(Value::Object(transcript.facts), json!({ "count": 1 }));
        assert_eq!(Value::Object(transcript.derived), json!({ "isPositive": true }));
        assert!(transcript.warnings.iter().all(|warning| !warning.contains("namespaces")));
        drawn.push(transcript.logs.pop().unwrap());
        assert_eq!(transcript.logs, ["[log] settled 1"]);
    }
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), 3, "a fork draws what another one drew");
    drop(runner);
    assert!(children_of(std::process::id()).is_empty());
}

#[tokio::test]
async fn a_worker_ends_with_its_call_and_lines_are_kept() {
    let runner = Runner::new(options());
    for (source, code) in [
        ("console.log(\"before\"); for (;;) {}", ErrorCode::Timeout),
        ("console.log(\"before\"); await new Promise(() => {});", ErrorCode::NeverSettles),
        ("console.log(\"before\"); throw new Error(\"x\");", ErrorCode::RuntimeError),
        ("console.log(\"before\"); const a = []; for (;;) a.push(new Array(1000).fill(1));", {
            ErrorCode::OutOfMemory
        }),
    ] {
        let transcript = run(&runner, source, 1_000.0).await;
        assert_eq!(transcript.error_code, Some(code), "{source}: {transcript:?}");
        assert_eq!(transcript.logs, ["[log] before"], "{source}");
        assert_eq!(transcript.timed_out, code == ErrorCode::Timeout);
    }
    // The zygote reaps every worker that was killed or ended.
    let zygote = zygote();
    while !children_of(zygote).is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_taken_back_is_killed() {
    let runner = Runner::new(options());
    runner.warm().await.unwrap();
    let zygote = zygote();
    let source = Some("console.log(\"before\"); for (;;) {}".to_owned());
    let input = Input { source, timeout_ms: Some(10_000.0), ..Input::default() };
    let abort = async {
        while children_of(zygote).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let transcript = runner.run(input.clone(), abort).await.unwrap();
    assert_eq!(transcript.errors, ["sandbox: aborted by caller signal"]);
    assert_eq!((transcript.phase, transcript.error_code), (Phase::Run, Some(ErrorCode::Aborted)));
    // Dropping the future has the same effect.
    let mut dropped = Box::pin(runner.run(input, std::future::pending()));
    while children_of(zygote).is_empty() {
        let tick = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(tick, &mut dropped).await.is_err());
    }
    drop(dropped);
    while !children_of(zygote).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_workers_are_forked_from_is_replaced_when_it_is_gone() {
    let runner = Runner::new(options());
    assert!(run(&runner, COUNTER, 5_000.0).await.is_clean());
    let before = zygote();
    // Through the process outside: only root may signal the one inside.
    let outer = children_of(std::process::id())[0];
    let outer = Pid::from_raw(outer.try_into().unwrap()).unwrap();
    kill_process(outer, Signal::KILL).unwrap();
    while std::fs::exists(format!("/proc/{before}")).unwrap() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(run(&runner, COUNTER, 5_000.0).await.is_clean());
    assert_ne!(zygote(), before);
}

#[tokio::test]
async fn files_are_checked_in_a_worker_and_deep_ones_refused() {
    let runner = Runner::new(options());
    let file = |source: String| vec![SourceFile { path: "src/main.ts".to_owned(), source }];
    let faults = runner.check(file("process.exit();".to_owned())).await.unwrap();
    assert_eq!((faults.len(), faults[0].column), (1, 1));
    assert_eq!(runner.check(file("export {};".to_owned())).await.unwrap(), []);
    let depth = 20_000;
    for deep in [
        format!("const x = {}1{};", "(".repeat(depth), ")".repeat(depth)),
        format!("const x = {}1{};", "[".repeat(depth), "]".repeat(depth)),
        format!("const x = {}1;", "!".repeat(depth)),
        format!("const x = 1{};", " + 1".repeat(depth)),
        format!("const x: {}1{} = 1;", "Array<".repeat(depth), ">".repeat(depth)),
        "if (1) ".repeat(depth) + ";",
        "{".repeat(depth) + &"}".repeat(depth),
        format!("const f = {}1;", "() => ".repeat(depth)),
        format!("const s = {}1{};", "`${".repeat(depth), "}`".repeat(depth)),
        format!("const o = a{};", ".b".repeat(depth)),
    ] {
        let checked = runner.check(file(deep.clone())).await.unwrap();
        let transcript = run(&runner, &deep, 1_000.0).await;
        // Whatever the depth, there is a response, and nothing ran.
        assert!(transcript.logs.is_empty(), "{transcript:?}");
        if checked.iter().any(|fault| fault.message.contains("too deeply")) {
            assert_eq!(transcript.phase, Phase::Validate, "{transcript:?}");
            assert!(transcript.timed_out || transcript.errors[0].contains("too deeply"));
        }
    }
    assert!(run(&runner, COUNTER, 5_000.0).await.is_clean());
}

#[tokio::test]
async fn a_library_set_that_cannot_be_used_is_told() {
    let mut with_broken = options();
    with_broken.library.modules.push(LibraryModule {
        specifier: "@directive-run/lint".to_owned(),
        source: "export const = 1;".to_owned(),
        exported: true,
        ..LibraryModule::default()
    });
    let input = Input { source: Some("export {};".to_owned()), ..Input::default() };
    let error = Runner::new(with_broken).run(input.clone(), std::future::pending()).await;
    let Err(Error::Worker(worker::Error::NotReady(NoZygote::PrepareFailed(why)))) = error else {
        panic!("{error:?}");
    };
    assert!(why.contains("\"@directive-run/lint\" cannot be compiled"), "{why}");
    let mut with_large = options();
    with_large.library.modules.push(LibraryModule {
        specifier: "@directive-run/lint".to_owned(),
        source: format!("/*{}*/", "x".repeat((16 << 20) - 1_000)),
        ..LibraryModule::default()
    });
    let runner = Runner::new(with_large);
    let source = format!("//{}\nexport const a = \"{}\";", "y", "z".repeat(20_000));
    let input = Input { source: Some(source), ..input };
    let error = runner.run(input, std::future::pending()).await;
    // Either the set alone is too large, or together with the snippet.
    let text = match error {
        Ok(transcript) => {
            assert_eq!(transcript.error_code, Some(ErrorCode::CodeTooLarge));
            transcript.errors.concat()
        }
        Err(error) => error.to_string(),
    };
    assert!(text.contains("(max 16777216)"), "{text}");
}
