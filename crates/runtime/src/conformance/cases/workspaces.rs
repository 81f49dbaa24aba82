//! What is shown of the host: copy-on-write, or as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use stockade_core::SandboxSpec;
use stockade_core::sandbox::{HostMount, Workspace};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::Sandbox;
use crate::exec::Ending;

const INSIDE: &str = "/project/it";

/// A directory of the host, and the request for a sandbox that shows it.
fn project(harness: &Harness) -> (PathBuf, SandboxSpec) {
    let project = harness.host().join("project");
    fs::create_dir_all(project.join("directory")).unwrap();
    fs::write(project.join("file"), "of the host\n").unwrap();
    fs::write(project.join("directory/file"), "deep\n").unwrap();
    // Whoever runs inside may change it, whomever of the host it belongs to.
    for (name, mode) in
        [("", 0o777), ("directory", 0o777), ("file", 0o666), ("directory/file", 0o666)]
    {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(project.join(name), permissions).unwrap();
    }
    let workspace = Workspace { host: project.clone(), inside: INSIDE.into() };
    (project, SandboxSpec { workspace: Some(workspace), ..harness.spec() })
}

fn is_untouched(project: &std::path::Path) {
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
    // What is changed on the host is seen.
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
