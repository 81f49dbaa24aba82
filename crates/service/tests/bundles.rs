//! Bundles as operations: their owner, repeated requests with the same key, and a single
//! application whatever happens to the service.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::path::{Path, PathBuf};

use harness::{Harness, Side, caller};
use serde_json::{Value, json};
use stockade_api::{OperationId, Problem, dispatch};
use stockade_core::{Code, State};
use stockade_review::Bundles;
use stockade_service::{Home, Options};
use tempfile::TempDir;

/// A service on a data directory of `u1`, and a project.
struct Setup {
    harness: Harness,
    data: PathBuf,
    project: PathBuf,
    _temp_dir: TempDir,
}

impl Setup {
    async fn new() -> Self {
        let temp_dir = tempfile::tempdir().unwrap();
        let (data, project) = (temp_dir.path().join("data"), temp_dir.path().join("project"));
        std::fs::create_dir_all(project.join(".git")).unwrap();
        std::fs::write(project.join("old"), "old\n").unwrap();
        let home = Home { path: data.clone(), owner: caller("u1").owner };
        let harness = Harness::with(Options { home: Some(home), ..Options::default() }).await;
        Self { harness, data, project, _temp_dir: temp_dir }
    }

    /// A bundle that creates some files; returns its id.
    fn bundle(&self, files: &[&str]) -> String {
        harness::bundle(&self.data, &self.project, files)
    }

    async fn call(
        &self,
        owner: &'static str,
        key: &'static str,
        operation: &'static str,
        request: Value,
    ) -> Result<Value, Problem> {
        self.harness.call(owner, key, operation, request).await
    }

    async fn waiting(&self) -> Vec<String> {
        let list = self.call("u1", "", "bundles", json!({})).await.unwrap();
        let bundles = list["bundles"].as_array().unwrap();
        bundles.iter().map(|bundle| bundle["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Fills the database, including its free pages.
    async fn fill_disk(&self) {
        self.harness.fill_disk(true).await;
        for length in [1000, 64, 1, 1, 1] {
            // No id begins like that.
            let unknown = json!({"id": "z".repeat(length)});
            loop {
                let response = self.call("u1", "", "apply_bundle", unknown.clone()).await;
                let problem = response.unwrap_err();
                if problem.code == Code::StorageFull {
                    assert!(problem.retryable && problem.remediation.is_some(), "{problem:?}");
                    break;
                }
                assert_eq!(problem.code, Code::BundleNotFound);
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.project.join(name).exists()
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_bundle_is_its_owners_and_nobody_elses() {
    let scene = Setup::new().await;
    let id = scene.bundle(&["new"]);
    let list = scene.call("u2", "", "bundles", json!({})).await.unwrap();
    assert_eq!(list, json!({"bundles": [], "views": []}));
    for operation in ["show_bundle", "apply_bundle", "reject_bundle"] {
        let strange = scene.call("u2", "", operation, json!({"id": id})).await.unwrap_err();
        let absent = "0".repeat(64);
        let unknown = scene.call("u1", "", operation, json!({"id": absent})).await.unwrap_err();
        assert_eq!(strange.code, Code::BundleNotFound);
        let expected = unknown.message.replace(&absent, &id);
        assert_eq!((strange.message, strange.remediation), (expected, unknown.remediation));
    }
    assert_eq!((scene.waiting().await, scene.has("new")), (vec![id.clone()], false));
    let latest = scene.call("u1", "", "show_bundle", json!({"id": "latest"})).await.unwrap();
    assert_eq!((&latest["id"], &latest["entries"][0]["path"]), (&json!(id), &json!("new")));
}

/// No operation runs that the full disk cannot record, except one that frees space.
#[tokio::test]
async fn on_a_full_disk_nothing_is_done_but_to_reject() {
    let scene = Setup::new().await;
    let (first, second) = (scene.bundle(&["one"]), scene.bundle(&["two"]));
    let sandbox = json!({"id": scene.harness.sandbox().await});
    // A kill removes the files of what has nothing to lose, also when it cannot be recorded.
    let doomed = json!({"id": scene.harness.sandbox().await});
    scene.fill_disk().await;
    for (operation, request) in [
        ("apply_bundle", json!({"id": first})),
        ("pause", sandbox.clone()),
        ("kill", doomed.clone()),
    ] {
        let problem = scene.call("u1", "", operation, request).await.unwrap_err();
        assert_eq!(problem.code, Code::StorageFull, "{operation}");
    }
    let rejected = scene.call("u1", "", "reject_bundle", json!({"id": first})).await.unwrap();
    assert_eq!((&rejected["id"], &rejected["rejected"]), (&json!(first), &json!(true)));
    let strange = scene.call("u2", "", "reject_bundle", json!({"id": second})).await.unwrap_err();
    assert_eq!(strange.code, Code::BundleNotFound);
    assert_eq!((scene.waiting().await, scene.has("one")), (vec![second.clone()], false));
    let recorded = "SELECT name FROM workflow_status WHERE name = 'bundle.reject'";
    assert!(scene.harness.texts(recorded).await.is_empty());

    scene.harness.fill_disk(false).await;
    let found = scene.call("u1", "", "get_status", sandbox.clone()).await.unwrap();
    assert_eq!(found["state"], "running");
    scene.call("u1", "", "apply_bundle", json!({"id": second})).await.unwrap();
    scene.call("u1", "", "pause", sandbox.clone()).await.unwrap();
    scene.call("u1", "", "resume", sandbox.clone()).await.unwrap();
    for killed in [sandbox, doomed] {
        scene.call("u1", "", "kill", killed).await.unwrap();
    }
}

/// Work that started before the disk was full is completed automatically when there is room.
#[tokio::test]
async fn what_a_full_disk_cut_off_goes_on_by_itself() {
    let continues = async |operation: &'static str, call: &'static str, state| {
        let scene = Setup::new().await;
        let id = scene.harness.sandbox().await;
        scene.harness.gate.hold(call, Side::After);
        let request = serde_json::to_vec(&json!({"id": id})).unwrap();
        let pending = scene.harness.spawn(move |service| async move {
            dispatch(&service, &caller("u1"), operation, &request).await.map(drop)
        });
        scene.harness.gate.wait_for_held(1).await;
        scene.fill_disk().await;
        scene.harness.gate.open();
        assert_eq!(pending.await.unwrap().unwrap_err().code, Code::StorageFull, "{operation}");
        assert_eq!(scene.harness.status(&id).await.state, State::Running, "{operation}");
        scene.harness.fill_disk(false).await;
        scene.harness.until(&id, state).await;
    };
    tokio::join!(
        continues("pause", "pause", State::Paused),
        continues("kill", "cleanup", State::Terminated)
    );
}

#[tokio::test]
async fn what_was_decided_is_told_again_under_its_name() {
    let scene = Setup::new().await;
    let first = scene.bundle(&["one"]);
    scene.bundle(&["two"]);
    let latest = json!({"id": "latest"});
    let applied = scene.call("u1", "k", "apply_bundle", latest.clone()).await.unwrap();
    assert_eq!(applied["applied"], json!(["two"]));
    // `latest` is another bundle by now.
    assert_eq!(scene.call("u1", "k", "apply_bundle", latest.clone()).await.unwrap(), applied);
    assert_eq!((scene.has("one"), scene.waiting().await), (false, vec![first.clone()]));
    let rejected = scene.call("u1", "r", "reject_bundle", latest.clone()).await.unwrap();
    assert_eq!((&rejected["id"], &rejected["rejected"]), (&json!(first), &json!(true)));
    assert_eq!(scene.call("u1", "r", "reject_bundle", latest.clone()).await.unwrap(), rejected);
    let refused = scene.call("u1", "r", "apply_bundle", latest.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    let none = scene.call("u1", "", "apply_bundle", latest).await.unwrap_err();
    assert_eq!(none.code, Code::BundleNotFound);
}

/// The changes of a killed service are in the project, but its record lacks them.
#[tokio::test]
async fn what_a_killed_service_had_applied_is_found_applied() {
    let mut scene = Setup::new().await;
    let id = scene.bundle(&["one", "two"]);
    let request = json!({"id": id, "paths": ["one"]});
    let applied = scene.call("u1", "k", "apply_bundle", request.clone()).await.unwrap();
    assert_eq!((&applied["applied"], &applied["done"]), (&json!(["one"]), &json!(false)));
    let workflow = "(SELECT workflow_uuid FROM workflow_status WHERE name = 'bundle.apply')";
    for sql in [
        format!(
            "DELETE FROM operation_outputs WHERE function_id > 1 AND workflow_uuid = {workflow}"
        ),
        format!(
            "UPDATE workflow_status SET status = 'PENDING', output = NULL, \
            completed_at = NULL WHERE workflow_uuid = {workflow}"
        ),
    ] {
        scene.harness.tamper(sql.leak()).await;
    }
    scene.harness.kill().await;
    let again = scene.call("u1", "k", "apply_bundle", request).await.unwrap();
    assert_eq!(again, applied);
    assert_eq!(read(&scene.project.join("one")), "one\n");
    assert_eq!((scene.has("two"), scene.waiting().await), (false, vec![id]));
}

/// A service that is killed between the record of its changes and the end leaves no bundle.
#[tokio::test]
async fn a_bundle_that_is_done_goes_also_after_a_crash() {
    let scene = Setup::new().await;
    let id = scene.bundle(&["one"]);
    let files = Bundles::open(&scene.data).unwrap();
    let request = serde_json::from_value(json!({"id": id})).unwrap();
    assert!(files.apply(&request, false).unwrap().is_done());
    let again = files.apply(&request, true).unwrap();
    assert!(again.is_done());
    assert_eq!(again.into_response().unwrap().applied, ["one".into()]);
    assert!(scene.data.join("bundles").join(&id).exists());
    files.remove_if_decided(&id).unwrap();
    files.remove_if_decided(&id).unwrap();
    assert!(!scene.data.join("bundles").join(&id).exists());
}

#[tokio::test]
async fn a_decision_is_an_operation_with_a_record() {
    let scene = Setup::new().await;
    scene.bundle(&["one"]);
    scene.call("u1", "k", "apply_bundle", json!({"id": "latest"})).await.unwrap();
    let hash = blake3::Hasher::new().update(b"u1\0k").finalize().to_hex();
    let id = OperationId(format!("key-{}", &hash[..40]));
    let info = scene.call("u1", "", "operation", json!(id)).await.unwrap();
    assert_eq!((&info["name"], &info["status"]), (&json!("bundle.apply"), &json!("succeeded")));
    let strange = scene.call("u2", "", "operation", json!(id)).await.unwrap_err();
    assert_eq!(strange.code, Code::NotFound);
}
