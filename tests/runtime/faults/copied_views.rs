//! The data directory is on a file system that supports no overlay, as in many containers:
//! sandboxes work on copies, and report that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::{Change, Entry};
use stockade_bundle::project::Project;
use stockade_bundle::scan::scan;
use stockade_bundle::view::{LayerChanges, LayerCollector};
use stockade_core::sandbox::Workspace;
use stockade_core::{BundleLimits, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::conformance::{self, CASES};
use stockade_runtime::{Runtime as _, SandboxPath};

use super::scene::{Scene, id, run_scene};
use crate::identity::on_overlay;
use crate::native::{NativeFixture, backend};

/// The groups of promises that depend on where files are.
const GROUPS: [&str; 6] =
    ["files::", "links::", "transfer::", "workspaces::", "snapshots::", "users::"];
/// Cases that take long everywhere, and cases about files that are never copied: host files, and
/// volumes, which sandboxes share.
const OTHERS: [&str; 3] = ["files::a_gigabyte", "workspaces::mounts_", "workspaces::a_volume_"];

pub(super) fn what_is_copied_keeps_every_promise() {
    on_overlay(|| {
        let begins = |name: &str, all: &[&str]| all.iter().any(|group| name.starts_with(group));
        let ours = |name: &str| begins(name, &GROUPS) && !begins(name, &OTHERS);
        for case in CASES.iter().filter(|case| ours(case.name)) {
            conformance::run(case.name, backend());
        }
    });
}

pub(super) fn where_there_can_be_no_overlay_files_are_copied() {
    on_overlay(|| run_scene(NativeFixture::new(0), work));
}

async fn work(scene: &mut Scene) {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path().join("project");
    fs::create_dir_all(project.join("tree/deep")).unwrap();
    for name in ["edited", "kept", "of-host", "gone", "gone-on-host", "tree/deep/file", "tree/file"]
    {
        fs::write(project.join(name), format!("{name}\n")).unwrap();
    }
    for path in [dir.path(), &project, &project.join("tree"), &project.join("tree/deep")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let workspace = Workspace { host: project.clone(), inside: "/project".into() };
    let spec = SandboxSpec { workspace: Some(workspace), ..SandboxSpec::default() };
    let sandbox = scene.create_with("copied", spec.clone()).await;
    let status = scene.native.inspect(&sandbox).await.unwrap();
    let reasons = &status.isolation.reasons;
    assert!(reasons.iter().any(|reason| reason.contains("the files were copied")), "{reasons:?}");
    assert_eq!(scan_changes(scene, &sandbox, &project).await, Vec::<String>::new());

    let text = "cd /project && echo more >> edited && rm -r gone tree/deep && echo n > new && \
        touch kept && mkdir -p made/in && echo kept > /tmp/file && mknod device c 0 0; ls";
    scene.run(&sandbox, "one", text).await.expect_success();
    // Concurrent changes by the host are not changes of the sandbox.
    fs::write(project.join("of-host"), "other\n").unwrap();
    fs::write(project.join("new-on-host"), "new\n").unwrap();
    fs::remove_file(project.join("gone-on-host")).unwrap();
    let expected =
        ["~edited", "-gone", "+made", "+made/in", "+new", "-tree/deep", "-tree/deep/file"];
    assert_eq!(scan_changes(scene, &sandbox, &project).await, expected);
    scene.kill_keeper().await;
    assert_eq!(scan_changes(scene, &sandbox, &project).await, expected);

    // A copy of the copy reports the same, and so does a copy of that.
    let snapshot = SnapshotId::new("snapshot").unwrap();
    scene.native.snapshot(&sandbox, &snapshot).await.unwrap();
    let restored = id("again");
    scene.native.restore(&snapshot, &restored, &spec).await.unwrap();
    assert_eq!(scan_changes(scene, &restored, &project).await, expected);
    fs::write(project.join("tree/file"), "other\n").unwrap();
    assert_eq!(scan_changes(scene, &restored, &project).await, expected);
    let twice = SnapshotId::new("twice").unwrap();
    scene.native.snapshot(&restored, &twice).await.unwrap();
    let third = id("third");
    scene.native.restore(&twice, &third, &spec).await.unwrap();
    assert_eq!(scan_changes(scene, &third, &project).await, expected);
    let text = "cd /project && echo mine >> of-host && mv tree moved";
    scene.run(&third, "two", text).await.expect_success();
    let moved = ["+moved", "+moved/file", "~of-host conflict", "-tree", "-tree/file conflict"];
    let both = scan_changes(scene, &third, &project).await;
    assert!(moved.into_iter().all(|entry| both.iter().any(|told| told == entry)), "{both:?}");
    scene.native.remove_snapshot(&twice).await.unwrap();
    let path = SandboxPath::new("/project/edited").unwrap();
    assert_eq!(scene.native.stat(&restored, &path).await.unwrap().size_bytes, 12);
    scene.native.remove_snapshot(&snapshot).await.unwrap();
    assert_eq!(fs::read_to_string(project.join("edited")).unwrap(), "edited\n");
}

/// The changes of a sandbox, in short form.
async fn scan_changes(scene: &Scene, sandbox: &SandboxId, project: &Path) -> Vec<String> {
    let data = DataDir::open(&scene.fixture().data()).unwrap();
    let gathering = LayerCollector::start(&data).unwrap();
    let changes = scene.native.changes(sandbox, gathering.layer()).await.unwrap();
    let gathered = LayerChanges { since: changes.since, removed: changes.removed };
    let project = Project::open(project, None).unwrap();
    let view = gathering.finish(&project, gathered, &[]).unwrap();
    let changes = scan(&view, &project, &BundleLimits::RUN).unwrap();
    view.remove().unwrap();
    changes.entries.iter().map(summarize).collect()
}

fn summarize(entry: &Entry) -> String {
    let sign = match entry.change {
        Change::Add { .. } => '+',
        Change::Modify { .. } => '~',
        Change::Delete { .. } => '-',
    };
    format!("{sign}{}{}", entry.path, if entry.conflict { " conflict" } else { "" })
}
