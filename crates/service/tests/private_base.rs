//! Which sandboxes get their system directories from a copy: those that ask for it, those of a server
//! that is exposed, and those from a snapshot of such a one.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use harness::Harness;
use serde_json::{Value, json};
use stockade_api::CreateSandbox;
use stockade_core::OwnerId;
use stockade_service::{Options, requested_spec};

/// What the record of each sandbox says, in the order of creation.
async fn recorded(harness: &Harness) -> Vec<Option<bool>> {
    let requests =
        harness.texts("SELECT spec FROM sandbox_instances ORDER BY created_at, id").await;
    let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    requests.into_iter().map(|text| read(text)["privateBase"].as_bool()).collect()
}

#[tokio::test]
async fn an_exposed_server_uses_it_unless_a_request_says_otherwise() {
    let harness = Harness::with(Options::default().for_exposed_server()).await;
    harness.create(CreateSandbox::default()).await.unwrap();
    assert_eq!(recorded(&harness).await, [Some(true)]);
    let without = CreateSandbox { private_base: Some(false), ..CreateSandbox::default() };
    harness.create(without).await.unwrap();
    let mut both = recorded(&harness).await;
    both.sort();
    assert_eq!(both, [Some(false), Some(true)]);
}

#[tokio::test]
async fn another_server_uses_it_on_request_and_for_snapshots() {
    let harness = Harness::new().await;
    harness.create(CreateSandbox::default()).await.unwrap();
    assert_eq!(recorded(&harness).await, [None]);
    let private = CreateSandbox { private_base: Some(true), ..CreateSandbox::default() };
    let made = harness.create(private).await.unwrap();
    let taken = json!({ "sandboxId": made.id, "id": "clean" });
    harness.call("u1", "", "snapshot", taken).await.unwrap();
    let image = Some("snapshot:clean".to_owned());
    harness.create(CreateSandbox { image, ..CreateSandbox::default() }).await.unwrap();
    let mut all = recorded(&harness).await;
    all.sort();
    assert_eq!(all, [None, Some(true), Some(true)]);
}

#[test]
fn the_runtime_is_told() {
    let owner = OwnerId::new("u1").unwrap();
    for (requested, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
        let request = CreateSandbox { private_base: requested, ..CreateSandbox::default() };
        assert_eq!(requested_spec(&request, &owner).unwrap().private_base, expected);
    }
}
