//! Two owners and every operation of the list: neither learns of, or changes, what belongs to the
//! other. A new operation fails here until its request is defined below.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stockade_api::{FileContent, LONG, PLAIN, Problem, Sandboxes, dispatch};
use stockade_core::Code;
use stockade_durable::Filter;
use stockade_service::{Home, Options, Service};
use tempfile::TempDir;

use crate::call;
use crate::harness::{self, Harness, caller};

/// The ids of one owner's objects that an operation can concern.
#[derive(Debug, Clone)]
struct Resources {
    sandbox: String,
    snapshot: String,
    operation: String,
    bundle: String,
    volume: String,
}

/// The request of an operation; `None` if it concerns no object of an owner.
fn request_for(operation: &str, resources: &Resources) -> Option<Value> {
    let Resources { sandbox, snapshot, operation: workflow, bundle, volume } = resources;
    let path = |rest: Value| {
        let mut request = json!({"sandboxId": sandbox, "path": "/w/f"});
        request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        request
    };
    Some(match operation {
        "create" | "select_runtime" | "snapshots" | "images" | "wait_download" | "tools"
        | "bundles" | "propose_changes" | "create_key" | "keys" | "revoke_key"
        | "create_secret" | "import_secret" | "secrets" | "rotate_secret" | "remove_secret"
        | "pull_image" | "remove_image" | "create_volume" | "volumes" => {
            return None;
        }
        "find_volume" | "remove_volume" => json!({"name": volume}),
        "write_secret_file" => json!({
            "sandboxId": sandbox, "path": "/run/secrets/k", "secret": {"ref": "a"},
        }),
        // Their names are those of their owner.
        name if name.contains("workspace") || name == "nodes" => return None,
        "start" | "stop" | "pause" | "resume" | "kill" | "get_status" => json!({"id": sandbox}),
        "renew" => json!({"id": sandbox, "ttlSeconds": 60}),
        "change_metadata" => json!({"id": sandbox, "metadata": {"a": "b"}}),
        "change_limits" => json!({"id": sandbox, "limits": {"processes": 7}}),
        "change_network" => json!({"id": sandbox, "allow": ["host.example"]}),
        "change_injections" => json!({"id": sandbox}),
        "set_secrets" => json!({"id": sandbox, "values": {"API_KEY": "sk-Zq83hTnw04LxvUe7"}}),
        "list" => json!({"after": sandbox}),
        "execute" | "execute_stream" => json!({"sandboxId": sandbox, "command": ["true"]}),
        "open_session" => json!({"execute": {"sandboxId": sandbox, "command": ["true"]}}),
        "operation" | "wait_operation" | "cancel_operation" | "get_command" => json!(workflow),
        "read_output" | "kill_command" | "attach_command" => json!({"workflowId": workflow}),
        "commands" => json!({"sandboxId": sandbox}),
        "read_events" => json!({"sandboxId": sandbox}),
        "stat_file" | "list_directory" | "make_directory" | "remove_file" | "read_file"
        | "write_file" | "receive_files" => path(json!({})),
        "send_files" => path(json!({"mode": 0o755})),
        "move_file" => json!({"sandboxId": sandbox, "from": "/w/f", "to": "/w/g"}),
        "set_permissions" => path(json!({"mode": 0})),
        "search_files" => path(json!({"pattern": "*"})),
        "replace_text" => {
            let edit = json!({"path": "/w/f", "old": "text", "new": "other"});
            json!({"sandboxId": sandbox, "edits": [edit]})
        }
        "apply_patch" => {
            path(json!({"path": "/w", "diff": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-text\n+other\n"}))
        }
        "resolve_endpoint" => json!({"id": sandbox, "port": 80}),
        "connect" | "open_port" => json!({"sandboxId": sandbox, "port": 80}),
        "http_request" | "http_stream" | "web_socket" => {
            json!({"sandboxId": sandbox, "port": 80, "path": "/"})
        }
        "run_node" => {
            json!({"node": "SandboxStatusNode", "inputs": {"sandboxId": sandbox}})
        }
        "sync_from_vfs" | "sync_to_vfs" => path(json!({"vfs": {"directory": "/nowhere"}})),
        "collect_directory" => path(json!({"to": "/nowhere/at/all", "limitBytes": 1})),
        "snapshot" | "collect_changes" => json!({"sandboxId": sandbox}),
        "restore" => json!({"snapshotId": snapshot}),
        "remove_snapshot" => json!(snapshot),
        "run_tool" => {
            json!({"sandboxId": sandbox, "tool": "shell", "arguments": {"command": "true"}})
        }
        "show_bundle" | "diff_bundle" | "apply_bundle" | "reject_bundle" => json!({"id": bundle}),
        unknown => unreachable!("say here what {unknown:?} is asked"),
    })
}

fn read<T: DeserializeOwned>(request: Value) -> T {
    serde_json::from_value(request).unwrap()
}

/// Requests an operation that returns a stream, or needs one, and drops its result.
async fn call_long(
    service: &Service,
    owner: &str,
    operation: &str,
    request: Value,
) -> Result<(), Problem> {
    let me = caller(owner);
    match operation {
        "open_session" => service.open_session(&me, read(request)).await.map(drop),
        "read_output" => service.read_output(&me, read(request)).await.map(drop),
        "read_events" => service.read_events(&me, read(request)).await.map(drop),
        "read_file" => service.read_file(&me, read(request)).await.map(drop),
        "write_file" => {
            let content = FileContent(Box::pin(std::io::Cursor::new(b"other".to_vec())));
            service.write_file(&me, read(request), content).await.map(drop)
        }
        "send_files" => {
            // A tree without entries.
            let content = FileContent(Box::pin(std::io::Cursor::new(b"E".to_vec())));
            service.send_files(&me, read(request), content).await.map(drop)
        }
        "receive_files" => service.receive_files(&me, read(request)).await.map(drop),
        "attach_command" => service.attach_command(&me, read(request)).await.map(drop),
        "connect" => service.connect(&me, read(request)).await.map(drop),
        "http_stream" => service.http_stream(&me, read(request)).await.map(drop),
        "web_socket" => service.web_socket(&me, read(request)).await.map(drop),
        "diff_bundle" => service.diff_bundle(&me, read(request)).await.map(drop),
        unknown => unreachable!("say here how {unknown:?} is asked for"),
    }
}

struct Setup {
    harness: Harness,
    temp_dir: TempDir,
    own: Resources,
}

impl Setup {
    /// A service in which `u1` has one object of each kind.
    async fn new() -> Self {
        let temp_dir = tempfile::tempdir().unwrap();
        let (data, project) = (temp_dir.path().join("data"), temp_dir.path().join("project"));
        std::fs::create_dir_all(project.join(".git")).unwrap();
        let home = Some(Home { path: data.clone(), owner: caller("u1").owner });
        let harness = Harness::with(Options { home, ..Options::default() }).await;
        let id = harness.sandbox().await;
        harness.write(&id, "/w/f", "text").await.unwrap();
        let snapshot = call(&harness, "snapshot", json!({"sandboxId": id})).await.unwrap();
        let volume = call(&harness, "create_volume", json!({"name": "volume-of-u1"})).await;
        let own = Resources {
            sandbox: id.to_string(),
            snapshot: snapshot["id"].as_str().unwrap().to_owned(),
            operation: harness.status(&id).await.workflow_id.unwrap(),
            bundle: harness::bundle(&data, &project, &["new"]),
            volume: volume.unwrap()["name"].as_str().unwrap().to_owned(),
        };
        Self { harness, temp_dir, own }
    }

    /// All objects of `u1`.
    async fn all(&self) -> Value {
        let mut all = json!({});
        for operation in ["list", "snapshots", "bundles", "volumes"] {
            all[operation] = call(&self.harness, operation, json!({})).await.unwrap();
        }
        let id = self.own.sandbox.clone().try_into().unwrap();
        all["file"] = json!(self.harness.read(&id, "/w/f").await.unwrap());
        // Reading the file above is an event itself.
        let is_copy = |event: &stockade_api::RecordedEvent| {
            event.payload.kind() == stockade_core::event::Kind::FilesCopied
        };
        let mut events = self.harness.events().await;
        events.retain(|event| !is_copy(event));
        all["events"] = json!(events);
        all["applied"] = json!(self.temp_dir.path().join("project/new").exists());
        all
    }

    async fn answer(&self, operation: &'static str, resources: &Resources) -> Result<(), Problem> {
        let request = request_for(operation, resources).unwrap();
        let service = self.harness.service.clone();
        match LONG.contains(&operation) {
            true => call_long(&service, "u2", operation, request).await,
            false => {
                let bytes = serde_json::to_vec(&request).unwrap();
                dispatch(&service, &caller("u2"), operation, &bytes).await.map(drop)
            }
        }
    }
}

#[tokio::test]
async fn nobody_learns_of_what_is_anothers() {
    let scene = Setup::new().await;
    let nothing = Resources {
        sandbox: "000000000000".to_owned(),
        snapshot: "snap-000000000000".to_owned(),
        operation: "0".repeat(scene.own.operation.len()),
        bundle: "0".repeat(64),
        volume: "no-volume".to_owned(),
    };
    let (before, calls) = (scene.all().await, scene.harness.runtime_calls());
    let request = PLAIN.iter().chain(LONG).copied();
    for operation in request.filter(|operation| request_for(operation, &nothing).is_some()) {
        let redacted = |problem: Problem, things: &Resources| {
            let Resources { sandbox, snapshot, operation, bundle, volume } = things;
            let mut text = serde_json::to_string(&problem).unwrap();
            for id in [bundle, snapshot, operation, sandbox, volume] {
                text = text.replace(id, "ID");
            }
            text
        };
        let strange = scene.answer(operation, &scene.own).await.expect_err(operation);
        assert!(
            matches!(strange.code, Code::NotFound | Code::BundleNotFound),
            "{operation}: {strange:?}"
        );
        let none = scene.answer(operation, &nothing).await.expect_err(operation);
        assert_eq!(redacted(strange, &scene.own), redacted(none, &nothing), "{operation}");
    }
    assert_eq!(scene.harness.runtime_calls(), calls, "a runtime was asked");
    assert_eq!(scene.all().await, before);
}

#[tokio::test]
async fn lists_are_ones_own() {
    let scene = Setup::new().await;
    let mut lists = 0;
    for operation in PLAIN.iter().filter(|name| request_for(name, &scene.own).is_none()) {
        // Keys are for callers with the admin scope.
        let is_list = !matches!(
            *operation,
            "create"
                | "select_runtime"
                | "propose_changes"
                | "create_key"
                | "keys"
                | "revoke_key"
                | "create_secret"
                | "import_secret"
                | "rotate_secret"
                | "remove_secret"
                | "wait_download"
                | "pull_image"
                | "remove_image"
                | "create_volume"
        );
        if !is_list || operation.contains("workspace") {
            continue;
        }
        // Keys are for admins, which these owners are not.
        if operation.contains("key") {
            let request: &[u8] = if *operation == "revoke_key" { b"{\"id\":\"x\"}" } else { b"{}" };
            let (service, stranger) = (&scene.harness.service, caller("u2"));
            let refused = dispatch(service, &stranger, operation, request).await.unwrap_err();
            assert_eq!(refused.code, Code::Forbidden, "{operation}");
            continue;
        }
        let list = async |owner: &str| {
            dispatch(&scene.harness.service, &caller(owner), operation, b"{}").await.unwrap()
        };
        let (strange, none) = (list("u2").await, list("u3").await);
        assert_eq!(strange, none, "{operation}");
        let Resources { sandbox, snapshot, operation: _, bundle, volume } = &scene.own;
        let text = strange.to_string();
        assert!(
            ![sandbox, snapshot, bundle, volume].iter().any(|id| text.contains(*id)),
            "{operation}"
        );
        lists += 1;
    }
    assert_eq!(lists, 7, "snapshots, images, tools, bundles, secrets, nodes, volumes");
    let list = dispatch(&scene.harness.service, &caller("u2"), "list", b"{}").await.unwrap();
    assert_eq!(list, json!({"sandboxes": [], "more": false}));
    let events = read(json!({}));
    let mut events = scene.harness.service.read_events(&caller("u2"), events).await.unwrap();
    assert!(events.next().await.is_none());
    let workflows = scene.harness.service.engine().list(Filter::default()).await.unwrap();
    assert!(
        workflows.iter().all(|info| info.owner.as_deref() != Some("u2")),
        "a stranger has a record"
    );
}
