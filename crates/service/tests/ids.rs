//! The ids of sandboxes: an id is free when its sandbox has ended, however that happened, and a sandbox
//! that could not be created leaves nothing. Operations whose end is reached already succeed.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use harness::{Harness, caller};
use serde_json::json;
use stockade_api::{
    CreateSandbox, Expiry, ExpiryAction, ListSandboxes, ReadEvents, Sandboxes as _,
};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId, State};
use stockade_runtime::{Error, Runtime as _};

fn demo() -> SandboxId {
    SandboxId::new("demo").unwrap()
}

fn named() -> CreateSandbox {
    CreateSandbox { id: Some(demo()), ..CreateSandbox::default() }
}

/// The kinds of the events of a sandbox.
async fn kinds(harness: &Harness, id: &SandboxId) -> Vec<Kind> {
    let request = ReadEvents { sandbox_id: Some(id.clone()), ..ReadEvents::default() };
    let mut events = harness.service.read_events(&caller("u1"), request).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = events.next().await {
        kinds.push(event.unwrap().payload.kind());
    }
    kinds
}

#[tokio::test]
async fn an_id_is_free_when_its_sandbox_has_ended() {
    let harness = Harness::watchful().await;
    for round in 0..3 {
        harness.create(named()).await.unwrap();
        harness.write(&demo(), "/own", "of this one").await.unwrap();
        let taken = harness.create(named()).await.unwrap_err();
        assert_eq!(taken.code, Code::Conflict, "{round}");
        harness.call("u1", "", "snapshot", json!({"sandboxId": "demo"})).await.unwrap();
        harness.call("u1", "", "kill", json!({"id": "demo"})).await.unwrap();
        // Until the id is used again, it means the ended sandbox.
        assert_eq!(harness.status(&demo()).await.state, State::Terminated);
    }
    // One that ends by itself frees its id too, and the new one has a watcher of its own.
    let soon = CreateSandbox {
        expiry: Expiry::Seconds(0.05),
        on_expiry: Some(ExpiryAction::Terminate),
        ..named()
    };
    harness.create(soon.clone()).await.unwrap();
    harness.until(&demo(), State::Terminated).await;
    harness.create(soon).await.unwrap();
    harness.until(&demo(), State::Terminated).await;
    // Every event of each is recorded, and only those of the last one are under the id.
    assert_eq!(kinds(&harness, &demo()).await, [Kind::SandboxCreated, Kind::SandboxKilled]);
    let request = ListSandboxes { states: vec![State::Terminated], ..ListSandboxes::default() };
    let ended = harness.service.list(&caller("u1"), request).await.unwrap().sandboxes;
    assert_eq!(ended.len(), 5);
    for sandbox in ended.iter().filter(|sandbox| sandbox.id != demo()) {
        assert!(sandbox.id.as_str().starts_with("demo-"), "{}", sandbox.id);
        let mut of_it = kinds(&harness, &sandbox.id).await;
        of_it.retain(|kind| *kind != Kind::FilesCopied);
        assert_eq!(of_it, [Kind::SandboxCreated, Kind::SandboxKilled], "{}", sandbox.id);
    }
    let snapshots = harness.service.snapshots(&caller("u1"), stockade_api::Empty {}).await.unwrap();
    assert_eq!(snapshots.len(), 3);
    assert!(snapshots.iter().all(|snapshot| snapshot.sandbox_id != demo()));
    harness.create(named()).await.unwrap();
    assert_eq!(harness.read(&demo(), "/own").await.unwrap_err().code, Code::FileNotFound);
}

#[tokio::test]
async fn an_id_is_free_although_its_removal_failed() {
    let harness = Harness::new().await;
    harness.create(named()).await.unwrap();
    harness.fake.fail_next("cleanup", Error::Exhausted("not now".to_owned()));
    harness.call("u1", "", "kill", json!({"id": "demo"})).await.unwrap();
    let other = CreateSandbox { default_uid: Some(7), ..named() };
    assert_eq!(harness.create(other).await.unwrap().state, State::Running);
    harness.service.sweep().await;
    assert_eq!(harness.status(&demo()).await.state, State::Running);
}

#[tokio::test]
async fn what_could_not_be_created_leaves_nothing() {
    let harness = Harness::watchful().await;
    for failing in ["create", "renew"] {
        harness.fake.fail_next("create", Error::Invalid(failing.to_owned()));
        let refused = harness.create(named()).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidInput);
        let request = ListSandboxes { states: State::ALL.to_vec(), ..ListSandboxes::default() };
        let left = harness.service.list(&caller("u1"), request).await.unwrap();
        assert_eq!(left.sandboxes, []);
        assert_eq!(harness.kinds().await, []);
        assert_eq!(harness.sandbox_count().await, 0);
    }
    let soon = CreateSandbox { expiry: Expiry::Seconds(0.05), ..named() };
    harness.create(soon).await.unwrap();
    // It is watched.
    harness.until(&demo(), State::Stopped).await;
}

#[tokio::test]
async fn a_sandbox_that_is_there_already_is_not_changed() {
    let harness = Harness::new().await;
    harness.create(named()).await.unwrap();
    let ask = async |operation: &'static str| {
        let answer = harness.call("u1", "", operation, json!({"id": "demo"})).await.unwrap();
        answer["state"].as_str().unwrap().to_owned()
    };
    for (operation, state) in [
        ("start", "running"),
        ("resume", "running"),
        ("pause", "paused"),
        ("stop", "stopped"),
        ("stop", "stopped"),
        ("start", "running"),
        ("start", "running"),
        ("stop", "stopped"),
        ("kill", "terminated"),
        ("kill", "terminated"),
    ] {
        assert_eq!(ask(operation).await, state, "{operation}");
    }
    assert_eq!(
        kinds(&harness, &demo()).await,
        [
            Kind::SandboxCreated,
            Kind::SandboxPaused,
            Kind::SandboxStopped,
            Kind::SandboxStarted,
            Kind::SandboxStopped,
            Kind::SandboxKilled,
        ]
    );
}

#[tokio::test]
async fn files_of_a_stopped_or_paused_sandbox_can_be_stored() {
    let harness = Harness::new().await;
    harness.create(named()).await.unwrap();
    harness.write(&demo(), "/own", "kept").await.unwrap();
    for (state, id) in [("pause", "of-paused"), ("stop", "of-stopped")] {
        harness.call("u1", "", state, json!({"id": "demo"})).await.unwrap();
        let request = json!({"sandboxId": "demo", "id": id});
        let taken = harness.call("u1", "", "snapshot", request).await.unwrap();
        assert_eq!(taken["sandboxId"], "demo");
        let copy = format!("{id}-restored");
        let request = json!({"snapshotId": id, "sandbox": {"id": copy}});
        harness.call("u1", "", "restore", request).await.unwrap();
        let copy = SandboxId::new(copy).unwrap();
        assert_eq!(harness.read(&copy, "/own").await.unwrap(), "kept", "{state}");
    }
    // What was needed for the copies is gone, and the stopped sandbox is as before.
    assert_eq!(harness.fake.list(&std::collections::BTreeMap::new()).await.unwrap().len(), 3);
    harness.service.sweep().await;
    harness.call("u1", "", "start", json!({"id": "demo"})).await.unwrap();
    assert_eq!(harness.read(&demo(), "/own").await.unwrap(), "kept");
}
