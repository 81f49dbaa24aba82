//! Synchronizations: the service is killed at every call of a runtime, and the next one ends the work as
//! if nothing had happened; and who may name a directory.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use harness::{Harness, Side, caller};
use stockade_api::{Caller, OperationStatus, Problem, Sandboxes as _, SyncFiles, SyncReport, Vfs};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId};
use stockade_service::{Home, Options};

/// A sandbox with a directory, and one of the host.
struct Setup {
    harness: Harness,
    id: SandboxId,
    place: tempfile::TempDir,
}

impl Setup {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let home = Home { path: place.path().join("data"), owner: caller("u1").owner };
        let harness = Harness::with(Options { home: Some(home), ..Options::default() }).await;
        let id = harness.sandbox().await;
        for (path, text) in [("/tmp/w/same", "1"), ("/tmp/w/d/old", "2"), ("/tmp/w/changed", "3")] {
            harness.write(&id, path, text).await.unwrap();
        }
        let setup = Self { harness, id, place };
        fs::create_dir_all(setup.directory().join("new")).unwrap();
        for (name, text) in [("same", "1"), ("new/file", "4"), ("changed", "5"), ("extra", "6")] {
            fs::write(setup.directory().join(name), text).unwrap();
        }
        setup
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("files")
    }

    fn request(&self) -> SyncFiles {
        let directory = self.directory().as_os_str().as_encoded_bytes().to_vec();
        let vfs = Vfs { directory: Some(directory.into()), ..Vfs::default() };
        let path = b"/tmp/w".to_vec();
        SyncFiles { mirror: true, ..SyncFiles::new(self.id.clone(), path, vfs) }
    }

    /// Requests it, and waits for its report.
    async fn sync(&self, into: bool, me: Caller) -> Result<SyncReport, Problem> {
        let request = self.request();
        let started = self.harness.run(move |service| async move {
            match into {
                true => service.sync_from_vfs(&me, request).await,
                false => service.sync_to_vfs(&me, request).await,
            }
        });
        let id = started.await?.workflow_id;
        let mut ended = self.harness.result(&id).await;
        while ended.status == OperationStatus::Running {
            ended = self.harness.result(&id).await;
        }
        match ended.error {
            Some(problem) => Err(problem),
            None => Ok(serde_json::from_value(ended.result.unwrap()).unwrap()),
        }
    }

    /// All files of the sandbox's directory.
    async fn inside(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for name in ["same", "d/old", "changed", "new/file", "extra"] {
            if let Ok(text) = self.harness.read(&self.id, &format!("/tmp/w/{name}")).await {
                files.insert(name.to_owned(), text);
            }
        }
        files
    }

    /// All files of the directory of the host, also those that exist only during a copy.
    fn outside(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        collect(&self.directory(), &self.directory(), &mut files);
        files
    }
}

fn collect(top: &Path, directory: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(top, &path, files);
        } else {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

#[tokio::test]
async fn a_killed_synchronization_ends_as_if_nothing_had_happened() {
    for into in [true, false] {
        let whole = Setup::new().await;
        let expected = whole.sync(into, caller("u1")).await.unwrap();
        let (inside, outside) = (whole.inside().await, whole.outside());
        assert_eq!(inside, outside, "{expected:?}");
        assert!(expected.copied > 0 && expected.deleted > 0 && expected.completed);
        let calls: &[&str] =
            if into { &["pack", "stat", "read_file", "remove", "unpack"] } else { &["pack"] };
        for (call, side) in
            calls.iter().flat_map(|call| [(*call, Side::Before), (*call, Side::After)])
        {
            let mut setup = Setup::new().await;
            setup.harness.gate.hold(call, side);
            let request = setup.request();
            let _cut = setup.harness.spawn(move |service| async move {
                let me = caller("u1").with_key("k");
                match into {
                    true => service.sync_from_vfs(&me, request).await,
                    false => service.sync_to_vfs(&me, request).await,
                }
            });
            setup.harness.gate.wait_for_held(1).await;
            setup.harness.kill().await;
            let report = setup.sync(into, caller("u1").with_key("k")).await.unwrap();
            assert_eq!(report, expected, "{call} {side:?}");
            assert_eq!((setup.inside().await, setup.outside()), (inside.clone(), outside.clone()));
            let kind = if into { Kind::SyncFromVfsCompleted } else { Kind::SyncToVfsCompleted };
            assert_eq!(
                setup.harness.kinds().await,
                [Kind::SandboxCreated, kind],
                "{call} {side:?}"
            );
            let running = setup.place.path().join("data/sync/running");
            assert_eq!(fs::read_dir(running).unwrap().count(), 0, "{call} {side:?}");
        }
    }
}

#[tokio::test]
async fn no_way_out_makes_a_repository() {
    let setup = Setup::new().await;
    for (name, text) in [
        ("HEAD", "ref: refs/heads/x"),
        ("objects/x", ""),
        ("refs/x", ""),
        ("config", "x"),
        ("y", ""),
    ] {
        setup.harness.write(&setup.id, &format!("/tmp/w/r/{name}"), text).await.unwrap();
    }
    let request = SyncFiles {
        mirror: false,
        two_way: true,
        conflict: stockade_api::ConflictPolicy::Skip,
        ..setup.request()
    };
    for into in [true, false] {
        let request = request.clone();
        let started = setup.harness.run(move |service| async move {
            match into {
                true => service.sync_from_vfs(&caller("u1"), request).await,
                false => service.sync_to_vfs(&caller("u1"), request).await,
            }
        });
        let id = started.await.unwrap().workflow_id;
        while setup.harness.result(&id).await.status == OperationStatus::Running {}
        let files = setup.outside();
        let copied: Vec<_> = files.keys().filter(|name| name.starts_with("r/")).collect();
        assert_eq!(copied, ["r/y"], "{into}");
    }
}

#[tokio::test]
async fn only_its_owner_names_directories_of_the_server() {
    let setup = Setup::new().await;
    let calls = setup.harness.runtime_calls();
    let remote = caller("u1").over_network();
    for into in [true, false] {
        let refused = setup.sync(into, remote.clone()).await.unwrap_err();
        assert_eq!(refused.code, Code::VfsForbidden, "{refused:?}");
        let unknown = setup.sync(into, caller("u2")).await.unwrap_err();
        assert_eq!(unknown.code, Code::NotFound, "{unknown:?}");
    }
    assert_eq!(setup.harness.runtime_calls(), calls, "the sandbox was read");
}
