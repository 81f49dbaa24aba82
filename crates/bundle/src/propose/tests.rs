//! Proposals as upstream's producer creates them, and proposals that try to do more than they
//! announce.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::apply;
use crate::beneath::Timestamp;
use crate::data::DataDir;
use crate::manifest::{Refusal, ViewKind};
use crate::sandbox::SandboxManifest;
use crate::store::{Draft, Store};

const LIMITS: BundleLimits = BundleLimits::SANDBOX;

struct Fixture {
    _scratch: tempfile::TempDir,
    root: PathBuf,
    data: DataDir,
    view: View,
}

fn git(root: &Path, arguments: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    String::from_utf8(done.stdout).unwrap()
}

/// A repository with a commit, and a view that is created before any later change on the host.
fn fixture() -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap().join("project");
    std::fs::create_dir_all(root.join("src")).unwrap();
    std::fs::write(root.join("src/app.ts"), "one\ntwo\nthree\n").unwrap();
    std::fs::write(root.join("moved.txt"), "all of this moves\n").unwrap();
    std::fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::write(root.join("old.bin"), [0, 1, 2]).unwrap();
    git(&root, &["init", "--quiet"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "--message", "first"]);
    let data = DataDir::open(&scratch.path().join("data")).unwrap();
    let project = Project::find(&root, None).unwrap();
    let started = Timestamp { seconds: 0, nanoseconds: 0 };
    let view = View::create(&data, &project, ViewKind::Overlay, None, &[], started).unwrap();
    Fixture { _scratch: scratch, root, data, view }
}

impl Fixture {
    fn propose(&self, base: &str, patches: &Value) -> Result<Changes, Error> {
        let manifest = json!({"status": "finished",
            "diffBundle": {"seq": 1, "baseRef": base, "patches": patches}});
        let manifest = SandboxManifest::parse(manifest.to_string().as_bytes(), &LIMITS).unwrap();
        let diff = manifest.diff_bundle.unwrap();
        propose(&self.view, &Project::find(&self.root, None).unwrap(), &diff, &LIMITS)
    }

    fn refused(&self, patches: &Value) -> Error {
        self.propose("HEAD", patches).unwrap_err()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.root.join(name)).unwrap()
    }

    /// Creates a bundle of the changes and applies it.
    fn apply(&self, changes: Changes) {
        let project = Project::find(&self.root, None).unwrap();
        let store = Store::open(&self.data).unwrap();
        let draft = Draft {
            view: &self.view,
            project: &project,
            entries: changes.entries,
            old_contents: Vec::new(),
            listings: changes.listings,
            exit_code: 0,
            created_at_ms: 1,
        };
        let bundle = store.create(draft, &BundleLimits::RUN).unwrap().unwrap();
        let request = apply::Request {
            bundle: bundle.id(),
            manifest: &bundle.manifest,
            blobs: &bundle.blobs().unwrap(),
            project: &self.root,
            journals: &self.data.journals().unwrap(),
            ledger: &self.data,
            selection: &apply::Selection::default(),
            merge: None,
            partial: &[],
            times: &std::collections::BTreeMap::new(),
        };
        apply::apply(&request).unwrap();
    }
}

fn patch(path: &str, operation: &str, diff: &str) -> Value {
    json!({"path": path, "operation": operation, "diff": diff})
}

/// The result of upstream's `computeDiffBundle` for the differences from `HEAD`.
fn diff_of_git(root: &Path) -> Value {
    git(root, &["add", "--intent-to-add", "."]);
    let arguments = ["diff", "--binary", "--find-renames=100%", "--no-ext-diff", "HEAD", "--", "."];
    let diff = git(root, &arguments);
    let parts = diff.split("diff --git ").skip(1).map(|part| format!("diff --git {part}"));
    let patch = |part: String| {
        let path = part.lines().next().unwrap().rsplit_once(" b/").unwrap().1.to_owned();
        let operation = if part.contains("\nnew file mode") {
            "add"
        } else if part.contains("\ndeleted file mode") {
            "delete"
        } else {
            "modify"
        };
        let mut proposed = patch(&path, operation, &part);
        if part.contains("GIT binary patch") && operation != "delete" {
            use base64::Engine as _;
            let content = std::fs::read(root.join(&path)).unwrap();
            let encoded = base64::engine::general_purpose::STANDARD.encode(content);
            proposed["binaryContent"] = json!(encoded);
        }
        proposed
    };
    parts.map(patch).collect()
}

#[test]
fn what_git_tells_of_a_tree_makes_the_same_tree() {
    let (sandbox, host) = (fixture(), fixture());
    let root = &sandbox.root;
    std::fs::write(root.join("src/app.ts"), "one\n2\nthree\nfour").unwrap();
    std::fs::create_dir_all(root.join("new/deep")).unwrap();
    std::fs::write(root.join("new/deep/file name.txt"), "new\n").unwrap();
    std::fs::write(root.join("new/empty"), "").unwrap();
    std::fs::write(root.join("new/data.bin"), [0, 159, 146, 150]).unwrap();
    std::fs::rename(root.join("moved.txt"), root.join("new/place.txt")).unwrap();
    std::fs::remove_file(root.join("old.bin")).unwrap();
    std::fs::set_permissions(root.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("app.ts", root.join("src/link")).unwrap();

    let changes = host.propose("HEAD", &diff_of_git(root)).unwrap();
    assert_eq!(host.read("src/app.ts"), "one\ntwo\nthree\n", "the project was changed");
    host.apply(changes);
    git(&host.root, &["add", "--intent-to-add", "."]);
    let tree = |root: &Path| git(root, &["diff", "HEAD", "--binary"]);
    assert_eq!(tree(&host.root), tree(root));
}

#[test]
fn a_diff_does_what_it_was_announced_as() {
    let host = fixture();
    let modify = |path: &str| {
        format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+1\n")
    };
    let git_config = "diff --git a/.git/config b/.git/config\n--- a/.git/config\n\
                      +++ b/.git/config\n@@ -1 +1 @@\n-one\n+1\n";
    let both = modify("src/app.ts") + &modify("run.sh");
    for (proposed, found) in [
        (patch("README-only.md", "modify", &modify("src/app.ts")), "changes another path"),
        (patch("README-only.md", "add", git_config), "changes another path"),
        (patch("src/app.ts", "modify", &both), "changes other files too"),
        (patch("src/app.ts", "add", &modify("src/app.ts")), "describes another operation"),
        (patch("src/app.ts", "delete", &modify("src/app.ts")), "describes another operation"),
        (patch("src/app.ts", "modify", ""), "changes nothing"),
    ] {
        let error = host.refused(&json!([proposed]));
        assert!(matches!(&error, Error::Differs { found: is, .. } if *is == found), "{error}");
        assert_eq!(error.code(), "INVALID_INPUT");
    }
    let twice = patch("src/app.ts", "modify", &modify("src/app.ts"));
    assert!(matches!(host.refused(&json!([twice, twice])), Error::Duplicate { .. }));
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let add = |path: &str| {
        let diff = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n\
             @@ -0,0 +1 @@\n+x\n"
        );
        patch(path, "add", &diff)
    };
    let modify = |path: &str, old: &str| {
        let diff = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+x\n");
        patch(path, "modify", &diff)
    };
    for proposed in [
        add("src/app.ts"),
        add("run.sh/below"),
        add("src"),
        modify("src/app.ts", "another line"),
        modify("absent", "one"),
        patch("absent", "delete", ""),
        patch("src", "delete", ""),
    ] {
        let host = fixture();
        let error = host.refused(&json!([add("fine"), proposed]));
        assert_eq!(error.code(), "TOOL_PATCH_FAILED", "{error}");
        assert!(!host.root.join("fine").exists());
    }
}

#[test]
fn a_mode_changes_only_where_the_patch_says_so() {
    let mode = |header: &str, base: u32| {
        let host = fixture();
        std::fs::set_permissions(host.root.join("run.sh"), PermissionsExt::from_mode(base))
            .unwrap();
        let diff = format!(
            "diff --git a/run.sh b/run.sh\n{header}--- a/run.sh\n+++ b/run.sh\n\
             @@ -1 +1 @@\n-#!/bin/sh\n+#!/bin/bash\n"
        );
        let changes = host.propose("HEAD", &json!([patch("run.sh", "modify", &diff)]));
        match changes.unwrap().entries[0].change.new_node() {
            Some(Node::File { mode, .. }) => *mode,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mode("index 0123456..789abcd 100644\n", 0o755), 0o755);
    assert_eq!(mode("index 0123456..789abcd 100755\n", 0o640), 0o640);
    assert_eq!(mode("old mode 100644\nnew mode 100755\nindex 0123456..789abcd\n", 0o640), 0o750);
    assert_eq!(mode("old mode 100755\nnew mode 100644\nindex 0123456..789abcd\n", 0o755), 0o644);
}

#[test]
fn a_file_is_not_taken_for_a_link() {
    let host = fixture();
    let diff = "diff --git a/run.sh b/run.sh\nindex 0123456..789abcd 120000\n--- a/run.sh\n\
                +++ b/run.sh\n@@ -1 +1 @@\n-#!/bin/sh\n+src\n\\ No newline at end of file\n";
    let error = host.refused(&json!([patch("run.sh", "modify", diff)]));
    assert!(matches!(error, Error::DoesNotFit { .. }), "{error}");
}

#[test]
fn a_link_of_the_host_is_not_followed() {
    let host = fixture();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "one\n").unwrap();
    symlink(outside.path(), host.root.join("link")).unwrap();
    let add = "diff --git a/link/new b/link/new\nnew file mode 100644\n--- /dev/null\n\
               +++ b/link/new\n@@ -0,0 +1 @@\n+x\n";
    let modify = "--- a/link/file\n+++ b/link/file\n@@ -1 +1 @@\n-one\n+x\n";
    for proposed in [patch("link/new", "add", add), patch("link/file", "modify", modify)] {
        let error = host.refused(&json!([proposed]));
        assert_eq!(error.code(), "TOOL_PATH_ESCAPE", "{error}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn what_git_runs_is_shown_and_refused() {
    let host = fixture();
    for path in [".git/hooks/post-commit", ".git/config", "sub/.GIT/config"] {
        let content =
            json!([{"path": path, "operation": "add", "diff": "", "binaryContent": "eA=="}]);
        match host.propose("HEAD", &content) {
            Ok(changes) => {
                let entry = changes.entries.iter().find(|entry| entry.path.quoted() == path);
                assert_eq!(entry.unwrap().refused, Some(Refusal::GitDirectory), "{path}");
            }
            // It already exists.
            Err(error) => assert_eq!(error.code(), "TOOL_PATCH_FAILED", "{path}: {error}"),
        }
    }
}

#[test]
fn changes_are_against_what_the_sandbox_began_with() {
    let host = fixture();
    let head = git(&host.root, &["rev-parse", "HEAD"]).trim().to_owned();
    let none = json!([]);
    for base in ["HEAD", head.as_str(), &head[..8]] {
        assert!(host.propose(base, &none).is_ok(), "{base}");
    }
    for base in ["no-such-ref-deadbeef", &head[..6], "", "main", "HEAD~1"] {
        let error = host.propose(base, &none).unwrap_err();
        assert!(matches!(error, Error::BaseRef { .. }), "{base}: {error}");
        assert_eq!(error.code(), "INVALID_INPUT");
    }
}

#[test]
fn what_the_host_changed_meanwhile_is_a_conflict() {
    let host = fixture();
    std::fs::write(host.root.join("src/app.ts"), "one\nelse\n").unwrap();
    let diff = "--- a/src/app.ts\n+++ b/src/app.ts\n@@ -1 +1 @@\n-one\n+1\n";
    let changes = host.propose("HEAD", &json!([patch("src/app.ts", "modify", diff)])).unwrap();
    assert!(changes.entries[0].conflict);
}
