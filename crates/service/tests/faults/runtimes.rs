//! Failures of a runtime, and its contents that have no record.

use std::time::Duration;

use serde_json::json;
use stockade_api::{CreateSandbox, Sandboxes as _};
use stockade_core::event::Kind;
use stockade_core::sandbox::Root;
use stockade_core::{Code, SandboxId, SandboxSpec, State};
use stockade_runtime::{Error, Runtime as _};
use stockade_service::Options;

use crate::harness::{self, Harness, Side, caller};
use crate::{call, unreachable};

#[tokio::test]
async fn a_runtime_that_fails_changes_nothing() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    harness.write(&id, "/w/f", "text").await.unwrap();
    let on = json!({"sandboxId": id, "path": "/w/f"});
    for (failing, operation, request) in [
        ("pause", "pause", json!({"id": id})),
        ("end", "stop", json!({"id": id})),
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
        harness.fake.fail_next(failing, unreachable());
        let refused = call(&harness, operation, request).await.unwrap_err();
        assert_eq!((operation, refused.code), (operation, Code::Unreachable));
        assert!(refused.retryable);
        let after = harness.status(&id).await;
        assert_eq!(
            (after.state, after.expires_at),
            (before.state, before.expires_at),
            "{operation}"
        );
        let snapshots = harness.service.snapshots(&caller("u1"), stockade_api::Empty {}).await;
        assert_eq!(snapshots.unwrap(), []);
    }
    // It continues as if nothing had happened.
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "text");
    assert_eq!(harness.kinds().await, [Kind::SandboxCreated]);
}

#[tokio::test]
async fn a_start_that_fails_keeps_the_files() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    harness.write(&id, "/w/f", "kept").await.unwrap();
    call(&harness, "stop", json!({"id": id})).await.unwrap();
    for failing in ["create", "renew"] {
        harness.fake.fail_next(failing, Error::Exhausted("no room".to_owned()));
        call(&harness, "start", json!({"id": id})).await.unwrap_err();
        assert_eq!(
            (harness.status(&id).await.state, harness.sandbox_count().await),
            (State::Error, 0)
        );
        harness.service.sweep().await;
    }
    call(&harness, "start", json!({"id": id})).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "kept");
    // The files of the stop are removed, and a later stop stores the current ones.
    harness
        .eventually(async || harness.fake.snapshots().await.unwrap().is_empty().then_some(()))
        .await;
    harness.write(&id, "/w/f", "changed").await.unwrap();
    call(&harness, "stop", json!({"id": id})).await.unwrap();
    call(&harness, "start", json!({"id": id})).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), "changed");
}

#[tokio::test]
async fn what_nobody_knows_is_removed_and_what_is_foreign_stays() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    // A failed cleanup leaks; sandboxes of others in the same runtime stay.
    harness.fake.fail_next("cleanup", unreachable());
    call(&harness, "kill", json!({"id": id})).await.unwrap();
    let foreign = SandboxSpec { root: Root::Host, ..SandboxSpec::default() };
    let name = SandboxId::new("foreign").unwrap();
    harness.fake.create(&name, &foreign).await.unwrap();
    let others = harness::Harness::new().await;
    let mut labels = std::collections::BTreeMap::new();
    labels.insert("stockade.dev/service".to_owned(), "another".to_owned());
    let theirs = SandboxId::new("theirs").unwrap();
    harness.fake.create(&theirs, &SandboxSpec { labels, ..foreign }).await.unwrap();
    drop(others);
    // The service may have removed the leak by itself already.
    assert!(harness.sandbox_count().await >= 2);
    // A request for its id does not make it ours either.
    let request = CreateSandbox { id: Some(name.clone()), ..CreateSandbox::default() };
    assert_eq!(harness.create(request).await.unwrap_err().code, Code::Conflict);
    call(&harness, "start", json!({"id": name})).await.unwrap_err();
    call(&harness, "kill", json!({"id": name})).await.unwrap_err();
    assert!(harness.sandbox_count().await >= 2);
    // A sandbox that is being created has a row before it is in the runtime.
    harness.gate.hold("create", Side::After);
    let created = harness.spawn(|service| async move {
        service.create(&caller("u1"), CreateSandbox::default()).await
    });
    harness.gate.wait_for_held(1).await;
    harness.service.sweep().await;
    assert_eq!(harness.sandbox_count().await, 3, "the leak is gone, the others are there");
    harness.gate.open();
    let created = created.await.unwrap().unwrap();
    harness.service.sweep().await;
    assert_eq!((created.state, harness.sandbox_count().await), (State::Running, 3));
}

#[tokio::test]
async fn a_runtime_that_hangs_holds_nobody_for_ever() {
    let deadline = Duration::from_millis(200);
    let harness = Harness::with(Options { deadline, ..Options::default() }).await;
    let id = harness.sandbox().await;
    harness.gate.hold("pause", Side::Before);
    let refused = call(&harness, "pause", json!({"id": id})).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    harness.gate.open();
    assert_eq!(call(&harness, "kill", json!({"id": id})).await.unwrap()["state"], "terminated");
}

/// An operation that waits for a runtime yields to a kill.
#[tokio::test]
async fn a_kill_does_not_wait_for_a_runtime_that_hangs() {
    for (failing, operation) in [("create", "create"), ("pause", "pause"), ("end", "stop")] {
        let harness = Harness::new().await;
        let id = SandboxId::new("sb1").unwrap();
        if operation != "create" {
            call(&harness, "create", json!({"id": id})).await.unwrap();
        }
        harness.gate.hold(failing, Side::Before);
        let request = serde_json::to_vec(&json!({"id": id})).unwrap();
        let hanging = harness.spawn(move |service| async move {
            stockade_api::dispatch(&service, &caller("u1"), operation, &request).await
        });
        harness.gate.wait_for_held(1).await;
        let killed = call(&harness, "kill", json!({"id": id}));
        let killed = tokio::time::timeout(harness::PATIENCE, killed).await.unwrap().unwrap();
        assert_eq!(killed["state"], "terminated", "{operation}");
        let refused = hanging.await.unwrap().unwrap_err();
        assert_eq!((operation, refused.code), (operation, Code::SandboxTerminated));
        harness.gate.open();
        harness.service.sweep().await;
        assert_eq!(
            (harness.sandbox_count().await, harness.fake.snapshots().await.unwrap().len()),
            (0, 0)
        );
    }
}

#[tokio::test]
async fn a_strangers_kill_makes_nothing_give_way() {
    let harness = Harness::new().await;
    harness.gate.hold("create", Side::Before);
    let making = harness.spawn(|service| async move {
        let id = SandboxId::new("sb1").ok();
        let request = CreateSandbox { id, ..CreateSandbox::default() };
        service.create(&caller("u1"), request).await
    });
    harness.gate.wait_for_held(1).await;
    let by_id = crate::by_id(&SandboxId::new("sb1").unwrap());
    let refused = harness.run(|s| async move { s.kill(&caller("u2"), by_id.into()).await }).await;
    assert_eq!(refused.unwrap_err().code, Code::NotFound);
    harness.gate.open();
    assert_eq!(making.await.unwrap().unwrap().state, State::Running);
}
