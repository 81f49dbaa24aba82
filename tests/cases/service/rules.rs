//! Access rules, as the operations on files hold them.

use serde_json::{Value, json};
use stockade_api::{CreateSandbox, Problem, dispatch};
use tempfile::TempDir;

use crate::code;
use crate::harness::{Harness, caller};
use crate::support::{Case, no_driver, same};

pub(crate) async fn case(case: Case) -> Result<(), String> {
    let harness = Harness::new().await;
    match case.name.as_str() {
        name if name.starts_with("bad rule rejected at create") => {
            let rules = case.given["accessRules"].as_array().unwrap().clone();
            let request = CreateSandbox { access_rules: rules, ..CreateSandbox::default() };
            let refused = harness.create(request).await.unwrap_err();
            same("rule_invalid".to_owned(), code(&refused))?;
            same(true, refused.message.contains("rule 0"))?;
            same(0, harness.runtime_calls())?;
            same(0, harness.service.live().await.unwrap().len())
        }
        "symlink inside allowed tree to denied tree" => {
            let refused =
                call(&harness, &case, "stat_file", json!({"path": "/w/link/passwd"})).await;
            same("access_denied".to_owned(), code(&refused.unwrap_err()))?;
            let refused = call(&harness, &case, "list_directory", json!({"path": "/w/link"})).await;
            same("access_denied".to_owned(), code(&refused.unwrap_err()))?;
            // Whether there is anything behind it is not told.
            let refused = call(&harness, &case, "stat_file", json!({"path": "/w/link/none"})).await;
            same("access_denied".to_owned(), code(&refused.unwrap_err()))
        }
        "move needs readwrite on both ends" => {
            let paths = json!({"from": "/ro/a", "to": "/w/a"});
            let refused = call(&harness, &case, "move_file", paths).await.unwrap_err();
            same("access_denied".to_owned(), code(&refused))?;
            same(true, refused.message.contains("/ro/a"))?;
            same(0, harness.fake.calls("rename"))
        }
        "recursive delete over a denied child refuses whole operation" => {
            let refused = call(&harness, &case, "remove_file", json!({"path": "/w"})).await;
            same("access_denied".to_owned(), code(&refused.unwrap_err()))?;
            same(0, harness.fake.calls("remove"))
        }
        "recursive list hides denied entries" => {
            let request = json!({"path": "/w", "depth": 9});
            let listing = call(&harness, &case, "list_directory", request).await.unwrap();
            let names: Vec<_> = listing["entries"].as_array().unwrap().iter().collect();
            let hidden = names.iter().filter(|e| e["path"].as_str().unwrap().contains("secret"));
            same((0, true), (hidden.count(), listing["hidden"].as_u64() >= Some(1)))?;
            same(true, names.iter().any(|entry| entry["path"] == "/w/open"))
        }
        _ => no_driver(),
    }
}

/// Asks for an operation in a sandbox with the case's rules and a tree of files.
async fn call(
    harness: &Harness,
    case: &Case,
    operation: &'static str,
    mut request: Value,
) -> Result<Value, Problem> {
    let root = tree();
    let sandbox = CreateSandbox {
        image: Some(root.path().to_str().unwrap().to_owned()),
        access_rules: case.given["rules"].as_array().unwrap().clone(),
        ..CreateSandbox::default()
    };
    let id = harness.create(sandbox).await.unwrap().id;
    request["sandboxId"] = json!(id);
    let request = serde_json::to_vec(&request).unwrap();
    let response = harness.run(move |service| async move {
        dispatch(&service, &caller("u1"), operation, &request).await
    });
    response.await
}

/// A root with something allowed, something denied, and a link from one to the other.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("etc/passwd", "denied"),
        ("w/open", "allowed"),
        ("w/keep/k", "kept"),
        ("w/secret/k", "secret"),
        ("ro/a", "read only"),
    ] {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("/etc", root.path().join("w/link")).unwrap();
    root
}
