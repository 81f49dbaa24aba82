//! Snapshots and the sandboxes that start from them.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stockade_bundle::layer::Owners;
use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SandboxSpec, SnapshotId};
use stockade_jail::Range;

use super::keeper::Keeper;
use super::{Fixture, sandbox, skipped, status};
use crate::wire::{Answer, Failure, Layers, Request};
use stockade_runtime::{Error, Runtime as _, Status};

fn id() -> SnapshotId {
    SnapshotId::new("snap").unwrap()
}

impl Fixture {
    /// A path below the directory of the keeper.
    fn path(&self, below: &str) -> std::path::PathBuf {
        self.scratch.path().join("data/runtime/1").join(below)
    }

    fn count(&self, below: &str) -> usize {
        self.path(below).read_dir().unwrap().count()
    }

    /// Writes a file in each of the layers of the sandbox.
    fn write_layers(&self) {
        for (layer, text) in [("layers", "root"), ("workspace", "project")] {
            let directory = self.path("sandboxes/box").join(layer).join("upper/directory");
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("file"), text).unwrap();
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o750)).unwrap();
        }
    }

    /// A keeper that holds sandboxes and counts the holds.
    fn holding(&self, host_start: Option<u32>) -> (Keeper, Arc<AtomicUsize>) {
        let holds = Arc::new(AtomicUsize::new(0));
        let count = holds.clone();
        let root = Root::Directory("/below".into());
        let keeper = self.keeper(move |peer, message| {
            assert_eq!(message.head, Request::Hold { id: sandbox() });
            count.fetch_add(1, Ordering::SeqCst);
            let root = root.clone();
            peer.answer(&Answer::Held {
                root,
                workspace: true,
                host_start,
                begun: None,
                whole: None,
            }) && peer.request().is_some()
        });
        (keeper, holds)
    }
}

fn text(directory: &Path, file: &str) -> String {
    std::fs::read_to_string(directory.join(file)).unwrap()
}

fn from_snapshot() -> SandboxSpec {
    SandboxSpec { root: Root::Snapshot(id()), ..SandboxSpec::default() }
}

fn other() -> SandboxId {
    SandboxId::new("other").unwrap()
}

#[tokio::test]
async fn a_snapshot_is_taken_once_and_found_again_and_removed() {
    let fixture = Fixture::new();
    fixture.write_layers();
    let (_keeper, held) = fixture.holding(None);
    let native = &fixture.native;
    let info = native.snapshot(&sandbox(), &id()).await.unwrap();
    assert_eq!((&info.id, &info.sandbox), (&id(), &sandbox()));
    assert!(info.created_at_ms > 0 && info.size_bytes >= 8);
    let copy = fixture.path("snapshots/snap");
    assert_eq!(text(&copy, "upper/directory/file"), "root");
    assert_eq!(text(&copy, "workspace/directory/file"), "project");
    let mode = copy.join("upper/directory").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);

    // Later changes of the sandbox do not affect the snapshot.
    std::fs::write(fixture.path("sandboxes/box/layers/upper/directory/file"), "later").unwrap();
    assert_eq!(native.snapshot(&sandbox(), &id()).await.unwrap(), info);
    assert_eq!(held.load(Ordering::SeqCst), 1);
    assert_eq!(text(&copy, "upper/directory/file"), "root");
    let conflict = native.snapshot(&other(), &id()).await.unwrap_err();
    assert!(matches!(conflict, Error::Conflict(_)), "{conflict}");
    assert_eq!(native.snapshots().await.unwrap(), [info]);

    native.remove_snapshot(&id()).await.unwrap();
    native.remove_snapshot(&id()).await.unwrap();
    assert_eq!(native.snapshots().await.unwrap(), []);
    for directory in ["snapshots", "staging", "trash"] {
        assert_eq!(fixture.count(directory), 0, "{directory}");
    }
}

#[tokio::test]
async fn a_snapshot_that_fails_leaves_nothing() {
    let fixture = Fixture::new();
    // There are no layers to copy.
    std::fs::create_dir_all(fixture.path("sandboxes/box")).unwrap();
    let (_keeper, _) = fixture.holding(None);
    let failed = fixture.native.snapshot(&sandbox(), &id()).await.unwrap_err();
    assert!(matches!(failed, Error::Host { .. }), "{failed}");
    for directory in ["snapshots", "staging", "trash"] {
        assert_eq!(fixture.count(directory), 0, "{directory}");
    }
}

/// A keeper without sandboxes that passes each `Create` to `create`.
fn creating(
    fixture: &Fixture,
    create: impl Fn(Layers, Vec<OwnedFd>) -> Answer + Send + Sync + 'static,
) -> Keeper {
    fixture.keeper(move |peer, message| {
        let answer = match message.head {
            Request::Create { layers: Some(layers), .. } => create(layers, message.descriptors),
            Request::Inspect { .. } => Answer::Failed(Failure::NoSandbox),
            other => panic!("{other:?}"),
        };
        peer.answer(&answer)
    })
}

#[tokio::test]
async fn a_sandbox_begins_with_a_copy_of_the_snapshot() {
    let fixture = Fixture::new();
    fixture.write_layers();
    let (keeper, _) = fixture.holding(None);
    fixture.native.snapshot(&sandbox(), &id()).await.unwrap();
    drop(keeper);

    let directory = fixture.directory();
    let _keeper = creating(&fixture, move |layers, descriptors| {
        assert_eq!(layers.root, Root::Directory("/below".into()));
        assert_eq!(descriptors.len(), usize::from(layers.range_start.is_some()));
        let staging = directory.path().join("staging").join(&layers.staged);
        let lock = std::fs::File::open(&staging).unwrap();
        let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        assert!(rustix::fs::flock(&lock, exclusive).is_err());
        std::fs::rename(staging, directory.path().join("sandboxes/other")).unwrap();
        Answer::Status(Status { id: other(), ..status() }.into())
    });
    let made = fixture.native.restore(&id(), &other(), &SandboxSpec::default()).await.unwrap();
    assert_eq!(made.id, other());
    let taken = fixture.path("sandboxes/other");
    assert_eq!(text(&taken, "upper/directory/file"), "root");
    assert_eq!(text(&taken, "workspace/directory/file"), "project");
    assert_eq!(fixture.count("staging"), 0);
}

#[tokio::test]
async fn layers_that_no_keeper_takes_are_removed() {
    let fixture = Fixture::new();
    let missing = fixture.keeper(|peer, _| peer.answer(&Answer::Failed(Failure::NoSandbox)));
    let refused = fixture.native.create(&other(), &from_snapshot()).await.unwrap_err();
    assert!(matches!(refused, Error::NoSnapshot(snapshot) if snapshot == id()));
    drop(missing);

    fixture.write_layers();
    let (keeper, _) = fixture.holding(None);
    fixture.native.snapshot(&sandbox(), &id()).await.unwrap();
    drop(keeper);
    let _keeper = creating(&fixture, |_, _| Answer::Failed(Failure::Exhausted("full".to_owned())));
    let refused = fixture.native.create(&other(), &from_snapshot()).await.unwrap_err();
    assert!(matches!(refused, Error::Exhausted(_)), "{refused}");
    while fixture.count("staging") + fixture.count("trash") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_exists_needs_no_copy() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| {
        assert!(!matches!(message.head, Request::Create { layers: Some(_), .. }));
        peer.answer(&Answer::Status(status().into()))
    });
    assert_eq!(fixture.native.create(&sandbox(), &from_snapshot()).await.unwrap(), status());
}

#[tokio::test]
async fn owners_move_from_one_range_to_the_store_and_to_another_range() {
    const START: u32 = 0x7000_0000;
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can give files away");
    }
    let fixture = Fixture::new();
    fixture.write_layers();
    for path in ["upper", "upper/directory", "upper/directory/file"] {
        for layer in ["layers", "workspace"] {
            let path = fixture.path("sandboxes/box").join(layer).join(path);
            chown(path, Some(START + 1000), Some(START + 7)).unwrap();
        }
    }
    let owner = |path: &str| {
        let metadata = fixture.path(path).metadata().unwrap();
        (metadata.uid(), metadata.gid())
    };
    let (keeper, _) = fixture.holding(Some(START));
    fixture.native.snapshot(&sandbox(), &id()).await.unwrap();
    drop(keeper);
    let stored = (Owners::STORED + 1000, Owners::STORED + 7);
    assert_eq!(owner("snapshots/snap/upper/directory/file"), stored);

    let directory = fixture.directory();
    let _keeper = creating(&fixture, move |layers, mut descriptors| {
        let start = layers.range_start.unwrap();
        let range = Range::adopt(start, descriptors.pop()).unwrap();
        assert_eq!(range.start, start);
        for file in ["upper/directory/file", "workspace"] {
            let path = directory.path().join("staging").join(&layers.staged).join(file);
            let metadata = path.metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (start + 1000, start + 7));
        }
        Answer::Status(status().into())
    });
    fixture.native.create(&other(), &from_snapshot()).await.unwrap();
}
