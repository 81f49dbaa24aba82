//! The changes of a sandbox in its workspace as a bundle: once for each key, whatever happens to
//! the service, and without excluded paths.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::path::PathBuf;

use harness::{Harness, Side, caller};
use serde_json::{Value, json};
use stockade_api::{CreateSandbox, Problem, dispatch};
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, SandboxId};
use stockade_service::{Home, Options};
use tempfile::TempDir;

/// A service on a data directory of `u1`, a project, and a sandbox that works on it.
struct Setup {
    harness: Harness,
    project: PathBuf,
    sandbox: SandboxId,
    temp_dir: TempDir,
}

impl Setup {
    async fn new() -> Self {
        Self::with_rules(Vec::new()).await
    }

    async fn with_rules(access_rules: Vec<Value>) -> Self {
        let temp_dir = tempfile::tempdir().unwrap();
        let project = temp_dir.path().join("project");
        for directory in [".git", "tree/deep"] {
            std::fs::create_dir_all(project.join(directory)).unwrap();
        }
        for file in ["old", "gone", "tree/deep/file"] {
            std::fs::write(project.join(file), format!("{file}\n")).unwrap();
        }
        let home = Home { path: temp_dir.path().join("data"), owner: caller("u1").owner };
        let harness = Harness::with(Options { home: Some(home), ..Options::default() }).await;
        let workspace = Workspace { host: project.clone(), inside: "/project".into() };
        let request =
            CreateSandbox { workspace: Some(workspace), access_rules, ..CreateSandbox::default() };
        let sandbox = harness.create(request).await.unwrap().id;
        Self { harness, project, sandbox, temp_dir }
    }

    async fn change(&self) {
        self.harness.write(&self.sandbox, "/project/old", "changed\n").await.unwrap();
        self.harness.write(&self.sandbox, "/project/new", "new\n").await.unwrap();
        for path in ["/project/gone", "/project/tree"] {
            let request = json!({"sandboxId": self.sandbox, "path": path});
            self.call("u1", "", "remove_file", request).await.unwrap();
        }
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

    async fn collect(&self, key: &'static str, rest: Value) -> Result<Value, Problem> {
        let mut request = json!({"sandboxId": self.sandbox});
        request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        self.call("u1", key, "collect_changes", request).await
    }

    /// The paths in a bundle.
    async fn paths(&self, collected: &Value) -> Vec<String> {
        let request = json!({"id": collected["bundle"]["id"]});
        let detail = self.call("u1", "", "show_bundle", request).await.unwrap();
        let entries = detail["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }

    async fn waiting(&self) -> usize {
        let list = self.call("u1", "", "bundles", json!({})).await.unwrap();
        assert_eq!(list["views"], json!([]));
        list["bundles"].as_array().unwrap().len()
    }

    /// The number of leftover copies.
    fn left(&self) -> usize {
        std::fs::read_dir(self.temp_dir.path().join("data/views")).unwrap().count()
    }

    /// Simulates a power failure of the host before the collection was recorded.
    async fn forget(&mut self) {
        let forgotten = "UPDATE workflow_status SET status = 'PENDING', output = NULL, \
            completed_at = NULL WHERE name IN ('sandbox.collect_changes', \
            'sandbox.collect_directory')";
        self.harness.tamper(forgotten).await;
        let step = "DELETE FROM operation_outputs WHERE function_name = 'collect'";
        self.harness.tamper(step).await;
        self.harness.kill().await;
    }
}

const CHANGED: [&str; 6] = ["gone", "new", "old", "tree", "tree/deep", "tree/deep/file"];

#[tokio::test]
async fn changes_become_a_bundle_that_is_applied() {
    let scene = Setup::new().await;
    let nothing = scene.collect("", json!({})).await.unwrap();
    assert_eq!(nothing, json!({"bundle": null, "notes": []}));
    scene.change().await;
    let collected = scene.collect("", json!({})).await.unwrap();
    assert_eq!(scene.paths(&collected).await, CHANGED);
    let bundle = &collected["bundle"];
    assert_eq!(bundle["command"], json!(["stockade", "collect", scene.sandbox]));
    assert_eq!(bundle["changes"]["total"], 6);
    assert_eq!((scene.waiting().await, scene.left()), (1, 0));
    let applied = scene.call("u1", "", "apply_bundle", json!({"id": bundle["id"]})).await.unwrap();
    assert_eq!(applied["done"], true);
    assert_eq!(std::fs::read_to_string(scene.project.join("old")).unwrap(), "changed\n");
    assert!(!scene.project.join("tree").exists() && scene.project.join("new").exists());
}

/// A file that the host received from a sandbox does not conflict with the sandbox's next version,
/// but any other change of it does.
#[tokio::test]
async fn one_file_is_applied_again_and_again_until_somebody_else_changes_it() {
    let scene = Setup::new().await;
    let host = scene.project.join("old");
    let offer = async |content: Option<&str>| {
        match content {
            Some(content) => {
                scene.harness.write(&scene.sandbox, "/project/old", content).await.unwrap();
            }
            None => {
                let request = json!({"sandboxId": scene.sandbox, "path": "/project/old"});
                scene.call("u1", "", "remove_file", request).await.unwrap();
            }
        }
        // A user looks at one bundle, and then at another.
        scene.collect("", json!({})).await.unwrap();
        scene.collect("", json!({})).await.unwrap()["bundle"]["id"].clone()
    };
    let apply = async |id: Value| {
        scene
            .call("u1", "", "apply_bundle", json!({"id": id}))
            .await
            .map_err(|problem| problem.code)
    };
    for content in [Some("2\n"), Some("3\n"), None, Some("4\n"), Some("5\n")] {
        apply(offer(content).await).await.unwrap();
        assert_eq!(std::fs::read_to_string(&host).ok().as_deref(), content);
    }
    // Also if the file has an earlier content again, or only its mode differs from the applied one.
    std::fs::write(&host, "4\n").unwrap();
    assert_eq!(apply(offer(Some("6\n")).await).await.unwrap_err(), Code::BundleConflict);
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    let usual = host.metadata().unwrap().permissions();
    std::fs::write(&host, "5\n").unwrap();
    std::fs::set_permissions(&host, mode(0o600)).unwrap();
    assert_eq!(apply(offer(Some("7\n")).await).await.unwrap_err(), Code::BundleConflict);
    // The exact applied version is recognized again.
    std::fs::set_permissions(&host, usual).unwrap();
    apply(offer(Some("8\n")).await).await.unwrap();
    std::fs::remove_file(&host).unwrap();
    std::fs::write(&host, "theirs\n").unwrap();
    assert_eq!(apply(offer(None).await).await.unwrap_err(), Code::BundleConflict);

    let histories = scene.temp_dir.path().join("data/histories");
    // What was applied, and what the workspace was at the start.
    assert_eq!(std::fs::read_dir(&histories).unwrap().count(), 2);
    scene.call("u1", "", "kill", json!({"id": scene.sandbox})).await.unwrap();
    assert_eq!(std::fs::read_dir(&histories).unwrap().count(), 0);
}

#[tokio::test]
async fn the_same_name_is_the_same_bundle_and_another_is_another() {
    let scene = Setup::new().await;
    scene.change().await;
    let first = scene.collect("a", json!({})).await.unwrap();
    scene.harness.write(&scene.sandbox, "/project/later", "later\n").await.unwrap();
    assert_eq!(scene.collect("a", json!({})).await.unwrap(), first);
    let second = scene.collect("b", json!({})).await.unwrap();
    assert_ne!(first["bundle"]["id"], second["bundle"]["id"]);
    assert!(scene.paths(&second).await.contains(&"later".to_owned()));
    assert!(!scene.paths(&first).await.contains(&"later".to_owned()));
    let other = scene.collect("a", json!({"exclude": ["old"]})).await.unwrap_err();
    assert_eq!(other.code, Code::Conflict);
    // The record is returned again after the end of the sandbox.
    scene.call("u1", "", "kill", json!({"id": scene.sandbox})).await.unwrap();
    assert_eq!(scene.collect("a", json!({})).await.unwrap(), first);
    assert_eq!(scene.collect("c", json!({})).await.unwrap_err().code, Code::SandboxTerminated);
    assert_eq!(scene.waiting().await, 2);
}

#[tokio::test]
async fn what_is_excluded_is_left_out() {
    let scene = Setup::new().await;
    scene.change().await;
    scene.harness.write(&scene.sandbox, "/project/.smithers/x", "x").await.unwrap();
    let absolute = scene.project.join("new");
    let exclude = json!({"exclude": [".smithers", "./tree/deep/", absolute]});
    let collected = scene.collect("", exclude).await.unwrap();
    assert_eq!(scene.paths(&collected).await, ["gone", "old"]);
    for refused in ["..", "/etc", "", "."] {
        let problem = scene.collect("", json!({"exclude": [refused]})).await.unwrap_err();
        assert_eq!(problem.code, Code::InvalidInput, "{refused}");
    }
}

#[tokio::test]
async fn what_nobody_may_read_is_left_out() {
    let rule = |effect: &str, level: &str, path: &str| json!({"effect": effect, "level": level, "path": path});
    let all = rule("allow", "readwrite", "/");
    let scene = Setup::with_rules(vec![all, rule("deny", "read", "/project/tree")]).await;
    let fake = &scene.harness.fake;
    // A process might have created it, because the rules bind only the operations.
    let tree = stockade_runtime::SandboxPath::new("/project/tree").unwrap();
    stockade_runtime::Runtime::remove(fake, &scene.sandbox, &tree).await.unwrap();
    scene.harness.write(&scene.sandbox, "/project/new", "new\n").await.unwrap();
    let collected = scene.collect("", json!({})).await.unwrap();
    assert_eq!(scene.paths(&collected).await, ["new"]);

    let scene = Setup::with_rules(vec![rule("allow", "readwrite", "/project/tree")]).await;
    let refused = scene.collect("", json!({})).await.unwrap_err();
    assert_eq!(refused.code, Code::AccessDenied);
}

#[tokio::test]
async fn they_are_collected_whatever_the_sandbox_does() {
    let scene = Setup::new().await;
    scene.change().await;
    let id = json!({"id": scene.sandbox});
    for (operation, state) in
        [("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")]
    {
        scene.call("u1", "", operation, id.clone()).await.unwrap();
        let collected = scene.collect("", json!({})).await.unwrap();
        assert_eq!(scene.paths(&collected).await, CHANGED, "{state}");
        assert_eq!(scene.harness.status(&scene.sandbox).await.state.as_str(), state);
    }
}

#[tokio::test]
async fn a_killed_service_makes_one_bundle() {
    for side in [Side::Before, Side::After] {
        let mut scene = Setup::new().await;
        scene.change().await;
        scene.harness.gate.hold("changes", side);
        let pending = scene.harness.spawn({
            let request = serde_json::to_vec(&json!({"sandboxId": scene.sandbox})).unwrap();
            |service| async move {
                dispatch(&service, &caller("u1").with_key("a"), "collect_changes", &request).await
            }
        });
        scene.harness.gate.wait_for_held(1).await;
        scene.harness.kill().await;
        drop(pending);
        let collected = scene.collect("a", json!({})).await.unwrap();
        assert_eq!(scene.paths(&collected).await, CHANGED);
        assert_eq!((scene.waiting().await, scene.left()), (1, 0));
    }
}

/// The bundle exists, but its record does not: as if the host had lost its power in between.
#[tokio::test]
async fn a_bundle_that_was_made_is_found() {
    let mut scene = Setup::new().await;
    scene.change().await;
    let first = scene.collect("a", json!({})).await.unwrap();
    scene.harness.write(&scene.sandbox, "/project/later", "later\n").await.unwrap();
    scene.forget().await;
    assert_eq!(scene.collect("a", json!({})).await.unwrap(), first);
    assert_eq!(scene.waiting().await, 1);
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let scene = Setup::new().await;
    let plain = scene.harness.sandbox().await;
    let collect = async |owner: &'static str, id: &SandboxId| {
        scene.call(owner, "", "collect_changes", json!({"sandboxId": id})).await.unwrap_err()
    };
    let none = collect("u1", &plain).await;
    assert_eq!(none.code, Code::InvalidInput);
    assert_eq!(collect("u2", &scene.sandbox).await.code, Code::NotFound);
    // A caller with sandboxes here, but without a data directory.
    let workspace = Workspace { host: scene.project.clone(), inside: "/project".into() };
    let request = CreateSandbox { workspace: Some(workspace), ..CreateSandbox::default() };
    let plain_sandbox = scene.harness.run(|service| async move {
        stockade_api::Sandboxes::create(&service, &caller("u2"), request).await
    });
    let other = plain_sandbox.await.unwrap().id;
    assert_eq!(collect("u2", &other).await.code, Code::Unsupported);
    scene.change().await;
    let small = scene.collect("", json!({"limitBytes": 3})).await.unwrap_err();
    assert_eq!(small.code, Code::BundleTooLarge);
    std::fs::rename(&scene.project, scene.temp_dir.path().join("elsewhere")).unwrap();
    let error = scene.collect("", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::Io);
    assert_eq!((scene.waiting().await, scene.left()), (0, 0));
}

fn proposal(project: &std::path::Path, path: &str) -> Value {
    let diff = format!(
        "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n\
         @@ -0,0 +1 @@\n+new\n"
    );
    let patch = json!({"path": path, "operation": "add", "diff": diff});
    let diff = json!({"seq": 1, "baseRef": "HEAD", "patches": [patch]});
    json!({"project": project, "diff": diff, "origin": "review"})
}

/// Proposed changes wait like those of a sandbox, and are stored once.
#[tokio::test]
async fn proposed_changes_wait_and_are_kept_once() {
    let mut scene = Setup::new().await;
    let propose = proposal(&scene.project, "sub/new.txt");
    let first = scene.call("u1", "p", "propose_changes", propose.clone()).await.unwrap();
    assert!(!scene.paths(&first).await.is_empty());
    assert!(!scene.project.join("sub").exists());
    let forgotten = "UPDATE workflow_status SET status = 'PENDING', output = NULL, \
        completed_at = NULL WHERE name = 'bundle.propose'";
    scene.harness.tamper(forgotten).await;
    scene.harness.tamper("DELETE FROM operation_outputs WHERE function_name = 'propose'").await;
    scene.harness.kill().await;
    assert_eq!(scene.call("u1", "p", "propose_changes", propose.clone()).await.unwrap(), first);
    assert_eq!((scene.waiting().await, scene.left()), (1, 0));
    // A refused proposal leaves nothing, and its error contains the word of the refusal.
    for (path, word) in
        [(".git/hooks/post-commit", "TOOL_PATH_ESCAPE"), ("../out", "TOOL_PATH_ESCAPE")]
    {
        let hostile = proposal(&scene.project, path);
        let refused = scene.call("u1", "", "propose_changes", hostile).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidInput);
        assert!(refused.cause.unwrap().starts_with(word), "{path}");
    }
    let mut moved = proposal(&scene.project, "other");
    moved["diff"]["baseRef"] = json!("0123456789012345678901234567890123456789");
    let refused = scene.call("u1", "", "propose_changes", moved).await.unwrap_err();
    assert!(refused.cause.unwrap().starts_with("INVALID_INPUT"));
    let other = scene.call("u2", "", "propose_changes", propose).await.unwrap_err();
    assert_eq!(other.code, Code::Unsupported);
    assert_eq!((scene.waiting().await, scene.left()), (1, 0));
}

#[tokio::test]
async fn a_directory_is_copied_out_whole_or_not_at_all() {
    let mut scene = Setup::new().await;
    scene.change().await;
    let to = scene.temp_dir.path().join("copy");
    let copy_request = |path: &str, limit: u64| json!({"sandboxId": scene.sandbox, "path": path, "to": to, "limitBytes": limit});
    let (all, little) = (copy_request("/project", 1 << 20), copy_request("/project", 1));
    let collect = async |scene: &Setup, key: &'static str, request: &Value| {
        scene.call("u1", key, "collect_directory", request.clone()).await
    };
    assert_eq!(collect(&scene, "", &little).await.unwrap_err().code, Code::InvalidInput);
    assert!(!to.exists());
    collect(&scene, "a", &all).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("old")).unwrap(), "changed\n");
    assert!(to.join("new").exists() && !to.join("gone").exists());
    // With the same key it is done; with another key the target already exists.
    scene.harness.write(&scene.sandbox, "/project/new", "newer\n").await.unwrap();
    collect(&scene, "a", &all).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("new")).unwrap(), "new\n");
    assert!(collect(&scene, "b", &all).await.is_err());
    // Simulates a power failure of the host before that was recorded.
    scene.forget().await;
    collect(&scene, "a", &all).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("new")).unwrap(), "new\n");
}

#[tokio::test]
async fn files_with_secrets_are_not_copied_out() {
    let scene = Setup::new().await;
    for path in ["/run/secrets/k", "/run/other"] {
        scene.harness.write(&scene.sandbox, path, "text").await.unwrap();
    }
    let to = scene.temp_dir.path().join("copy");
    let collect = async |path: &str| {
        let request =
            json!({"sandboxId": scene.sandbox, "path": path, "to": to, "limitBytes": 1 << 20});
        scene.call("u1", "", "collect_directory", request).await
    };
    assert_eq!(collect("/run/secrets").await.unwrap_err().code, Code::AccessDenied);
    assert!(!to.exists());
    collect("/run").await.unwrap();
    assert!(to.join("other").exists() && !to.join("secrets/k").exists());
}

#[tokio::test]
async fn a_directory_is_not_copied_for_others_or_with_what_a_rule_hides() {
    let rule = |effect: &str, path: &str| json!({"effect": effect, "level": "read", "path": path});
    let scene = Setup::with_rules(vec![rule("allow", "/"), rule("deny", "/project/tree")]).await;
    let to = scene.temp_dir.path().join("copy");
    let ask = async |owner: &'static str, path: &str, to: Value| {
        let request = json!({"sandboxId": scene.sandbox, "path": path, "to": to, "limitBytes": 1});
        scene.call(owner, "", "collect_directory", request).await.unwrap_err().code
    };
    assert_eq!(ask("u1", "/project", json!(to)).await, Code::InvalidInput);
    assert_eq!(ask("u1", "/project/tree", json!(to)).await, Code::AccessDenied);
    assert_eq!(ask("u1", "/tmp", json!("relative")).await, Code::InvalidInput);
    assert_eq!(ask("u1", "project", json!(to)).await, Code::PathInvalid);
    assert_eq!(ask("u2", "/project", json!(to)).await, Code::NotFound);
    assert!(!to.exists());
}
