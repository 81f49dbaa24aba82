//! Concurrent requests for one id, one key, one sandbox, one quota.

use serde_json::json;
use stockade_api::{CreateSandbox, Ending, Sandboxes as _};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId, State};
use stockade_service::{Options, Quotas};

use crate::harness::{Harness, caller, program};
use crate::{by_id, call};

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
            harness.spawn(|s| async move { s.create(&caller("u1").with_key("k"), request).await })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for racer in racers {
        ids.insert(racer.await.unwrap().unwrap().id);
    }
    assert_eq!((ids.len(), harness.sandbox_count().await), (1, 2));
}

#[tokio::test]
async fn pause_and_kill_race_to_an_end() {
    for _ in 0..10 {
        let harness = Harness::new().await;
        let id = harness.sandbox().await;
        let (pause, kill) = (by_id(&id), by_id(&id));
        let paused = harness.spawn(|s| async move { s.pause(&caller("u1"), pause).await });
        let killed = harness.spawn(|s| async move { s.kill(&caller("u1"), kill.into()).await });
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
    call(&harness, "kill", json!({"id": id})).await.unwrap();
    let executed = running.await.unwrap().unwrap();
    assert_eq!((executed.end.ending, executed.end.exit_code), (Ending::SandboxEnded, None));
    let mut kinds = harness.kinds().await;
    kinds.sort();
    let expected = [Kind::SandboxCreated, Kind::SandboxKilled, Kind::CommandCompleted];
    assert_eq!(kinds, expected);
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
    assert!(format!("{:?}", harness.service).contains("Handoffs(0)"));
}

#[tokio::test]
async fn nobody_gets_more_than_a_quota_and_others_get_theirs() {
    let quotas = Quotas { sandboxes: 3, snapshots: 1 };
    let harness = Harness::with(Options { quotas, ..Options::default() }).await;
    let creations: Vec<_> = (0..10)
        .map(|_| {
            harness
                .spawn(|s| async move { s.create(&caller("u1"), CreateSandbox::default()).await })
        })
        .collect();
    let mut created = Vec::new();
    for asked in creations {
        match asked.await.unwrap() {
            Ok(sandbox) => created.push(sandbox.id),
            Err(problem) => assert_eq!(problem.code, Code::QuotaExceeded),
        }
    }
    assert_eq!(created.len(), 3);
    let theirs =
        harness.run(|s| async move { s.create(&caller("u2"), CreateSandbox::default()).await });
    theirs.await.unwrap();
    call(&harness, "snapshot", json!({"sandboxId": created[0]})).await.unwrap();
    let refused = call(&harness, "snapshot", json!({"sandboxId": created[0]})).await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded);
    call(&harness, "kill", json!({"id": created[0]})).await.unwrap();
    harness.sandbox().await;
}

#[tokio::test]
async fn a_name_that_is_used_again_leaves_nothing_behind() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    for _ in 0..3 {
        let mut execute = program(&id, &["cat"]);
        execute.stdin = Some(b"once".into());
        let done =
            harness.run(|s| async move { s.execute(&caller("u1").with_key("k"), execute).await });
        assert_eq!(done.await.unwrap().stdout.lossy(), "once");
    }
    let mut execute = program(&id, &["cat"]);
    execute.stdin = Some(b"other".into());
    let refused =
        harness.run(|s| async move { s.execute(&caller("u1").with_key("k"), execute).await });
    assert_eq!(refused.await.unwrap_err().code, Code::Conflict);
    assert!(format!("{:?}", harness.service).contains("Handoffs(0)"));
}

/// An id of another owner gives the same error as an unavailable id.
#[tokio::test]
async fn a_taken_id_is_told_to_its_owner_only() {
    let harness = Harness::new().await;
    let (id, snapshot) = (harness.sandbox().await, "kept");
    call(&harness, "snapshot", json!({"sandboxId": id, "id": snapshot})).await.unwrap();
    let theirs =
        harness.run(|s| async move { s.create(&caller("u2"), CreateSandbox::default()).await });
    let theirs = theirs.await.unwrap().id;
    for (owner, expected) in [("u1", "is already in use"), ("u2", "is not available")] {
        let request = CreateSandbox { id: Some(id.clone()), ..CreateSandbox::default() };
        let refused = harness.run(|s| async move { s.create(&caller(owner), request).await });
        let refused = refused.await.unwrap_err();
        let texts = (refused.code, refused.message, refused.cause);
        assert_eq!(texts, (Code::Conflict, format!("the id {id} {expected}"), None));
        let sandbox = if owner == "u1" { &id } else { &theirs };
        let request = json!({"sandboxId": sandbox, "id": snapshot});
        let request = serde_json::to_vec(&request).unwrap();
        let refused = harness.run(move |s| async move {
            stockade_api::dispatch(&s, &caller(owner), "snapshot", &request).await
        });
        let refused = refused.await.unwrap_err();
        let texts = (refused.code, refused.message, refused.cause);
        assert_eq!(texts, (Code::Conflict, format!("the id {snapshot} {expected}"), None));
    }
}
