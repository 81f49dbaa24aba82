//! TTLs that expire, and idle sandboxes.

use std::time::Duration;

use serde_json::json;
use stockade_api::{CreateSandbox, Ending, Expiry, IdleAction, Sandboxes as _};
use stockade_core::event::Kind;
use stockade_core::{Code, State};
use stockade_service::Options;

use crate::call;
use crate::harness::{Harness, caller, program};

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
    // A sandbox that its owner paused stays paused.
    harness.until(&id, State::Paused).await;
    call(&harness, "resume", json!({"id": id})).await.unwrap();
    call(&harness, "pause", json!({"id": id})).await.unwrap();
    let refused = call(&harness, "execute", json!({"sandboxId": id, "command": ["true"]})).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidState);
    let kinds = harness.kinds().await;
    let count = |kind| kinds.iter().filter(|told| **told == kind).count();
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
    let request = stockade_service::fireflow::request(request);
    let id = harness.create(request).await.unwrap().id;
    call(&harness, "pause", json!({"id": id})).await.unwrap();
    let ended = harness.until(&id, State::Terminated).await;
    assert_eq!(ended.reason.as_deref(), Some("expired"));
    assert_eq!(harness.sandbox_count().await, 0);
}
