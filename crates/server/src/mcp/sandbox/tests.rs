//! The tools over operations that only record what is requested.

use std::path::Path;
use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{
    AttachCommand, Caller, Connect, CreateSandbox, DiffBundle, Duplex, FileContent, HttpRequest,
    HttpStream, Items, OpenSession, OpenWebSocket, OutputItem, PathDiff, Problem, ReadEvents,
    ReadFile, ReadOutput, ReceiveFiles, RecordedEvent, Remote, Result, SendFiles, SentFiles,
    Session, Transport, WebSocket, WriteFile, WriteResult,
};
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, OwnerId, SandboxId};
use tokio_util::task::TaskTracker;

use super::*;
use crate::mcp::{Call, ToolResult};

/// Records the names and requests of operations, and knows one bundle.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(String, Value)>>>);

fn unsupported<T>() -> Result<T> {
    Err(Problem::new(Code::Unsupported, "not here"))
}

#[async_trait]
impl Transport for Recorder {
    async fn call(&self, _: &Caller, operation: &str, request: Value) -> Result<Value> {
        self.0.lock().unwrap().push((operation.to_owned(), request));
        match operation {
            "show_bundle" => Ok(json!({
                "id": "ab", "project": "/p", "createdAt": "2026-01-02T03:04:05.006Z",
                "command": ["x"], "exitCode": 0, "baseRef": null, "state": "open",
                "changes": {"total": 2, "applied": 0, "refused": 0, "ignored": 0, "executed": 1,
                            "conflicting": 0},
                "entries": [{"path": "f", "operation": "modify", "applied": false}],
            })),
            "apply_bundle" => Ok(json!({
                "id": "ab", "project": "/p", "applied": ["f\u{1b}"], "already": [],
                "skipped": [{"path": "g", "reason": "no"}], "done": false,
            })),
            _ => unsupported(),
        }
    }
    async fn open_session(&self, _: &Caller, _: OpenSession) -> Result<Session> {
        unsupported()
    }
    async fn attach_command(&self, _: &Caller, _: AttachCommand) -> Result<Session> {
        unsupported()
    }
    async fn read_output(&self, _: &Caller, _: ReadOutput) -> Result<Items<OutputItem>> {
        unsupported()
    }
    async fn read_events(&self, _: &Caller, _: ReadEvents) -> Result<Items<RecordedEvent>> {
        unsupported()
    }
    async fn read_file(&self, _: &Caller, _: ReadFile) -> Result<FileContent> {
        unsupported()
    }
    async fn write_file(&self, _: &Caller, _: WriteFile, _: FileContent) -> Result<WriteResult> {
        unsupported()
    }
    async fn send_files(&self, _: &Caller, _: SendFiles, _: FileContent) -> Result<SentFiles> {
        unsupported()
    }
    async fn receive_files(&self, _: &Caller, _: ReceiveFiles) -> Result<FileContent> {
        unsupported()
    }
    async fn connect(&self, _: &Caller, _: Connect) -> Result<Box<dyn Duplex>> {
        unsupported()
    }
    async fn http_stream(&self, _: &Caller, _: HttpRequest) -> Result<HttpStream> {
        unsupported()
    }
    async fn web_socket(&self, _: &Caller, _: WebSocket) -> Result<OpenWebSocket> {
        unsupported()
    }
    async fn diff_bundle(&self, _: &Caller, _: DiffBundle) -> Result<Items<PathDiff>> {
        unsupported()
    }
}

struct Fixture {
    recorder: Recorder,
    tools: Tools,
}

impl Fixture {
    fn new(grants: Grants) -> Self {
        let recorder = Recorder::default();
        let tools = tools_for_sandboxes(Arc::new(Remote(recorder.clone())), grants);
        Self { recorder, tools }
    }

    fn of_workspace(directory: &str, grants: Grants) -> Self {
        let recorder = Recorder::default();
        let path = Path::new(directory).to_owned();
        let workspace = Workspace { host: path.clone(), inside: path };
        let request = CreateSandbox { workspace: Some(workspace), ..CreateSandbox::default() };
        let id = SandboxId::new("mcp-1").unwrap();
        let sandboxes = Arc::new(Remote(recorder.clone()));
        let workspace = WorkspaceSandbox::new(sandboxes, id, request, 60.0);
        Self { recorder, tools: tools_for_workspace(Arc::new(workspace), grants) }
    }

    async fn call(&self, name: &'static str, arguments: Value) -> ToolResult {
        let caller = Caller::new(OwnerId::new("uid:7").unwrap());
        let call = Call { caller, tool: name, client: None, ending: TaskTracker::new() };
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        self.tools.0[name].call(&call, arguments).await.unwrap()
    }

    fn requested(&self) -> Vec<String> {
        self.recorder.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

#[tokio::test]
async fn a_bundle_is_applied_if_that_is_granted() {
    let refused = Fixture::new(Grants::default());
    for tool in ["apply", "reject"] {
        let result = refused.call(tool, json!({"bundle": "ab"})).await;
        assert!(result.text.starts_with(&format!("{tool} failed — FORBIDDEN")), "{result:?}");
    }
    assert_eq!(refused.requested(), ["show_bundle", "show_bundle"]);

    let granted = Fixture::new(Grants { apply: true, ..Grants::default() });
    let result = granted.call("apply", json!({"bundle": "ab", "paths": ["f"]})).await;
    let value = result.structured.unwrap();
    assert_eq!(value["applied"], json!(["f\\u{1b}"]), "{value}");
    let (name, request) = granted.recorder.0.lock().unwrap().last().unwrap().clone();
    assert_eq!(name, "apply_bundle");
    assert_eq!((&request["paths"], &request["skipUnaccepted"]), (&json!(["f"]), &json!(true)));
    assert_eq!(request["allowExecuted"], json!(false), "a flag does not accept those");
}

#[tokio::test]
async fn a_workspace_has_the_bundles_of_its_project() {
    let grants = || Grants { apply: true, ..Grants::default() };
    let own = Fixture::of_workspace("/p", grants());
    assert!(!own.call("apply", json!({"bundle": "ab"})).await.is_error);
    let other = Fixture::of_workspace("/q", grants());
    for tool in ["apply", "reject", "diff"] {
        let result = other.call(tool, json!({"bundle": "ab"})).await;
        assert!(result.text.contains("BUNDLE_NOT_FOUND"), "{tool}: {result:?}");
        let latest = own.call(tool, json!({"bundle": "latest"})).await;
        assert!(latest.text.contains("BUNDLE_NOT_FOUND"), "{tool}: {latest:?}");
    }
}

#[tokio::test]
async fn invalid_arguments_cause_no_operation() {
    let named = Fixture::new(Grants::default());
    let one = Fixture::of_workspace("/p", Grants::default());
    for (fixture, tool, arguments) in [
        (&named, "exec", json!({"sandbox": "a", "command": "x", "more": 1})),
        (&named, "exec", json!({"command": "x"})),
        (&named, "exec", json!({"sandbox": "../a", "command": "x"})),
        (&named, "create", json!({"workspace": "/p"})),
        (&named, "create", json!({"allowHosts": ["example.com"]})),
        (&one, "exec", json!({"sandbox": "a", "command": "x"})),
        (&one, "apply", json!({"all": true})),
    ] {
        let result = fixture.call(tool, arguments.clone()).await;
        assert!(result.is_error, "{tool} {arguments}: {result:?}");
        assert_eq!(fixture.requested(), [""; 0], "{tool} {arguments}");
    }
}

#[test]
fn only_tools_on_named_sandboxes_have_the_argument() {
    let argument = |fixture: &Fixture, name: &str| {
        let description = fixture.tools.0[name].description();
        let has = description.input["properties"].get("sandbox").is_some();
        let required = description.input.get("required").cloned().unwrap_or_default();
        assert_eq!(has, required.as_array().is_some_and(|it| it.contains(&json!("sandbox"))));
        assert_eq!(description.input["additionalProperties"], json!(false), "{name}");
        assert_eq!(description.output["type"], json!("object"), "{name}");
        has
    };
    let (named, one) =
        (Fixture::new(Grants::default()), Fixture::of_workspace("/p", Grants::default()));
    for name in named.tools.0.keys() {
        let without = ["apply", "create", "reject", "restore", "sandboxes"].contains(name);
        assert_eq!(argument(&named, name), !without, "{name}");
    }
    for name in one.tools.0.keys() {
        assert!(!argument(&one, name), "{name}");
    }
}
