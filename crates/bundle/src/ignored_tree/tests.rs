//! Ignored directories in bundles: counted as one path, applied as their single paths.

use std::path::{Path, PathBuf};

use stockade_core::BundleLimits;

use super::*;
use crate::apply::{self, Selection};
use crate::beneath::Timestamp;
use crate::data::DataDir;
use crate::manifest::ViewKind;
use crate::scan;
use crate::store::{Bundle, Draft, Store};
use crate::view::View;

const LIMITS: BundleLimits = BundleLimits { entries: 10, ..BundleLimits::RUN };

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
        std::fs::write(root.join(".gitignore"), "node_modules\n*.log\n").unwrap();
        let data = DataDir::open(&scratch.path().join("data")).unwrap();
        Self { _scratch: scratch, root, data }
    }

    /// The bundle of a simulated command, which writes to the view's layer.
    fn run(&self, command: impl FnOnce(&Path)) -> Result<Bundle, scan::Error> {
        let project = Project::find(&self.root, None).unwrap();
        let started = Timestamp { seconds: 1, nanoseconds: 0 };
        let view = View::create(&self.data, &project, ViewKind::Overlay, None, &[], started);
        let view = view.unwrap();
        command(&self.data.path().join("views").join(view.id()).join("upper"));
        let scan::Changes { entries, listings, .. } = scan::scan(&view, &project, &LIMITS)?;
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
        Ok(Store::open(&self.data).unwrap().create(draft, &LIMITS).unwrap().unwrap())
    }

    fn apply(&self, bundle: &Bundle, selection: &Selection) -> apply::ApplyOutcome {
        let request = apply::Request {
            bundle: bundle.id(),
            manifest: &bundle.whole_manifest().unwrap(),
            blobs: &bundle.blobs().unwrap(),
            project: &self.root,
            journals: &self.data.journals().unwrap(),
            ledger: &self.data,
            selection,
            merge: None,
            partial: &[],
            times: &std::collections::BTreeMap::new(),
        };
        apply::apply(&request).unwrap()
    }
}

fn write_all(directory: &Path, count: u64) {
    std::fs::create_dir_all(directory).unwrap();
    for number in 0..count {
        std::fs::write(directory.join(format!("f{number}")), format!("{}", number % 7)).unwrap();
    }
}

fn paths(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.path.to_string()).collect()
}

#[test]
fn an_ignored_directory_counts_as_one_path_and_is_applied_as_many() {
    let fixture = Fixture::new();
    let bundle = fixture.run(|upper| {
        write_all(&upper.join("node_modules/package"), MIN_PATHS);
        std::fs::write(upper.join("work.txt"), "hours").unwrap();
    });
    let bundle = bundle.unwrap();
    let found = Store::open(&fixture.data).unwrap().find(bundle.id(), &LIMITS).unwrap();
    assert_eq!(paths(&found.manifest.entries), ["node_modules", "work.txt"]);
    let tree = found.manifest.entries[0].tree.clone().unwrap();
    assert_eq!((tree.paths, tree.bytes), (MIN_PATHS + 2, MIN_PATHS));
    let whole = found.whole_manifest().unwrap();
    assert_eq!(whole.entries.len() as u64, MIN_PATHS + 3);

    let applied = fixture.apply(&found, &Selection::default());
    assert_eq!(applied.changed.len(), 1);
    assert!(fixture.root.join("work.txt").exists() && !fixture.root.join("node_modules").exists());
    let named = Selection {
        paths: vec![RelativePath::new("node_modules/package/f3").unwrap()],
        ..Selection::default()
    };
    fixture.apply(&found, &named);
    let file =
        |name: &str| std::fs::read_to_string(fixture.root.join("node_modules/package").join(name));
    assert_eq!(file("f3").unwrap(), "3");
    assert!(file("f4").is_err());
    fixture.apply(&found, &Selection { include_ignored: true, ..Selection::default() });
    assert_eq!(file("f4").unwrap(), "4");
}

#[test]
fn what_is_changed_or_deleted_in_it_is_in_the_listing() {
    let fixture = Fixture::new();
    write_all(&fixture.root.join("node_modules"), MIN_PATHS + 1);
    let bundle = fixture.run(|upper| {
        std::fs::create_dir(upper.join("node_modules")).unwrap();
        for number in 0..=MIN_PATHS {
            std::fs::write(upper.join(format!("node_modules/f{number}")), "other").unwrap();
        }
    });
    let bundle = bundle.unwrap();
    assert_eq!(paths(&bundle.manifest.entries), ["node_modules"]);
    let all = Selection { include_ignored: true, ..Selection::default() };
    assert_eq!(fixture.apply(&bundle, &all).changed.len() as u64, MIN_PATHS + 1);
    assert_eq!(std::fs::read_to_string(fixture.root.join("node_modules/f9")).unwrap(), "other");
}

#[test]
fn few_paths_and_paths_beside_others_are_single() {
    let fixture = Fixture::new();
    let bundle = fixture.run(|upper| {
        write_all(&upper.join("node_modules"), 3);
        std::fs::create_dir(upper.join("src")).unwrap();
        std::fs::write(upper.join("src/a.log"), "").unwrap();
        std::fs::write(upper.join("src/b"), "").unwrap();
    });
    assert!(bundle.unwrap().manifest.entries.iter().all(|entry| entry.tree.is_none()));
}

#[test]
fn what_is_not_ignored_has_a_limit() {
    let fixture = Fixture::new();
    let refused = fixture.run(|upper| write_all(&upper.join("src"), 11)).unwrap_err();
    assert!(matches!(refused, scan::Error::Limit(limit) if limit.limit == "entries"));
}

#[test]
fn an_altered_listing_is_refused() {
    let fixture = Fixture::new();
    let bundle = fixture.run(|upper| write_all(&upper.join("node_modules"), MIN_PATHS + 1));
    let bundle = bundle.unwrap();
    let entry = bundle.manifest.entries[0].clone();
    let hash = entry.tree.as_ref().unwrap().listing.to_hex();
    let path = fixture.data.path().join("bundles").join(bundle.id()).join("blobs").join(hash);
    std::fs::write(&path, "[]").unwrap();
    assert!(bundle.listing(&entry).is_err() && bundle.whole_manifest().is_err());
}
