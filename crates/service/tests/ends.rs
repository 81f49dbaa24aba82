//! How sandboxes end: whatever ends one, its files remain, or its changes are in one bundle, before
//! any file is removed.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::path::PathBuf;
use std::time::Duration;

use harness::{Harness, Side, caller};
use serde_json::{Value, json};
use stockade_api::{CreateSandbox, Expiry, IdleAction, Problem};
use stockade_core::event::{Kind, Payload, Reason};
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, SandboxId, State};
use stockade_runtime::{EndCause, Error, Runtime as _};
use stockade_service::{Home, Options};
use tempfile::TempDir;

/// A watchful service on a data directory of `u1`, and a project.
struct Scene {
    harness: Harness,
    project: PathBuf,
    place: TempDir,
}

impl Scene {
    async fn set() -> Self {
        let place = tempfile::tempdir().unwrap();
        let project = place.path().join("project");
        std::fs::create_dir_all(project.join(".git")).unwrap();
        std::fs::write(project.join("old"), "old\n").unwrap();
        let home = Home { path: place.path().join("data"), owner: caller("u1").owner };
        let watch_interval = Duration::from_millis(20);
        let options = Options { home: Some(home), watch_interval, ..Options::default() };
        Self { harness: Harness::with(options).await, project, place }
    }

    /// A sandbox that has changed a file of the project.
    async fn at_work(&self, request: CreateSandbox) -> SandboxId {
        let workspace = Workspace { host: self.project.clone(), inside: "/project".into() };
        let request = CreateSandbox { workspace: Some(workspace), ..request };
        let id = self.harness.create(request).await.unwrap().id;
        self.harness.write(&id, "/project/work", "hours\n").await.unwrap();
        self.harness.write(&id, "/own", "own\n").await.unwrap();
        id
    }

    async fn ask(&self, operation: &'static str, request: Value) -> Result<Value, Problem> {
        self.harness.call("u1", "", operation, request).await
    }

    /// The ids of the waiting bundles, each of which has exactly the change of [`Self::at_work`].
    async fn bundles(&self) -> Vec<String> {
        let list = self.ask("bundles", json!({})).await.unwrap();
        assert_eq!(list["views"], json!([]));
        let mut ids = Vec::new();
        for bundle in list["bundles"].as_array().unwrap() {
            let shown = self.ask("show_bundle", json!({"id": bundle["id"]})).await.unwrap();
            let entries = shown["entries"].as_array().unwrap();
            let paths: Vec<_> = entries.iter().map(|it| it["path"].as_str().unwrap()).collect();
            assert_eq!(paths, ["work"]);
            ids.push(bundle["id"].as_str().unwrap().to_owned());
        }
        ids
    }

    /// The events of how sandboxes stopped and ended.
    async fn ends(&self) -> Vec<(Kind, Reason, Option<String>)> {
        let events = self.harness.events().await;
        let end = |payload: Payload| match payload {
            Payload::SandboxStopped(end) => Some((Kind::SandboxStopped, end.reason, end.bundle)),
            Payload::SandboxKilled(end) => Some((Kind::SandboxKilled, end.reason, end.bundle)),
            _ => None,
        };
        events.into_iter().filter_map(|event| end(event.payload)).collect()
    }

    async fn starts_with_its_files(&self, id: &SandboxId) {
        self.ask("start", json!({"id": id})).await.unwrap();
        assert_eq!(self.harness.read(id, "/project/work").await.unwrap(), "hours\n");
        assert_eq!(self.harness.read(id, "/own").await.unwrap(), "own\n");
    }
}

fn expiring() -> CreateSandbox {
    CreateSandbox { expiry: Expiry::Seconds(1.0), ..CreateSandbox::default() }
}

fn lasting() -> CreateSandbox {
    CreateSandbox { expiry: Expiry::Never, ..CreateSandbox::default() }
}

#[tokio::test]
async fn whatever_ends_the_processes_the_files_remain() {
    for (cause, reason) in [
        (None, Reason::Expired),
        (Some(EndCause::ProcessesLost), Reason::ProcessesLost),
        (Some(EndCause::HostRestarted), Reason::HostRestarted),
        (Some(EndCause::LeaseExpired), Reason::Expired),
    ] {
        let scene = Scene::set().await;
        let id = match cause {
            None => scene.at_work(expiring()).await,
            Some(cause) => {
                let id = scene.at_work(lasting()).await;
                scene.harness.fake.end_processes(cause);
                id
            }
        };
        let stopped = scene.harness.until(&id, State::Stopped).await;
        assert_eq!(stopped.reason.as_deref(), Some(reason.as_str()));
        let bundles = scene.bundles().await;
        assert_eq!((bundles.len(), &stopped.bundle), (1, &Some(bundles[0].clone())));
        let removal =
            stopped.remove_at.unwrap().as_ms() / 1000 - jiff::Timestamp::now().as_second();
        assert!((23 * 3600..=24 * 3600).contains(&removal), "{removal}");
        let told = (Kind::SandboxStopped, reason, stopped.bundle.clone());
        assert_eq!(scene.ends().await, [told]);
        // The reaper finds its files, and leaves them.
        scene.harness.service.sweep().await;
        scene.starts_with_its_files(&id).await;
        let again = scene.harness.status(&id).await;
        assert_eq!((again.remove_at, again.bundle), (None, None));
    }
}

#[tokio::test]
async fn a_paused_sandbox_expires_with_its_files() {
    let scene = Scene::set().await;
    let id = scene.at_work(expiring()).await;
    scene.ask("pause", json!({"id": id})).await.unwrap();
    scene.harness.until(&id, State::Stopped).await;
    assert_eq!(scene.bundles().await.len(), 1);
    scene.starts_with_its_files(&id).await;
}

#[tokio::test]
async fn a_start_does_not_wait_for_the_watcher() {
    let scene = Scene::set().await;
    let id = scene.at_work(lasting()).await;
    scene.harness.fake.end_processes(EndCause::ProcessesLost);
    scene.starts_with_its_files(&id).await;
}

#[tokio::test]
async fn files_go_if_the_request_says_so_and_changes_do_not() {
    for is_lost in [false, true] {
        let scene = Scene::set().await;
        let request = if is_lost { lasting() } else { expiring() };
        let id = scene.at_work(stockade_service::fireflow::request(request)).await;
        let reason = if is_lost {
            scene.harness.fake.end_processes(EndCause::ProcessesLost);
            Reason::ProcessesLost
        } else {
            Reason::Expired
        };
        let ended = scene.harness.until(&id, State::Terminated).await;
        let bundles = scene.bundles().await;
        assert_eq!((bundles.len(), &ended.bundle), (1, &Some(bundles[0].clone())));
        assert_eq!(scene.ends().await, [(Kind::SandboxKilled, reason, ended.bundle)]);
        assert_eq!(scene.harness.sandbox_count().await, 0);
        // What it was is still known.
        let refused = scene.ask("collect_changes", json!({"sandboxId": id})).await.unwrap_err();
        assert_eq!(refused.code, Code::SandboxTerminated);
        assert!(refused.remediation.unwrap().contains(&bundles[0][..12]));
    }
}

#[tokio::test]
async fn an_idle_sandbox_stops_or_ends_with_its_changes_in_a_bundle() {
    for (on_idle, state) in
        [(IdleAction::Stop, State::Stopped), (IdleAction::Terminate, State::Terminated)]
    {
        let scene = Scene::set().await;
        let idle_timeout_seconds = Some(0.5);
        let id = scene.at_work(CreateSandbox { on_idle, idle_timeout_seconds, ..lasting() }).await;
        let ended = scene.harness.until(&id, state).await;
        assert_eq!(ended.reason.as_deref(), Some("idle"));
        assert_eq!(scene.bundles().await.len(), 1);
    }
}

#[tokio::test]
async fn a_kill_makes_a_bundle_unless_changes_are_discarded() {
    for discard in [false, true] {
        for state in ["running", "paused", "stopped"] {
            let scene = Scene::set().await;
            let id = scene.at_work(lasting()).await;
            match state {
                "paused" => drop(scene.ask("pause", json!({"id": id})).await.unwrap()),
                "stopped" => drop(scene.ask("stop", json!({"id": id})).await.unwrap()),
                _ => {}
            }
            let request = json!({"id": id, "discard": discard});
            let killed = scene.ask("kill", request).await.unwrap();
            assert_eq!(killed["state"], "terminated");
            let bundles = scene.bundles().await;
            assert_eq!(bundles.len(), usize::from(!discard), "{state}");
            assert_eq!(killed["bundle"].as_str(), bundles.first().map(String::as_str), "{state}");
            assert_eq!(scene.harness.sandbox_count().await, 0);
            scene.harness.service.sweep().await;
            assert_eq!(scene.harness.fake.snapshots().await.unwrap(), []);
        }
    }
}

/// Changes that are in a bundle do not become another one.
#[tokio::test]
async fn the_same_changes_are_in_one_bundle() {
    let scene = Scene::set().await;
    let id = scene.at_work(lasting()).await;
    let collected = scene.ask("collect_changes", json!({"sandboxId": id})).await.unwrap();
    let bundle = collected["bundle"]["id"].as_str().unwrap();
    scene.harness.fake.end_processes(EndCause::ProcessesLost);
    let stopped = scene.harness.until(&id, State::Stopped).await;
    assert_eq!(stopped.bundle.as_deref(), Some(bundle));
    let collected = scene.ask("collect_changes", json!({"sandboxId": id})).await.unwrap();
    assert_eq!(collected["bundle"]["id"], bundle);
    scene.starts_with_its_files(&id).await;
    let killed = scene.ask("kill", json!({"id": id})).await.unwrap();
    assert_eq!(killed["bundle"], bundle);
    assert_eq!(scene.bundles().await, [bundle]);
}

/// The service is killed around each call to the runtime: there is one bundle, and its files remain
/// until it exists.
#[tokio::test]
async fn a_crash_while_it_ends_loses_nothing_and_doubles_nothing() {
    for call in ["end", "changes"] {
        for side in [Side::Before, Side::After] {
            for is_killed in [false, true] {
                let mut scene = Scene::set().await;
                let request = if is_killed { lasting() } else { expiring() };
                let id = scene.at_work(request).await;
                scene.harness.gate.hold(call, side);
                let by_id = stockade_api::KillSandbox::new(id.clone());
                let _cut = is_killed.then(|| {
                    scene.harness.spawn(|service| async move {
                        use stockade_api::Sandboxes as _;
                        service.kill(&caller("u1"), by_id).await
                    })
                });
                scene.harness.gate.wait_for_held(1).await;
                scene.harness.kill().await;
                let state = if is_killed { State::Terminated } else { State::Stopped };
                let ended = scene.harness.until(&id, state).await;
                let bundles = scene.bundles().await;
                assert_eq!((bundles.len(), ended.bundle.as_ref()), (1, bundles.first()), "{call}");
                assert_eq!(scene.ends().await.len(), 1, "{call}");
                if !is_killed {
                    scene.starts_with_its_files(&id).await;
                }
            }
        }
    }
}

/// The record of a bundle is lost with the process that made it: the next one finds the bundle.
#[tokio::test]
async fn a_bundle_that_was_not_recorded_is_found_again() {
    let mut scene = Scene::set().await;
    let id = scene.at_work(lasting()).await;
    scene.harness.fake.end_processes(EndCause::ProcessesLost);
    scene.harness.until(&id, State::Stopped).await;
    let bundles = scene.bundles().await;
    let forget = "UPDATE sandbox_instances SET status = 'running', bundle = NULL, \
        is_bundled = 0, remove_at = NULL";
    scene.harness.tamper(forget).await;
    scene.harness.kill().await;
    let stopped = scene.harness.until(&id, State::Stopped).await;
    assert_eq!(
        (scene.bundles().await, stopped.bundle.as_ref()),
        (bundles.clone(), bundles.first())
    );
}

/// A bundle that cannot be made removes no file, and says so.
#[tokio::test]
async fn nothing_is_removed_without_a_bundle() {
    let scene = Scene::set().await;
    let id = scene.at_work(lasting()).await;
    let moved = scene.place.path().join("moved");
    std::fs::rename(&scene.project, &moved).unwrap();
    let refused = scene.ask("kill", json!({"id": id})).await.unwrap_err();
    assert!(refused.cause.unwrap().contains("its files remain"));
    let kept = scene.harness.status(&id).await;
    assert_eq!(kept.state, State::Stopped);
    assert!(kept.reason.unwrap().starts_with("requested; the changes of the sandbox"));
    std::fs::rename(&moved, &scene.project).unwrap();
    scene.starts_with_its_files(&id).await;
    std::fs::rename(&scene.project, &moved).unwrap();

    // It stops with its files if it expires, also where files would be removed otherwise.
    let expire = "UPDATE sandbox_instances SET expires_at = 1, \
        spec = json_set(spec, '$.onExpiry', 'terminate')";
    scene.harness.tamper(expire).await;
    let kept = scene.harness.until(&id, State::Stopped).await;
    assert!(kept.remove_at.is_some() && scene.harness.sandbox_count().await == 1);
    scene.harness.fake.fail_next("changes", Error::Exhausted("no room".to_owned()));
    scene.ask("kill", json!({"id": id})).await.unwrap_err();
    scene.ask("kill", json!({"id": id, "discard": true})).await.unwrap();
    assert_eq!(scene.harness.sandbox_count().await, 0);
}

#[tokio::test]
async fn files_are_removed_after_a_day_and_never_if_they_are_kept() {
    let scene = Scene::set().await;
    let kept = scene.at_work(CreateSandbox { keep: true, ..expiring() }).await;
    let stopped = scene.harness.until(&kept, State::Stopped).await;
    assert!(stopped.keep && stopped.remove_at.is_none());
    let other = scene.at_work(expiring()).await;
    scene.harness.until(&other, State::Stopped).await;
    let later = "UPDATE sandbox_instances SET remove_at = 1 WHERE remove_at IS NOT NULL";
    scene.harness.tamper(later).await;
    scene.harness.until(&other, State::Terminated).await;
    assert_eq!(scene.harness.status(&kept).await.state, State::Stopped);
    assert_eq!(scene.harness.sandbox_count().await, 1);
    scene.starts_with_its_files(&kept).await;
    let request = json!({"keep": true, "onExpiry": "terminate"});
    assert_eq!(scene.ask("create", request).await.unwrap_err().code, Code::InvalidInput);
}

/// Sandboxes that stopped by themselves do not stand in the way of new ones.
#[tokio::test]
async fn what_will_be_removed_takes_no_place_of_the_quota() {
    let quotas = stockade_service::Quotas { sandboxes: 1, ..Default::default() };
    let watch_interval = Duration::from_millis(20);
    let harness = Harness::with(Options { quotas, watch_interval, ..Options::default() }).await;
    let first = harness.create(lasting()).await.unwrap().id;
    assert_eq!(harness.create(lasting()).await.unwrap_err().code, Code::QuotaExceeded);
    harness.fake.end_processes(EndCause::ProcessesLost);
    harness.until(&first, State::Stopped).await;
    let second = harness.create(lasting()).await.unwrap().id;
    // It counts again when it starts.
    let start = async || harness.call("u1", "", "start", json!({"id": first})).await;
    let refused = start().await.unwrap_err();
    assert_eq!(refused.code, Code::QuotaExceeded);
    let still = harness.status(&first).await;
    assert!(still.state == State::Stopped && still.remove_at.is_some());
    harness.call("u1", "", "kill", json!({"id": second})).await.unwrap();
    start().await.unwrap();
    assert_eq!(harness.create(lasting()).await.unwrap_err().code, Code::QuotaExceeded);
}

#[tokio::test]
async fn a_request_of_an_older_version_is_the_same_request() {
    let harness = Harness::with(Options::default()).await;
    let create = async |request: Value| harness.call("u1", "key", "create", request).await;
    let first = create(json!({})).await.unwrap();
    let again = create(json!({"onExpiry": "terminate"})).await.unwrap();
    assert_eq!(again["id"], first["id"]);
    for other in [json!({"onExpiry": "stop"}), json!({"keep": true}), json!({"cpus": 1})] {
        let is_refused = create(other.clone()).await.is_err();
        assert!(is_refused, "{other}");
    }
}

#[tokio::test]
async fn a_renewed_sandbox_keeps_its_files_longer() {
    let scene = Scene::set().await;
    let id = scene.at_work(expiring()).await;
    let before = scene.harness.until(&id, State::Stopped).await;
    scene.ask("renew", json!({"id": id, "ttlSeconds": 7200})).await.unwrap();
    let after = scene.harness.status(&id).await;
    assert_eq!(after.state, State::Stopped);
    assert!(after.remove_at > before.remove_at);

    // One that never expires, and whose processes were lost.
    let id = scene.at_work(lasting()).await;
    scene.harness.fake.end_processes(EndCause::ProcessesLost);
    let before = scene.harness.until(&id, State::Stopped).await;
    scene.ask("renew", json!({"id": id, "ttlSeconds": 7200})).await.unwrap();
    let after = scene.harness.status(&id).await;
    assert!(after.remove_at > before.remove_at && after.expires_at.is_none());
}
