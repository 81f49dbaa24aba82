//! Files of the host inside: copy-on-write, or unchanged as bind mounts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use stockade_bundle::RelativePath;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::{Change, Entry};
use stockade_bundle::project::Project;
use stockade_bundle::scan::scan;
use stockade_bundle::view::{LayerChanges, LayerCollector};
use stockade_core::sandbox::{HostMount, VolumeMount, Workspace};
use stockade_core::{BundleLimits, OwnerId, SandboxSpec, SnapshotId};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{Sandbox, script, volume};
use crate::changes::WorkspaceChanges;
use crate::error::Error;
use crate::exec::Ending;
use crate::state::State;

const INSIDE: &str = "/project/it";

/// A directory of the host, and the request for a sandbox with it.
fn project(harness: &Harness) -> (PathBuf, SandboxSpec) {
    let project = harness.host().join("project");
    fs::create_dir_all(project.join("directory")).unwrap();
    fs::write(project.join("file"), "of the host\n").unwrap();
    fs::write(project.join("directory/file"), "deep\n").unwrap();
    // Every user inside may change it, whichever user of the host owns it.
    for (name, mode) in
        [("", 0o777), ("directory", 0o777), ("file", 0o666), ("directory/file", 0o666)]
    {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(project.join(name), permissions).unwrap();
    }
    let workspace = Workspace { host: project.clone(), inside: INSIDE.into() };
    (project, SandboxSpec { workspace: Some(workspace), ..harness.spec() })
}

fn is_untouched(project: &Path) {
    assert_eq!(fs::read_to_string(project.join("file")).unwrap(), "of the host\n");
    assert_eq!(fs::read_to_string(project.join("directory/file")).unwrap(), "deep\n");
    assert_eq!(fs::read_dir(project).unwrap().count(), 2);
}

async fn change(sandbox: &Sandbox<'_>) {
    assert_eq!(sandbox.read("/project/it/file").await, "of the host\n");
    sandbox.write("/project/it/file", "changed").await;
    sandbox.write("/project/it/new", "new").await;
    let (runtime, directory) = (sandbox.runtime(), path("/project/it/directory"));
    within("a removal", runtime.remove(sandbox.id(), &directory)).await.unwrap();
}

async fn is_changed(sandbox: &Sandbox<'_>) {
    assert_eq!(sandbox.read("/project/it/file").await, "changed");
    assert_eq!(sandbox.names(INSIDE).await, [b"file", &b"new"[..]]);
}

pub(crate) async fn changes_are_kept_apart(harness: &Harness) {
    let (project, spec) = project(harness);
    let (one, two) = (harness.sandbox_with(&spec).await, harness.sandbox_with(&spec).await);
    change(&one).await;
    is_changed(&one).await;
    is_untouched(&project);
    assert_eq!(two.read("/project/it/file").await, "of the host\n");
    assert_eq!(two.names(INSIDE).await, [&b"directory"[..], b"file"]);
    one.cleanup().await;
    is_untouched(&project);
}

pub(crate) async fn commands_work_in_it(harness: &Harness) {
    let (project, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    let text = "cd /project/it && cat file directory/file && echo more >> file && cat file &&
                mkdir made && mv directory made/ && rm made/directory/file && : > made/new";
    let output = sandbox.good(text).await;
    assert_eq!(output, "of the host\ndeep\nof the host\nmore\n");
    is_untouched(&project);
}

pub(crate) async fn snapshots_keep_its_changes(harness: &Harness) {
    let (project, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    change(&sandbox).await;
    let (runtime, kept, id) = (harness.runtime(), harness.snapshot_id(), harness.id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &kept)).await.unwrap();
    within("a sandbox", runtime.restore(&kept, &id, &spec)).await.unwrap();
    let restored = Sandbox::new(harness, id);
    is_changed(&restored).await;
    restored.write("/project/it/file", "changed again").await;
    is_changed(&sandbox).await;
    is_untouched(&project);
}

pub(crate) async fn mounts_are_shown_as_they_are(harness: &Harness) {
    let (project, spec) = project(harness);
    let (inside, host) = (PathBuf::from("/shown"), project.clone());
    let mount = HostMount { host, inside, writable: false };
    let spec = SandboxSpec { workspace: None, mounts: vec![mount], ..spec };
    let sandbox = harness.sandbox_with(&spec).await;
    assert_eq!(sandbox.good("cat /shown/file").await, "of the host\n");
    let text = "echo changed > /shown/file || rm /shown/file || mkdir /shown/made";
    assert_ne!(sandbox.sh(text).await.ending, Ending::Exited(0));
    is_untouched(&project);
    // Changes on the host are visible.
    fs::write(project.join("later"), "later\n").unwrap();
    assert_eq!(sandbox.good("cat /shown/later").await, "later\n");
}

pub(crate) async fn mounts_may_be_writable(harness: &Harness) {
    let (project, spec) = project(harness);
    let (inside, host) = (PathBuf::from("/shown"), project.clone());
    let mount = HostMount { host, inside, writable: true };
    let spec = SandboxSpec { workspace: None, mounts: vec![mount], ..spec };
    let sandbox = harness.sandbox_with(&spec).await;
    sandbox.good("echo inside > /shown/new && rm /shown/file").await;
    assert_eq!(fs::read_to_string(project.join("new")).unwrap(), "inside\n");
    assert!(!project.join("file").exists());
    sandbox.cleanup().await;
    assert_eq!(fs::read_to_string(project.join("directory/file")).unwrap(), "deep\n");
}

pub(crate) async fn a_volume_is_shared_and_outlives_its_sandboxes(harness: &Harness) {
    let spec = SandboxSpec { volumes: vec![volume("shared", "/shared")], ..harness.spec() };
    let (one, other) = (harness.sandbox_with(&spec).await, harness.sandbox_with(&spec).await);
    one.good("echo first > /shared/file && mkdir /shared/directory").await;
    other.good("grep -q first /shared/file && echo second > /shared/directory/file").await;
    let owner = "stat -c %u:%g /shared/file";
    assert_eq!(one.good(owner).await, other.good(owner).await);
    one.cleanup().await;
    other.cleanup().await;
    let third = harness.sandbox_with(&spec).await;
    third.good("grep -q second /shared/directory/file").await;
    third.cleanup().await;
}

pub(crate) async fn a_volume_may_be_read_only_or_a_part(harness: &Harness) {
    let whole = SandboxSpec { volumes: vec![volume("parts", "/whole")], ..harness.spec() };
    let sandbox = harness.sandbox_with(&whole).await;
    sandbox
        .good("mkdir /whole/part && echo content > /whole/part/file && ln -s /etc /whole/link")
        .await;
    let shown = VolumeMount { writable: false, ..volume("parts", "/shown") };
    let part = VolumeMount { sub_path: Some("part".into()), ..volume("parts", "/part") };
    let spec = SandboxSpec { volumes: vec![shown.clone(), part], ..harness.spec() };
    let reader = harness.sandbox_with(&spec).await;
    reader.good("grep -q content /shown/part/file && echo more >> /part/file").await;
    reader.good("! touch /shown/new 2>/dev/null && ! rm -f /shown/part/file 2>/dev/null").await;
    for sub_path in ["link", "none", "..", "part/../..", "/etc"] {
        let volume = VolumeMount { sub_path: Some(sub_path.into()), ..shown.clone() };
        let spec = SandboxSpec { volumes: vec![volume], ..harness.spec() };
        let made = harness.runtime().create(&harness.id(), &spec).await;
        assert!(matches!(made, Err(crate::Error::Invalid(_))), "{sub_path}: {made:?}");
    }
    reader.cleanup().await;
    sandbox.cleanup().await;
}

pub(crate) async fn a_volume_belongs_to_one_owner(harness: &Harness) {
    let spec = SandboxSpec { volumes: vec![volume("mine", "/mine")], ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    sandbox.good("echo content > /mine/file").await;
    let owner = OwnerId::new("another").expect("an owner");
    let volume = VolumeMount { owner, ..volume("mine", "/mine") };
    let spec = SandboxSpec { volumes: vec![volume], ..harness.spec() };
    let other = harness.sandbox_with(&spec).await;
    other.good("! test -e /mine/file").await;
    other.cleanup().await;
    sandbox.cleanup().await;
}

/// The changes of a sandbox, gathered in the way of a real caller: `+` is new, `~` differs from the
/// host, `-` was removed.
async fn changes_of(harness: &Harness, sandbox: &Sandbox<'_>) -> Vec<String> {
    changes_by(harness, async |to| sandbox.runtime().changes(sandbox.id(), to).await).await
}

async fn changes_by(
    harness: &Harness,
    gather: impl AsyncFnOnce(&Path) -> crate::Result<WorkspaceChanges>,
) -> Vec<String> {
    let data = harness.host().join("data");
    if !data.exists() {
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let data = DataDir::open(&data).unwrap();
    let gathering = LayerCollector::start(&data).unwrap();
    let changes = within("the changes", gather(gathering.layer())).await.unwrap();
    let WorkspaceChanges { since, removed } = changes;
    let gathered = LayerChanges { since, removed };
    let project = Project::open(&harness.host().join("project"), None).unwrap();
    let view = gathering.finish(&project, gathered, &[]).unwrap();
    let changes = scan(&view, &project, &BundleLimits::RUN).unwrap();
    view.remove().unwrap();
    changes.entries.iter().map(short).collect()
}

fn short(entry: &Entry) -> String {
    let sign = match entry.change {
        Change::Add { .. } => '+',
        Change::Modify { .. } => '~',
        Change::Delete { .. } => '-',
    };
    format!("{sign}{}{}", entry.path, if entry.conflict { " conflict" } else { "" })
}

const CHANGED: [&str; 4] = ["-directory", "-directory/file", "~file", "+new"];

pub(crate) async fn its_changes_are_told(harness: &Harness) {
    let (project, spec) = project(harness);
    let (one, two) = (harness.sandbox_with(&spec).await, harness.sandbox_with(&spec).await);
    assert_eq!(changes_of(harness, &one).await, Vec::<String>::new());
    change(&one).await;
    assert_eq!(changes_of(harness, &one).await, CHANGED);
    // It continues, and the earlier changes are reported again.
    one.write("/project/it/later", "later").await;
    assert_eq!(changes_of(harness, &one).await, [&CHANGED[..3], &["+later", "+new"]].concat());
    is_changed_but_later(&one).await;
    assert_eq!(changes_of(harness, &two).await, Vec::<String>::new());
    is_untouched(&project);
}

async fn is_changed_but_later(sandbox: &Sandbox<'_>) {
    let (runtime, later) = (sandbox.runtime(), path("/project/it/later"));
    within("a removal", runtime.remove(sandbox.id(), &later)).await.unwrap();
    is_changed(sandbox).await;
}

pub(crate) async fn changes_are_told_while_commands_run(harness: &Harness) {
    let (_, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    let text = "cd /project/it && while :; do echo more >> grows; done";
    let running = sandbox.start(&script(text)).await;
    sandbox.appears("/project/it/grows").await;
    for _ in 0..3 {
        assert_eq!(changes_of(harness, &sandbox).await, ["+grows"]);
        // It continues.
        let size = sandbox.size("/project/it/grows").await;
        sandbox.grows_beyond("/project/it/grows", size).await;
    }
    sandbox.kill(&running.exec).await;
}

pub(crate) async fn changes_are_told_of_what_stands_still(harness: &Harness) {
    let (_, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    change(&sandbox).await;
    sandbox.pause().await;
    assert_eq!(changes_of(harness, &sandbox).await, CHANGED);
    assert_eq!(sandbox.inspect().await.unwrap().state, State::Paused);
}

pub(crate) async fn changes_are_told_of_snapshots(harness: &Harness) {
    let (_, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    change(&sandbox).await;
    let (runtime, kept, id) = (harness.runtime(), harness.snapshot_id(), harness.id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &kept)).await.unwrap();
    sandbox.write("/project/it/later", "later").await;
    sandbox.cleanup().await;
    let of = async |snapshot: &SnapshotId| {
        changes_by(harness, async |to| runtime.snapshot_changes(snapshot, to).await).await
    };
    assert_eq!(of(&kept).await, CHANGED);
    within("a sandbox", runtime.restore(&kept, &id, &spec)).await.unwrap();
    let restored = Sandbox::new(harness, id);
    restored.write("/project/it/more", "more").await;
    assert_eq!(changes_of(harness, &restored).await, [&CHANGED[..3], &["+more", "+new"]].concat());
    assert_eq!(of(&kept).await, CHANGED);
}

pub(crate) async fn what_the_host_changes_meanwhile_is_told(harness: &Harness) {
    let (project, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    change(&sandbox).await;
    fs::write(project.join("file"), "changed on the host\n").unwrap();
    let changes = changes_of(harness, &sandbox).await;
    assert_eq!(changes, ["-directory", "-directory/file", "~file conflict", "+new"]);
}

/// A file that it has not touched is not its change, even if it started with a snapshot of another
/// sandbox.
pub(crate) async fn what_the_host_changes_is_not_a_restored_ones(harness: &Harness) {
    let (project, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    sandbox.write("/project/it/file", "changed").await;
    sandbox.write("/project/it/directory/new", "new").await;
    let (runtime, kept, id) = (harness.runtime(), harness.snapshot_id(), harness.id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &kept)).await.unwrap();
    within("a sandbox", runtime.restore(&kept, &id, &spec)).await.unwrap();
    fs::write(project.join("directory/file"), "changed on the host\n").unwrap();
    let expected = ["+directory/new", "~file"];
    assert_eq!(changes_of(harness, &Sandbox::new(harness, id)).await, expected);
    let of = async |to: &Path| runtime.snapshot_changes(&kept, to).await;
    assert_eq!(changes_by(harness, of).await, expected);
}

/// The directory and the list are complete without the notes of the runtime.
pub(crate) async fn removed_paths_are_listed(harness: &Harness) {
    let (_, spec) = project(harness);
    let sandbox = harness.sandbox_with(&spec).await;
    let runtime = sandbox.runtime();
    for name in ["file", "directory"] {
        let removed = path(format!("{INSIDE}/{name}"));
        within("a removal", runtime.remove(sandbox.id(), &removed)).await.unwrap();
    }
    sandbox.write("/project/it/directory/new", "new").await;
    let to = harness.host().join("changes");
    let changes = within("the changes", runtime.changes(sandbox.id(), &to)).await.unwrap();
    assert_eq!(fs::read_to_string(to.join("directory/new")).unwrap(), "new");
    let removes = |name: &str| {
        let path = RelativePath::new(name).unwrap();
        changes.removed.iter().any(|removed| path.is_within(removed))
    };
    // Another runtime may list the directory or only the file in it.
    assert!(removes("file") && removes("directory/file"), "{changes:?}");
    let all = ["~directory", "-directory/file", "+directory/new", "-file"];
    assert_eq!(changes_of(harness, &sandbox).await, all);
}

pub(crate) async fn without_one_there_are_no_changes(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, to) = (harness.runtime(), harness.host().join("to"));
    let refused = within("the changes", runtime.changes(sandbox.id(), &to)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let unknown = within("the changes", runtime.changes(&harness.id(), &to)).await;
    assert!(matches!(unknown, Err(Error::NoSandbox(_))), "{unknown:?}");
    let snapshot = harness.snapshot_id();
    let unknown = within("the changes", runtime.snapshot_changes(&snapshot, &to)).await;
    assert!(matches!(unknown, Err(Error::NoSnapshot(_))), "{unknown:?}");
    assert!(!to.exists());
}
