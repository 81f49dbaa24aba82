//! The service is killed at every point of an operation, and another one continues: nothing is
//! lost, nothing is done twice, each event is recorded once.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{Harness, Side, caller, program};
use stockade_api::{
    ById, CreateSandbox, Ending, Execute, ExecuteResult, Expiry, OperationId, OperationStatus,
    OutputChunk, ReadOutput, Renew, Sandboxes as _, TakeSnapshot,
};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId, State};
use stockade_durable::Filter;
use stockade_runtime::{Ending as Ended, Stream};
use tokio::sync::Semaphore;

/// The points at which a call of a runtime can be interrupted.
const SIDES: [Side; 2] = [Side::Before, Side::After];

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

#[tokio::test]
async fn during_create() {
    for side in SIDES {
        let mut harness = Harness::new().await;
        harness.gate.hold("create", side);
        let request = CreateSandbox { id: Some(id("sb1")), ..CreateSandbox::default() };
        let repeated = request.clone();
        let cut = harness.spawn(|service| async move {
            service.create(&caller("u1").with_key("k"), repeated).await
        });
        harness.gate.wait_for_held(1).await;
        harness.kill().await;
        assert!(cut.await.is_err(), "the call went with its process");
        let sandbox = harness.until(&id("sb1"), State::Running).await;
        let again = harness.run(|service| async move {
            service.create(&caller("u1").with_key("k"), request).await
        });
        assert_eq!(again.await.unwrap().id, sandbox.id, "the same name finds the same");
        assert_eq!(harness.sandbox_count().await, 1, "{side:?}");
        assert_eq!(harness.kinds().await, [Kind::SandboxCreated]);
    }
}

/// A program that counts its executions, writes output, and waits for the semaphore.
fn counted(harness: &Harness) -> (Arc<AtomicUsize>, Arc<Semaphore>) {
    let (runs, door) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counter, waiting) = (runs.clone(), door.clone());
    harness.fake.program("counted", move |process| {
        let (counter, waiting) = (counter.clone(), waiting.clone());
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            for word in ["one ", "two ", "three ", "four"] {
                process.write(Stream::Output, word.as_bytes());
                process.write(Stream::Error, b"!");
                let Ok(pass) = waiting.acquire().await else { break };
                pass.forget();
            }
            Ended::Exited(3)
        }
    });
    (runs, door)
}

#[tokio::test]
async fn during_execute() {
    for side in SIDES {
        let mut harness = Harness::new().await;
        let (runs, door) = counted(&harness);
        let sandbox = harness.sandbox().await;
        harness.gate.hold("execute", side);
        let execute = program(&sandbox, &["counted"]);
        let repeated = execute.clone();
        let _cut = harness.spawn(|service| async move {
            service.execute(&caller("u1").with_key("k"), repeated).await
        });
        harness.gate.wait_for_held(1).await;
        harness.kill().await;
        door.add_permits(4);
        assert_counted(&harness, execute, &runs).await;
    }
}

#[tokio::test]
async fn when_a_command_has_ended_and_nobody_recorded_it() {
    let mut harness = Harness::new().await;
    let (runs, door) = counted(&harness);
    let sandbox = harness.sandbox().await;
    let execute = program(&sandbox, &["counted"]);
    let repeated = execute.clone();
    let _cut = harness.spawn(|service| async move {
        service.execute(&caller("u1").with_key("k"), repeated).await
    });
    harness.eventually(async || (runs.load(Ordering::SeqCst) == 1).then_some(())).await;
    harness.stop().await;
    door.add_permits(4);
    harness.start().await;
    assert_counted(&harness, execute, &runs).await;
    // A recorded command is acknowledged in the runtime, by its operation or by the reaper.
    harness.eventually(async || (harness.fake.calls("acknowledge") > 0).then_some(())).await;
}

async fn assert_counted(harness: &Harness, execute: Execute, runs: &AtomicUsize) {
    let executed: ExecuteResult = harness
        .run(|service| async move { service.execute(&caller("u1").with_key("k"), execute).await })
        .await
        .unwrap();
    assert_eq!((executed.end.ending, executed.end.exit_code), (Ending::Exited, Some(3)));
    assert_eq!(
        (&*executed.stdout.lossy(), &*executed.stderr.lossy()),
        ("one two three four", "!!!!")
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1, "never twice");
    assert_eq!(harness.kinds().await, [Kind::SandboxCreated, Kind::CommandCompleted]);
}

#[tokio::test]
async fn a_command_whose_input_is_gone_is_not_begun() {
    let mut harness = Harness::new().await;
    let sandbox = harness.sandbox().await;
    harness.gate.hold("execute", Side::Before);
    let mut execute = program(&sandbox, &["cat"]);
    execute.stdin = Some(b"to-be-read".into());
    let repeated = execute.clone();
    let _cut = harness.spawn(|service| async move {
        service.execute(&caller("u1").with_key("k"), repeated).await
    });
    harness.gate.wait_for_held(1).await;
    harness.kill().await;
    let filter = Filter { name: Some("sandbox.execute".to_owned()), ..Filter::default() };
    harness
        .eventually(async || {
            let list = harness.service.engine().list(filter.clone()).await.unwrap();
            list[0].status.is_terminal().then_some(())
        })
        .await;
    let refused = harness
        .run(|service| async move { service.execute(&caller("u1").with_key("k"), execute).await })
        .await
        .unwrap_err();
    assert_eq!(refused.code, Code::Cancelled);
    assert_eq!(harness.fake.calls("execute"), 0);
}

#[tokio::test]
async fn a_command_that_was_begun_reads_all_of_its_input() {
    let mut harness = Harness::new().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    harness.fake.program("reads", move |mut process| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            while let Some(bytes) = process.read().await {
                process.write(Stream::Output, &bytes);
            }
            Ended::Exited(0)
        }
    });
    let sandbox = harness.sandbox().await;
    harness.gate.hold("execute", Side::After);
    let mut execute = program(&sandbox, &["reads"]);
    let text = "to-be-read ".repeat(50_000);
    execute.stdin = Some(text.clone().into());
    let repeated = execute.clone();
    let _cut = harness.spawn(|service| async move {
        service.execute(&caller("u1").with_key("k"), repeated).await
    });
    harness.gate.wait_for_held(1).await;
    harness.kill().await;
    let executed = harness
        .run(|service| async move { service.execute(&caller("u1").with_key("k"), execute).await })
        .await
        .unwrap();
    assert_eq!((executed.end.ending, executed.end.exit_code), (Ending::Exited, Some(0)));
    assert!(executed.stdout.lossy() == text, "{} bytes were read", executed.stdout.0.len());
    // Whether it was attached to or requested again, which finds it, depends on timing.
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn during_each_step_of_a_life() {
    type Ask = fn(SandboxId) -> (&'static str, &'static [&'static str], State);
    let steps: [(Ask, &[Kind]); 5] = [
        (|_| ("pause", &["pause"], State::Paused), &[Kind::SandboxPaused]),
        (|_| ("resume", &["resume"], State::Running), &[Kind::SandboxPaused, Kind::SandboxResumed]),
        (|_| ("stop", &["end"], State::Stopped), &[Kind::SandboxStopped]),
        (
            |_| ("start", &["snapshot", "cleanup", "create", "renew"], State::Running),
            &[Kind::SandboxStopped, Kind::SandboxStarted],
        ),
        (|_| ("kill", &["cleanup"], State::Terminated), &[Kind::SandboxKilled]),
    ];
    for (ask, kinds) in steps {
        let (operation, calls, state) = ask(id("any"));
        for runtime_call in calls {
            for side in SIDES {
                let mut harness = Harness::new().await;
                let sandbox = harness.sandbox().await;
                write(&harness, &sandbox, "kept").await;
                match operation {
                    "resume" => step(&harness, &sandbox, "pause").await,
                    "start" => step(&harness, &sandbox, "stop").await,
                    _ => {}
                }
                harness.gate.hold(runtime_call, side);
                let by_id = ById { id: sandbox.clone() };
                let _cut =
                    harness.spawn(|service| async move { call(&service, operation, by_id).await });
                harness.gate.wait_for_held(1).await;
                harness.kill().await;
                harness.until(&sandbox, state).await;
                harness.service.sweep().await;
                let expected = usize::from(state != State::Terminated);
                assert_eq!(
                    harness.sandbox_count().await,
                    expected,
                    "{operation}: {runtime_call} {side:?}"
                );
                let mut expected = vec![Kind::SandboxCreated];
                expected.extend(kinds);
                assert_eq!(harness.kinds().await, expected, "{operation}: {runtime_call} {side:?}");
                if state == State::Stopped {
                    step(&harness, &sandbox, "start").await;
                }
                if matches!(operation, "stop" | "start") {
                    assert_eq!(
                        read(&harness, &sandbox).await,
                        "kept",
                        "{operation}: {runtime_call} {side:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn what_the_reaper_takes_of_an_unrecorded_start_is_made_again() {
    let mut harness = Harness::new().await;
    let sandbox = harness.sandbox().await;
    write(&harness, &sandbox, "kept").await;
    step(&harness, &sandbox, "stop").await;
    // A start that fails leaves the files in a snapshot.
    let no_room = stockade_runtime::Error::Exhausted("no room".to_owned());
    harness.fake.fail_next("create", no_room);
    let by_id = ById { id: sandbox.clone() };
    let failed = harness.run(|service| async move { service.start(&caller("u1"), by_id).await });
    failed.await.unwrap_err();
    // The disk is full between the effect of a start and the record that the sandbox is running.
    harness.tamper("CREATE TABLE filler (bytes BLOB)").await;
    let fill = "CREATE TRIGGER fill BEFORE UPDATE ON sandbox_instances \
                BEGIN INSERT INTO filler VALUES (zeroblob(50000000)); END";
    harness.tamper(fill).await;
    harness.spare_pages(100).await;
    let by_id = ById { id: sandbox.clone() };
    let cut = harness.run(|service| async move { service.start(&caller("u1"), by_id).await });
    assert_eq!(cut.await.unwrap_err().code, Code::StorageFull);
    assert_eq!(harness.sandbox_count().await, 1, "it was started");
    harness.service.sweep().await;
    assert_eq!(harness.sandbox_count().await, 0, "no record says that it runs");
    harness.fill_disk(false).await;
    harness.tamper("DROP TRIGGER fill").await;
    harness.kill().await;
    harness.until(&sandbox, State::Running).await;
    assert_eq!(read(&harness, &sandbox).await, "kept");
}

async fn call(
    service: &stockade_service::Service,
    operation: &str,
    by_id: ById,
) -> stockade_api::Result<stockade_api::Sandbox> {
    let me = caller("u1");
    match operation {
        "pause" => service.pause(&me, by_id).await,
        "resume" => service.resume(&me, by_id).await,
        "stop" => service.stop(&me, by_id).await,
        "start" => service.start(&me, by_id).await,
        _ => service.kill(&me, by_id.into()).await,
    }
}

async fn step(harness: &Harness, sandbox: &SandboxId, operation: &'static str) {
    let by_id = ById { id: sandbox.clone() };
    harness
        .run(move |service| async move { call(&service, operation, by_id).await })
        .await
        .unwrap();
}

async fn write(harness: &Harness, sandbox: &SandboxId, text: &'static str) {
    harness.write(sandbox, "/w/f", text).await.unwrap();
}

async fn read(harness: &Harness, sandbox: &SandboxId) -> String {
    harness.read(sandbox, "/w/f").await.unwrap()
}

#[tokio::test]
async fn during_renew_snapshot_and_the_writing_of_a_file() {
    for side in SIDES {
        let mut harness = Harness::new().await;
        let sandbox = harness.sandbox().await;
        let before = harness.status(&sandbox).await.expires_at.unwrap();
        harness.gate.hold("renew", side);
        let renew = Renew { id: sandbox.clone(), ttl_seconds: Some(7200.0), shorten: false };
        let _cut =
            harness.spawn(|service| async move { service.renew(&caller("u1"), renew).await });
        harness.gate.wait_for_held(1).await;
        harness.kill().await;
        harness
            .eventually(async || {
                (harness.status(&sandbox).await.expires_at.unwrap() > before).then_some(())
            })
            .await;
        assert_eq!(harness.kinds().await, [Kind::SandboxCreated, Kind::SandboxRenewed]);

        harness.gate.hold("snapshot", side);
        let request = TakeSnapshot { sandbox_id: sandbox.clone(), id: None, name: None };
        let _cut =
            harness.spawn(|service| async move { service.snapshot(&caller("u1"), request).await });
        harness.gate.wait_for_held(1).await;
        harness.kill().await;
        let taken = harness
            .eventually(async || {
                let names = stockade_api::Empty {};
                harness.service.snapshots(&caller("u1"), names).await.unwrap().pop()
            })
            .await;
        assert_eq!(taken.sandbox_id, sandbox);

        harness.gate.hold("write_file", side);
        let (gate, target) = (harness.gate.clone(), sandbox.clone());
        let _cut = harness.spawn(|service| async move {
            harness::write(&service, &target, "/f", "content").await
        });
        gate.wait_for_held(1).await;
        harness.kill().await;
        // The file is complete or missing, depending on the side.
        let written = harness.read(&sandbox, "/f").await;
        match side {
            Side::Before => assert_eq!(written.unwrap_err().code, Code::FileNotFound),
            Side::After => assert_eq!(written.unwrap(), "content"),
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_without_gap_or_double() {
    let mut harness = Harness::new().await;
    let (runs, door) = counted(&harness);
    let sandbox = harness.sandbox().await;
    let operation = harness.stream(program(&sandbox, &["counted"])).await;
    for _ in 0..4 {
        let before = output(&harness, &operation, false).await.0.len();
        door.add_permits(1);
        harness
            .eventually(async || {
                let now = output(&harness, &operation, false).await.0.len();
                (now > before || now == "one two three four".len()).then_some(())
            })
            .await;
        harness.kill().await;
    }
    let output_items = output(&harness, &operation, true).await;
    assert_eq!(output_items, ("one two three four".to_owned(), "!!!!".to_owned(), 1));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(harness.result(&operation).await.status, OperationStatus::Succeeded);
    let commands = harness.kinds().await.into_iter().filter(|kind| *kind == Kind::CommandCompleted);
    assert_eq!(commands.count(), 1);
}

/// The output of a command that is not recorded is in no file of the database, and is read from the
/// sandbox, also by the next service and after the reaper came by.
#[tokio::test]
async fn output_that_is_not_recorded_stays_in_the_sandbox() {
    let mut harness = Harness::new().await;
    let (runs, door) = counted(&harness);
    let sandbox = harness.sandbox().await;
    let execute = Execute { unrecorded: true, ..program(&sandbox, &["counted"]) };
    let operation = harness.stream(execute.clone()).await;
    harness.eventually(async || (runs.load(Ordering::SeqCst) == 1).then_some(())).await;
    harness.kill().await;
    door.add_permits(4);
    assert_eq!(harness.result(&operation).await.status, OperationStatus::Succeeded);
    let request = |from_sandbox| ReadOutput {
        workflow_id: operation.clone(),
        from: 0,
        follow: true,
        from_sandbox,
    };
    for _ in 0..2 {
        let from_sandbox = read_items(&harness, request(true)).await;
        assert_eq!(from_sandbox, ("one two three four".to_owned(), "!!!!".to_owned(), 1));
        assert_eq!(read_items(&harness, request(false)).await, (String::new(), String::new(), 1));
        // The reaper of the next one sweeps at once.
        let sweeps = harness.fake.calls("snapshots");
        harness.kill().await;
        harness.eventually(async || (harness.fake.calls("snapshots") > sweeps).then_some(())).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    for entry in harness.directory.path().read_dir().unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(9).any(|part| part == b"one two t"));
    }
    let refused =
        harness.run(|service| async move { service.execute(&caller("u1"), execute).await }).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidInput);
    let recorded = harness.stream(program(&sandbox, &["counted"])).await;
    door.add_permits(4);
    harness.result(&recorded).await;
    let request = ReadOutput { workflow_id: recorded, from: 0, follow: true, from_sandbox: true };
    let mut items = harness
        .run(|service| async move { service.read_output(&caller("u1"), request).await })
        .await
        .unwrap();
    assert_eq!(items.next().await.unwrap().unwrap_err().code, Code::InvalidInput);
}

/// The content of a stream: output, errors, and how often it ends. Its numbers have no gaps.
async fn output(
    harness: &Harness,
    operation: &OperationId,
    follow: bool,
) -> (String, String, usize) {
    read_items(
        harness,
        ReadOutput { workflow_id: operation.clone(), from: 0, follow, from_sandbox: false },
    )
    .await
}

async fn read_items(harness: &Harness, request: ReadOutput) -> (String, String, usize) {
    let is_recorded = !request.from_sandbox;
    let read =
        harness.run(|service| async move { service.read_output(&caller("u1"), request).await });
    let mut items = read.await.unwrap();
    let (mut stdout, mut stderr, mut ends, mut next) = (String::new(), String::new(), 0, 0);
    while let Some(item) = items.next().await {
        let item = item.unwrap();
        assert_eq!(item.sequence, next);
        next += 1;
        match item.chunk {
            OutputChunk::Stdout { data } => stdout.push_str(&data.lossy()),
            OutputChunk::Stderr { data } => stderr.push_str(&data.lossy()),
            // Only of a command whose output is not recorded.
            OutputChunk::Truncated { bytes } => assert!(is_recorded && bytes == 22, "{bytes}"),
            OutputChunk::Exit(_) => ends += 1,
        }
    }
    (stdout, stderr, ends)
}

#[tokio::test]
async fn a_command_in_a_sandbox_that_was_paused_is_not_lost() {
    let mut harness = Harness::new().await;
    let (runs, door) = counted(&harness);
    let sandbox = harness.sandbox().await;
    let operation = harness.stream(program(&sandbox, &["counted"])).await;
    harness.eventually(async || (runs.load(Ordering::SeqCst) == 1).then_some(())).await;
    step(&harness, &sandbox, "pause").await;
    harness.kill().await;
    step(&harness, &sandbox, "resume").await;
    door.add_permits(4);
    assert_eq!(output(&harness, &operation, true).await.2, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_watcher_does_not_take_a_sandbox_for_lost_that_is_being_stopped() {
    for _ in 0..5 {
        let mut harness = Harness::watchful().await;
        let sandbox = harness.sandbox().await;
        write(&harness, &sandbox, "kept").await;
        harness.gate.hold("end", Side::After);
        let by_id = ById { id: sandbox.clone() };
        let _cut = harness.spawn(|service| async move { service.stop(&caller("u1"), by_id).await });
        harness.gate.wait_for_held(1).await;
        harness.kill().await;
        harness.until(&sandbox, State::Stopped).await;
        step(&harness, &sandbox, "start").await;
        assert_eq!(read(&harness, &sandbox).await, "kept");
    }
}

#[tokio::test]
async fn a_life_that_ended_while_nobody_ran_ends_at_once() {
    let mut harness = Harness::new().await;
    let expiry = Expiry::Seconds(0.3);
    let request = CreateSandbox { expiry, ..CreateSandbox::default() };
    let request = stockade_service::fireflow::request(request);
    let sandbox = harness.create(request).await.unwrap();
    harness.kill().await;
    let ended = harness.until(&sandbox.id, State::Terminated).await;
    assert_eq!(ended.reason.as_deref(), Some("expired"));
    assert_eq!(harness.sandbox_count().await, 0);
}
