//! Bundles on disk: created, found, altered, and killed while incomplete.

use std::path::PathBuf;

use super::*;
use crate::apply::{AppliedChanges, Ledger as _};
use crate::manifest::{Change, ViewKind};
use crate::project::Project;
use crate::scan::{Changes, scan};
use crate::testing::chmod;
use crate::view::{LayerChanges, LayerCollector, View};

const LIMITS: BundleLimits = BundleLimits::RUN;

struct Fixture {
    _scratch: tempfile::TempDir,
    root: PathBuf,
    data: DataDir,
}

impl Fixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("project");
        std::fs::create_dir_all(root.join(".git")).unwrap();
        let data = DataDir::open(&scratch.path().join("data")).unwrap();
        Self { _scratch: scratch, root, data }
    }

    fn store(&self) -> Store {
        Store::open(&self.data).unwrap()
    }

    fn bundles(&self) -> PathBuf {
        self.data.path().join("bundles")
    }

    /// Runs a simulated command, which writes to the view's layer, and creates its bundle.
    fn run(&self, at: u64, command: impl FnOnce(&std::path::Path)) -> Option<Bundle> {
        let project = Project::find(&self.root, None).unwrap();
        let started = Timestamp { seconds: 1, nanoseconds: 0 };
        let words = ["sh".to_owned()];
        let view =
            View::create(&self.data, &project, ViewKind::Overlay, None, &words, started).unwrap();
        let upper = self.data.path().join("views").join(view.id()).join("upper");
        command(&upper);
        let Changes { entries, listings, .. } = scan(&view, &project, &LIMITS).unwrap();
        let draft = Draft {
            view: &view,
            project: &project,
            entries,
            old_contents: Vec::new(),
            listings,
            exit_code: 3,
            created_at_ms: at,
        };
        let bundle = self.store().create(draft, &LIMITS).unwrap();
        view.remove().unwrap();
        bundle
    }
}

fn content(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn no_change_makes_no_bundle() {
    let fixture = Fixture::new();
    assert!(fixture.run(1, |_| {}).is_none());
    assert!(fixture.store().list(&LIMITS).unwrap().is_empty());
    assert!(matches!(fixture.store().find("latest", &LIMITS), Err(Error::None)));
}

#[test]
fn a_bundle_outlives_its_view() {
    let fixture = Fixture::new();
    std::fs::write(fixture.root.join("file"), "old\n").unwrap();
    let made = fixture.run(7, |upper| {
        std::fs::write(upper.join("file"), "new\n").unwrap();
        std::fs::write(upper.join("script"), "#!").unwrap();
        std::fs::write(upper.join("twin"), "#!").unwrap();
        chmod(upper.join("script"), 0o4755);
        chmod(upper.join("file"), 0);
    });
    let made = made.unwrap();
    std::fs::write(fixture.root.join("file"), "changed since\n").unwrap();

    let found = fixture.store().find(&made.id()[..8], &LIMITS).unwrap();
    assert_eq!(found.id(), made.id());
    assert_eq!(found.manifest, made.manifest);
    assert_eq!((found.manifest.exit_code, found.manifest.created_at_ms), (3, 7));
    let Change::Modify {
        old: Node::File { hash: old, .. },
        new: Node::File { hash: new, mode, .. },
    } = &found.manifest.entries[0].change
    else {
        panic!("{:?}", found.manifest.entries[0]);
    };
    assert_eq!(*mode, 0);
    assert_eq!(content(found.blob(*new).unwrap()), "new\n");
    assert_eq!(found.base(*old).unwrap().unwrap(), b"old\n");
    assert_eq!(found.base(*new).unwrap(), None);
    let blobs = fixture.bundles().join(found.id()).join("blobs");
    let mut count = 0;
    for blob in std::fs::read_dir(blobs).unwrap() {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = blob.unwrap().metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o600);
        assert_eq!((metadata.nlink(), metadata.uid()), (1, rustix::process::geteuid().as_raw()));
        count += 1;
    }
    assert_eq!(count, 2, "equal contents are kept once");
}

/// The files of a layer that may still be needed stay as they are, and none is copied.
#[test]
fn a_bundle_in_place_changes_no_file_until_it_takes_ownership() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = Fixture::new();
    let layer = fixture.data.path().join("elsewhere");
    std::fs::create_dir(&layer).unwrap();
    std::fs::write(layer.join("program"), "#!").unwrap();
    chmod(layer.join("program"), 0o4755);
    let project = Project::find(&fixture.root, None).unwrap();
    let collector = LayerCollector::start(&fixture.data).unwrap();
    let since = Timestamp { seconds: 1, nanoseconds: 0 };
    let changes = LayerChanges { since, removed: Vec::new() };
    let upper = Dir::open(&layer).unwrap();
    let view = collector.finish_in_place(&project, upper, changes, &[]).unwrap();
    let Changes { entries, listings, .. } = scan(&view, &project, &LIMITS).unwrap();
    let (view, project) = (&view, &project);
    let draft = Draft {
        view,
        project,
        entries,
        old_contents: Vec::new(),
        listings,
        exit_code: 0,
        created_at_ms: 1,
    };
    let bundle = fixture.store().create_in_place(draft, &LIMITS).unwrap().unwrap();
    let of = || std::fs::metadata(layer.join("program")).unwrap();
    assert_eq!((of().mode() & 0o7777, of().nlink()), (0o4755, 2));
    let found = fixture.store().find(bundle.id(), &LIMITS).unwrap();
    for _ in 0..2 {
        found.take_ownership().unwrap();
        assert_eq!(of().mode() & 0o7777, 0o600);
    }
}

#[test]
fn a_view_in_place_leaves_the_layer() {
    let fixture = Fixture::new();
    let layer = fixture.data.path().join("elsewhere");
    std::fs::create_dir(&layer).unwrap();
    let project = Project::find(&fixture.root, None).unwrap();
    let since = Timestamp { seconds: 1, nanoseconds: 0 };
    let changes = LayerChanges { since, removed: Vec::new() };
    let collector = LayerCollector::start(&fixture.data).unwrap();
    let upper = Dir::open(&layer).unwrap();
    collector.finish_in_place(&project, upper, changes, &[]).unwrap().remove().unwrap();
    assert!(layer.is_dir());
    assert_eq!(std::fs::read_dir(fixture.data.path().join("views")).unwrap().count(), 0);
}

#[test]
fn bundles_are_found_by_age_and_prefix() {
    let fixture = Fixture::new();
    let mut made: Vec<String> = Vec::new();
    for at in 1..=40 {
        let bundle = fixture.run(at, |upper| std::fs::write(upper.join("x"), "x").unwrap());
        made.push(bundle.unwrap().id().to_owned());
    }
    let store = fixture.store();
    let listed: Vec<String> = store.list(&LIMITS).unwrap().into_iter().map(|b| b.id).collect();
    assert_eq!(listed, made.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(store.find("latest", &LIMITS).unwrap().id(), made[39]);
    assert_eq!(store.find(&made[5], &LIMITS).unwrap().id(), made[5]);
    // Among forty ids, two start with the same digit.
    let shared = (0..16)
        .map(|d| format!("{d:x}"))
        .find(|d| made.iter().filter(|id| id.starts_with(d.as_str())).count() > 1);
    match store.find(&shared.unwrap(), &LIMITS) {
        Err(Error::Ambiguous { ids, .. }) => assert!(ids.len() > 1),
        other => panic!("{other:?}"),
    }
    for name in ["", "zz", "../bundles", &"0".repeat(65)] {
        assert!(matches!(store.find(name, &LIMITS), Err(Error::NotFound(_))), "{name}");
    }
    let first = store.find(&made[0], &LIMITS).unwrap();
    first.remove().unwrap();
    assert!(matches!(store.find(&made[0], &LIMITS), Err(Error::NotFound(_))));
    assert_eq!(store.list(&LIMITS).unwrap().len(), 39);
    assert_eq!(std::fs::read_dir(fixture.bundles()).unwrap().count(), 39);
}

#[test]
fn an_altered_manifest_is_refused() {
    let fixture = Fixture::new();
    let bundle = fixture.run(1, |upper| std::fs::write(upper.join("x"), "x").unwrap()).unwrap();
    let manifest = fixture.bundles().join(bundle.id()).join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"x\"", "\"y\"")).unwrap();
    let store = fixture.store();
    assert!(matches!(store.find(bundle.id(), &LIMITS), Err(Error::Altered(_))));
    assert!(store.list(&LIMITS).unwrap()[0].bundle.is_err());
}

fn applied<'a>(bundle: &'a str, paths: &'a [RelativePath]) -> AppliedChanges<'a> {
    AppliedChanges { bundle, paths, partial: &[] }
}

#[test]
fn what_was_applied_is_remembered() {
    let fixture = Fixture::new();
    std::fs::write(fixture.root.join(".gitignore"), "*.log").unwrap();
    let bundle = fixture.run(1, |upper| {
        for name in ["a", "b", "c.log"] {
            std::fs::write(upper.join(name), name).unwrap();
        }
        std::fs::create_dir_all(upper.join(".git/hooks")).unwrap();
    });
    let bundle = bundle.unwrap();
    let path = |name: &str| RelativePath::new(name).unwrap();
    assert_eq!(bundle.state().unwrap().status, Status::Open);
    fixture.data.mark(&applied(bundle.id(), &[path("a")])).unwrap();
    assert_eq!(bundle.state().unwrap().status, Status::Partial);
    fixture.data.mark(&applied(bundle.id(), &[path("b")])).unwrap();
    let state = bundle.state().unwrap();
    assert_eq!(state.status, Status::Applied);
    let again = fixture.store().find("latest", &LIMITS).unwrap();
    assert_eq!(again.state().unwrap(), state);
    assert_eq!(state.applied.into_iter().collect::<Vec<_>>(), [path("a"), path("b")]);
}

#[test]
fn half_made_bundles_are_swept_unless_somebody_makes_them() {
    let fixture = Fixture::new();
    fixture.store();
    let half = fixture.bundles().join(".unfinished-1-0");
    std::fs::create_dir_all(half.join("blobs")).unwrap();
    let live = claim::claim(&Dir::open(&fixture.bundles()).unwrap(), UNFINISHED).unwrap();
    let store = fixture.store();
    assert!(!half.exists());
    assert!(fixture.bundles().join(live.0.as_os_str()).exists());
    assert!(store.list(&LIMITS).unwrap().is_empty());
}
