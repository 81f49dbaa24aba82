//! What fails, races, hangs and leaks: each ends in a state that is told, and nothing is lost.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use harness::{Harness, Side, caller, program};
use serde_json::json;
use stockade_api::{
    ById, CreateSandbox, Ending, Expiry, IdleAction, ListSandboxes, OperationStatus, Problem,
    ReadEvents, Sandboxes as _, dispatch,
};
use stockade_core::event::Kind;
use stockade_core::sandbox::Root;
use stockade_core::{Code, SandboxId, SandboxSpec, State};
use stockade_runtime::{Ending as Ended, Error, Runtime as _};
use stockade_service::{Options, Quotas};
use tokio::sync::Semaphore;

fn by_id(id: &SandboxId) -> ById {
    ById { id: id.clone() }
}

fn unreachable() -> Error {
    let source = std::io::ErrorKind::ConnectionRefused.into();
    Error::Unreachable { what: "the keeper".to_owned(), source }
}

/// Asks for an operation by its name.
async fn ask(
    harness: &Harness,
    operation: &'static str,
    request: serde_json::Value,
) -> Result<serde_json::Value, Problem> {
    let request = serde_json::to_vec(&request).unwrap();
    let asked = harness.run(move |service| async move {
        dispatch(&service, &caller("u1"), operation, &request).await
    });
    asked.await
}

#[tokio::test]
async fn a_runtime_that_fails_changes_nothing() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    harness.write(&id, "/w/f", "text").await.unwrap();
    let on = json!({"sandboxId": id, "path": "/w/f"});
    for (call, operation, request) in [
        ("pause", "pause", json!({"id": id})),
        ("snapshot", "stop", json!({"id": id})),
        ("snapshot", "snapshot", json!({"sandboxId": id})),
        ("renew", "renew", json!({"id": id, "ttlSeconds": 9000})),
        ("execute", "execute", json!({"sandboxId": id, "command": ["true"]})),
        ("stat", "stat_file", on.clone()),
        ("read_directory", "list_directory", json!({"sandboxId": id, "path": "/w"})),
        ("make_directory", "make_directory", json!({"sandboxId": id, "path": "/d"})),
        (
            "set_attributes",
            "set_permissions",
            json!({"sandboxId": id, "path": "/w/f", "mode": 384}),
        ),
        ("rename", "move_file", json!({"sandboxId": id, "from": "/w/f", "to": "/w/g"})),
        ("remove", "remove_file", on.clone()),
        ("connect", "resolve_endpoint", json!({"id": id, "port": 80})),
    ] {
        let before = harness.status(&id).await;
        harness.fake.fail_next(call, unreachable());
        let refused = ask(&harness, operation, request).await.unwrap_err();
        assert_eq!((operation, refused.code), (operation, Code::Unreachable));
        assert!(refused.retryable);
        let after = harness.status(&id).await;
        assert_eq!(
            (after.state, after.expires_at),
            (before.state, before.expires_at),
            "{operation}"
        );
        let snapshots = harness.service.snapshots(&caller("u1"), stockade_api::Names {}).await;
        assert_eq!(snapshots.unwrap(), []);
    }
    // It goes on as if nothing had been.
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "text");
    assert_eq!(harness.kinds().await, [Kind::SandboxCreated]);
}

#[tokio::test]
async fn a_start_that_fails_keeps_the_files() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    harness.write(&id, "/w/f", "kept").await.unwrap();
    ask(&harness, "stop", json!({"id": id})).await.unwrap();
    for call in ["create", "renew"] {
        harness.fake.fail_next(call, Error::Exhausted("no room".to_owned()));
        ask(&harness, "start", json!({"id": id})).await.unwrap_err();
        assert_eq!((harness.status(&id).await.state, harness.held().await), (State::Error, 0));
        harness.service.sweep().await;
    }
    ask(&harness, "start", json!({"id": id})).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "kept");
    // The files of the stop are let go of, and a later stop keeps what is there then.
    harness
        .eventually(async || harness.fake.snapshots().await.unwrap().is_empty().then_some(()))
        .await;
    harness.write(&id, "/w/f", "changed").await.unwrap();
    ask(&harness, "stop", json!({"id": id})).await.unwrap();
    ask(&harness, "start", json!({"id": id})).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "changed");
}

#[tokio::test]
async fn what_nobody_knows_is_removed_and_what_is_foreign_stays() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    // A cleanup that fails leaks; what others made in the same runtime is theirs.
    harness.fake.fail_next("cleanup", unreachable());
    ask(&harness, "kill", json!({"id": id})).await.unwrap();
    let foreign = SandboxSpec { root: Root::Host, ..SandboxSpec::default() };
    let name = SandboxId::new("foreign").unwrap();
    harness.fake.create(&name, &foreign).await.unwrap();
    let others = harness::Harness::new().await;
    let mut labels = std::collections::BTreeMap::new();
    labels.insert("stockade.dev/service".to_owned(), "another".to_owned());
    let theirs = SandboxId::new("theirs").unwrap();
    harness.fake.create(&theirs, &SandboxSpec { labels, ..foreign }).await.unwrap();
    drop(others);
    assert_eq!(harness.held().await, 3);
    // Nor is it taken for ours because somebody asks for its id.
    let request = CreateSandbox { id: Some(name.clone()), ..CreateSandbox::default() };
    assert_eq!(harness.create(request).await.unwrap_err().code, Code::Conflict);
    ask(&harness, "start", json!({"id": name})).await.unwrap_err();
    ask(&harness, "kill", json!({"id": name})).await.unwrap();
    assert_eq!(harness.held().await, 3);
    // One that is being made has a row before it is in the runtime.
    harness.gate.hold("create", Side::Behind);
    let made = harness.spawn(|service| async move {
        service.create(&caller("u1"), CreateSandbox::default()).await
    });
    harness.gate.holds(1).await;
    harness.service.sweep().await;
    assert_eq!(harness.held().await, 3, "the leak is gone, the others are there");
    harness.gate.open();
    let made = made.await.unwrap().unwrap();
    harness.service.sweep().await;
    assert_eq!((made.state, harness.held().await), (State::Running, 3));
}

#[tokio::test]
async fn a_watcher_that_was_given_up_watches_again() {
    let mut harness = Harness::watchful().await;
    let id = harness.sandbox().await;
    let given_up = "UPDATE workflow_status SET status = 'MAX_RECOVERY_ATTEMPTS_EXCEEDED' \
        WHERE name = 'sandbox.watch'";
    harness.tamper(given_up).await;
    harness.kill().await;
    harness.fake.crash();
    harness.until(&id, State::Terminated).await;
}

#[tokio::test]
async fn an_idle_sandbox_is_paused_and_resumed_by_its_next_use() {
    let harness = Harness::watchful().await;
    let idle_timeout_seconds = Some(0.2);
    let request = CreateSandbox { idle_timeout_seconds, ..CreateSandbox::default() };
    let id = harness.create(request).await.unwrap().id;
    for _ in 0..3 {
        let paused = harness.until(&id, State::Paused).await;
        assert_eq!(paused.reason.as_deref(), Some("idle"));
        let execute = program(&id, &["echo", "x"]);
        let used = harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await;
        assert_eq!(used.unwrap().stdout.lossy(), "x\n");
    }
    // One that its owner paused stays paused.
    harness.until(&id, State::Paused).await;
    ask(&harness, "resume", json!({"id": id})).await.unwrap();
    ask(&harness, "pause", json!({"id": id})).await.unwrap();
    let refused = ask(&harness, "execute", json!({"sandboxId": id, "command": ["true"]})).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidState);
    let told = harness.kinds().await;
    let count = |kind| told.iter().filter(|told| **told == kind).count();
    assert_eq!((count(Kind::SandboxPaused), count(Kind::SandboxResumed)), (5, 4));
}

#[tokio::test]
async fn a_use_never_meets_a_sandbox_that_is_just_being_paused() {
    let harness =
        Harness::with(Options { watch_interval: Duration::from_millis(1), ..Options::default() });
    let harness = harness.await;
    let idle_timeout_seconds = Some(0.001);
    let request = CreateSandbox { idle_timeout_seconds, ..CreateSandbox::default() };
    let id = harness.create(request).await.unwrap().id;
    for _ in 0..60 {
        let execute = program(&id, &["echo", "x"]);
        let used = harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await;
        assert_eq!(used.unwrap().end.ending, Ending::Exited);
    }
}

#[tokio::test]
async fn a_sandbox_in_use_is_not_idle_and_an_idle_one_may_end() {
    let harness = Harness::watchful().await;
    let request = CreateSandbox {
        idle_timeout_seconds: Some(0.1),
        on_idle: IdleAction::Terminate,
        ..CreateSandbox::default()
    };
    let id = harness.create(request).await.unwrap().id;
    let execute = program(&id, &["sleep", "0.6"]);
    let used = harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await;
    assert_eq!(used.unwrap().end.ending, Ending::Exited);
    let ended = harness.until(&id, State::Terminated).await;
    assert_eq!(ended.reason.as_deref(), Some("idle"));
}

#[tokio::test]
async fn a_life_ends_also_while_it_is_paused() {
    let harness = Harness::new().await;
    let request = CreateSandbox { expiry: Expiry::Seconds(0.5), ..CreateSandbox::default() };
    let id = harness.create(request).await.unwrap().id;
    ask(&harness, "pause", json!({"id": id})).await.unwrap();
    let ended = harness.until(&id, State::Terminated).await;
    assert_eq!(ended.reason.as_deref(), Some("expired"));
    assert_eq!(harness.held().await, 0);
}

#[tokio::test]
async fn two_who_race_for_an_id_or_a_name_get_one_sandbox() {
    let harness = Harness::new().await;
    let id = Some(SandboxId::new("sb1").unwrap());
    let named = CreateSandbox { id, ..CreateSandbox::default() };
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let request = named.clone();
            harness.spawn(|s| async move { s.create(&caller("u1"), request).await })
        })
        .collect();
    let mut won = 0;
    for racer in racers {
        match racer.await.unwrap() {
            Ok(_) => won += 1,
            Err(problem) => assert_eq!(problem.code, Code::Conflict),
        }
    }
    assert_eq!(won, 1);
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let request = CreateSandbox::default();
            harness.spawn(|s| async move { s.create(&caller("u1").once("k"), request).await })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for racer in racers {
        ids.insert(racer.await.unwrap().unwrap().id);
    }
    assert_eq!((ids.len(), harness.held().await), (1, 2));
}

#[tokio::test]
async fn pause_and_kill_race_to_an_end() {
    for _ in 0..10 {
        let harness = Harness::new().await;
        let id = harness.sandbox().await;
        let (pause, kill) = (by_id(&id), by_id(&id));
        let paused = harness.spawn(|s| async move { s.pause(&caller("u1"), pause).await });
        let killed = harness.spawn(|s| async move { s.kill(&caller("u1"), kill).await });
        assert_eq!(killed.await.unwrap().unwrap().state, State::Terminated);
        if let Err(problem) = paused.await.unwrap() {
            assert_eq!(problem.code, Code::SandboxTerminated);
        }
        assert_eq!(harness.status(&id).await.state, State::Terminated);
        assert_eq!(harness.kinds().await.last(), Some(&Kind::SandboxKilled));
    }
}

#[tokio::test]
async fn a_command_whose_sandbox_is_killed_ends_and_is_told() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let execute = program(&id, &["sleep", "1000"]);
    let running = harness.spawn(|s| async move { s.execute(&caller("u1"), execute).await });
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    ask(&harness, "kill", json!({"id": id})).await.unwrap();
    let executed = running.await.unwrap().unwrap();
    assert_eq!((executed.end.ending, executed.end.exit_code), (Ending::SandboxEnded, None));
    let mut told = harness.kinds().await;
    told.sort();
    let expected = [Kind::SandboxCreated, Kind::SandboxKilled, Kind::CommandCompleted];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let running: Vec<_> = (0..100)
        .map(|number| {
            let execute = program(&id, &["echo", &number.to_string()]);
            harness.spawn(|s| async move { s.execute(&caller("u1"), execute).await })
        })
        .collect();
    for (number, running) in running.into_iter().enumerate() {
        assert_eq!(running.await.unwrap().unwrap().stdout.lossy(), format!("{number}\n"));
    }
    assert_eq!(harness.kinds().await.len(), 101);
    assert!(format!("{:?}", harness.service).contains("Pending(0)"));
}

#[tokio::test]
async fn nobody_gets_more_than_a_quota_and_others_get_theirs() {
    let quotas = Quotas { sandboxes: 3, snapshots: 1 };
    let harness = Harness::with(Options { quotas, ..Options::default() }).await;
    let asked: Vec<_> = (0..10)
        .map(|_| {
            harness
                .spawn(|s| async move { s.create(&caller("u1"), CreateSandbox::default()).await })
        })
        .collect();
    let mut made = Vec::new();
    for asked in asked {
        match asked.await.unwrap() {
            Ok(sandbox) => made.push(sandbox.id),
            Err(problem) => assert_eq!(problem.code, Code::QuotaExceeded),
        }
    }
    assert_eq!(made.len(), 3);
    let theirs =
        harness.run(|s| async move { s.create(&caller("u2"), CreateSandbox::default()).await });
    theirs.await.unwrap();
    ask(&harness, "snapshot", json!({"sandboxId": made[0]})).await.unwrap();
    let refused = ask(&harness, "snapshot", json!({"sandboxId": made[0]})).await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded);
    ask(&harness, "kill", json!({"id": made[0]})).await.unwrap();
    harness.sandbox().await;
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let harness = Harness::new().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(harness.sandbox().await);
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let request = ListSandboxes { after, limit: Some(3), ..ListSandboxes::default() };
        let page = harness.service.list(&caller("u1"), request).await.unwrap();
        listed.extend(page.sandboxes.into_iter().map(|sandbox| sandbox.id));
        if !page.more {
            break;
        }
        after = listed.last().cloned();
    }
    listed.sort();
    made.sort();
    assert_eq!(listed, made);
    let request = ListSandboxes { after: Some(made[0].clone()), ..ListSandboxes::default() };
    assert_eq!(
        harness.service.list(&caller("u2"), request).await.unwrap_err().code,
        Code::NotFound
    );
}

#[tokio::test]
async fn events_are_followed_from_an_offset() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let first = harness.events().await[0].clone();
    let request = ReadEvents { after: first.seq, follow: true, sandbox_id: Some(id.clone()) };
    let read = harness.run(|s| async move { s.read_events(&caller("u1"), request).await });
    let mut followed = read.await.unwrap();
    harness.sandbox().await;
    for operation in ["pause", "resume", "kill"] {
        ask(&harness, operation, json!({"id": id})).await.unwrap();
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = followed.next().await.unwrap().unwrap();
        assert!(event.seq > first.seq);
        told.push(event.payload.kind());
    }
    assert_eq!(told, [Kind::SandboxPaused, Kind::SandboxResumed, Kind::SandboxKilled]);
    let ids: std::collections::BTreeSet<_> =
        harness.events().await.into_iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), 5, "each has an id of its own");
}

#[tokio::test]
async fn a_cancelled_operation_ends_its_command() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let operation = harness.stream(program(&id, &["sleep", "1000"])).await;
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    let cancelled = ask(&harness, "cancel_operation", json!(operation)).await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
    harness
        .eventually(async || {
            let status = harness.fake.inspect(&id).await.unwrap();
            status.execs.iter().all(|exec| exec.ending == Some(Ended::Killed)).then_some(())
        })
        .await;
    // What is left of it is let go of.
    harness.service.sweep().await;
    assert_eq!(harness.fake.inspect(&id).await.unwrap().execs, []);
    // What makes, changes or watches a sandbox is not cut in two.
    let workflow = harness.status(&id).await.workflow_id.unwrap();
    let ended = ask(&harness, "cancel_operation", json!(workflow)).await.unwrap();
    assert_eq!(ended["status"], "succeeded");
    harness.gate.hold("pause", Side::Before);
    let pause = by_id(&id);
    let pausing = harness.spawn(|s| async move { s.pause(&caller("u1").once("k"), pause).await });
    harness.gate.holds(1).await;
    let key = harness.service.engine().list(stockade_durable::Filter {
        name: Some("sandbox.pause".to_owned()),
        ..Default::default()
    });
    let workflow = key.await.unwrap()[0].id.as_str().to_owned();
    let refused = ask(&harness, "cancel_operation", json!(workflow)).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidState);
    harness.gate.open();
    assert_eq!(pausing.await.unwrap().unwrap().state, State::Paused);
}

#[tokio::test]
async fn a_cancelled_tool_ends_what_it_began() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let request = json!({"sandboxId": id, "tool": "shell", "arguments": {"command": "sleep 1000"}});
    let calling = harness.spawn(|s| async move {
        let request = serde_json::to_vec(&request).unwrap();
        dispatch(&s, &caller("u1"), "run_tool", &request).await
    });
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    let filter = stockade_durable::Filter {
        name: Some("sandbox.run_tool".to_owned()),
        ..Default::default()
    };
    let workflow = harness.service.engine().list(filter).await.unwrap()[0].id.clone();
    ask(&harness, "cancel_operation", json!(workflow)).await.unwrap();
    assert_eq!(calling.await.unwrap().unwrap_err().code, Code::Cancelled);
    harness
        .eventually(async || {
            let status = harness.fake.inspect(&id).await.unwrap();
            status.execs.iter().all(|exec| exec.ending.is_some()).then_some(())
        })
        .await;
}

#[tokio::test]
async fn an_orderly_end_leaves_commands_to_the_next_service() {
    let mut harness = Harness::new().await;
    let door = Arc::new(Semaphore::new(0));
    let waiting = door.clone();
    harness.fake.program("wait", move |process| {
        let waiting = waiting.clone();
        async move {
            drop(waiting.acquire().await);
            process.print("done");
            Ended::Exited(0)
        }
    });
    let id = harness.sandbox().await;
    let operation = harness.stream(program(&id, &["wait"])).await;
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    harness.run(|s| async move { s.shutdown(Duration::from_millis(50)).await }).await;
    harness.kill().await;
    door.add_permits(1);
    let ended = harness.ended(&operation).await;
    assert_eq!(ended.status, OperationStatus::Succeeded);
    assert_eq!(ended.result.unwrap()["exitCode"], 0);
    assert_eq!(harness.fake.calls("kill"), 0);
}

#[tokio::test]
async fn a_runtime_that_hangs_holds_nobody_for_ever() {
    let deadline = Duration::from_millis(200);
    let harness = Harness::with(Options { deadline, ..Options::default() }).await;
    let id = harness.sandbox().await;
    harness.gate.hold("pause", Side::Before);
    let refused = ask(&harness, "pause", json!({"id": id})).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    harness.gate.open();
    assert_eq!(ask(&harness, "kill", json!({"id": id})).await.unwrap()["state"], "terminated");
}

#[tokio::test]
async fn damaged_rows_are_good_for_nothing_and_in_nobodys_way() {
    let mut harness = Harness::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(harness.sandbox().await);
    }
    for id in &ids {
        harness.write(id, "/w/f", "text").await.unwrap();
    }
    let id = |index: usize| format!("WHERE id = '{}'", ids[index]);
    for sql in [
        format!("UPDATE sandbox_instances SET access_rules = 'no rules' {}", id(0)),
        format!("UPDATE sandbox_instances SET spec = '{{\"from\": \"later\"}}' {}", id(1)),
    ] {
        harness.tamper(sql.leak()).await;
    }
    harness.kill().await;
    let refused = harness.read(&ids[0], "/w/f").await.unwrap_err();
    assert_eq!(refused.code, Code::RuleInvalid);
    let refused = harness.read(&ids[1], "/w/f").await.unwrap_err();
    assert_eq!(refused.code, Code::DatabaseInvalid);
    assert_eq!(harness.read(&ids[2], "/w/f").await.unwrap(), "text");
    let list = harness.service.list(&caller("u1"), ListSandboxes::default()).await.unwrap();
    assert_eq!(list.sandboxes.len(), 3);
    harness.service.sweep().await;
    assert_eq!(harness.held().await, 3, "what cannot be read is not removed");
    for id in &ids {
        ask(&harness, "kill", json!({"id": id})).await.unwrap();
    }
    assert_eq!(harness.held().await, 0);
}

#[tokio::test]
async fn queued_commands_wait_for_their_turn_and_inline_ones_do_not() {
    let options = Options { worker_concurrency: 3, ..Options::default() };
    let harness = Harness::with(options).await;
    let (door, id) = (Arc::new(Semaphore::new(0)), harness.sandbox().await);
    let waiting = door.clone();
    harness.fake.program("wait", move |_| {
        let waiting = waiting.clone();
        async move {
            if let Ok(pass) = waiting.acquire().await {
                pass.forget();
            }
            Ended::Exited(0)
        }
    });
    let mut operations = Vec::new();
    for _ in 0..8 {
        let mut execute = program(&id, &["wait"]);
        execute.queued = true;
        operations.push(harness.stream(execute).await);
    }
    harness.eventually(async || (harness.fake.calls("execute") == 3).then_some(())).await;
    let execute = program(&id, &["true"]);
    harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await.unwrap();
    assert_eq!(harness.fake.calls("execute"), 4, "the queue lets three run");
    let waits = harness.service.operation(&caller("u1"), operations[7].clone()).await.unwrap();
    assert_eq!(waits.status, OperationStatus::Waiting);
    door.add_permits(8);
    for operation in &operations {
        assert_eq!(harness.ended(operation).await.status, OperationStatus::Succeeded);
    }
    let mut execute = program(&id, &["true"]);
    execute.queued = true;
    let refused = harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidInput);
}

#[tokio::test]
async fn a_name_that_is_used_again_leaves_nothing_behind() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    for _ in 0..3 {
        let mut execute = program(&id, &["cat"]);
        execute.stdin = Some(b"once".into());
        let done =
            harness.run(|s| async move { s.execute(&caller("u1").once("k"), execute).await });
        assert_eq!(done.await.unwrap().stdout.lossy(), "once");
    }
    let mut execute = program(&id, &["cat"]);
    execute.stdin = Some(b"other".into());
    let refused = harness.run(|s| async move { s.execute(&caller("u1").once("k"), execute).await });
    assert_eq!(refused.await.unwrap_err().code, Code::Conflict);
    assert!(format!("{:?}", harness.service).contains("Pending(0)"));
}

#[tokio::test]
async fn contents_are_nowhere_in_the_database() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    const SECRET: &str = "s3cr3t-canary";
    let never = |what: &str| assert!(!harness.database_holds(SECRET), "{what}");

    let mut execute = program(&id, &["true"]);
    execute.stdin = Some(SECRET.as_bytes().into());
    harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await.unwrap();
    never("what a command reads");
    harness.write(&id, "/w/f", SECRET).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), SECRET);
    never("what is written to a file and read");
    let edits = json!([{"path": "/w/f", "old": SECRET, "new": format!("{SECRET}!")}]);
    ask(&harness, "replace_text", json!({"sandboxId": id, "edits": edits})).await.unwrap();
    never("what is replaced");
    for (tool, arguments) in [
        ("file_write", json!({"path": "/w/g", "content": SECRET})),
        ("file_read", json!({"path": "/w/g"})),
    ] {
        let request = json!({"sandboxId": id, "tool": tool, "arguments": arguments});
        let answer = ask(&harness, "run_tool", request).await.unwrap();
        assert_eq!(answer["status"], "ok");
        never(tool);
    }
    let request = json!({
        "sandboxId": id, "port": 80, "method": "POST", "path": format!("/{SECRET}"),
        "headers": {"authorization": SECRET}, "body": SECRET,
    });
    assert_eq!(ask(&harness, "http_request", request).await.unwrap_err().code, Code::Unreachable);
    never("what is sent to a port");
    assert!(harness.database_holds("sandbox.run_tool"), "there is something to be found");
}
