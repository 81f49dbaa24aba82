//! The code of a workflow with a sandbox, for tests, and a host for its provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::UserCode;
use super::provider::{ChildResult, ProviderHost};
use crate::authoring::{ChildRequest, Processes};
use crate::engine::task_error::TaskError;
use crate::graph::Work;
use crate::journal::{Journal, WorkflowRef};
use crate::sync::lock;

/// The processes of realms: the example `realm`.
fn realms() -> Processes {
    Processes::new(vec![stockade_test_support::program("realm").into()])
}

/// A workflow with a sandbox whose provider is `provider`, an expression after `before`.
pub(crate) async fn user_code(before: &str, provider: &str) -> Arc<UserCode> {
    let source = format!(
        "import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         import {{ registerSandboxProvider }} from \"smithers-orchestrator/sandbox\";\n\
         const child = createSmithers({{ input: {{}}, result: {{}} }});\n\
         const inner = child.smithers((ctx) => (<child.Workflow name=\"inner\">\n\
           <child.Task id=\"t\" output={{child.outputs.result}}>{{{{ given: ctx.input }}}}</child.Task>\n\
         </child.Workflow>));\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ result: {{}} }});\n\
         const seen: any = {{}};\n\
         {before}\n\
         export default smithers(() => (<Workflow name=\"outer\">\n\
           <Sandbox id=\"box\" provider={{{provider}}} workflow={{inner}} input={{{{ n: 7 }}}} output={{outputs.result}} />\n\
         </Workflow>));\n"
    );
    let (user_code, _) = open_user_code(&source).await;
    user_code.render("run").await.unwrap();
    user_code
}

/// A workflow with a run with the id `run`.
pub(crate) async fn open_user_code(source: &str) -> (Arc<UserCode>, Arc<Mutex<Journal>>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("flow.tsx");
    std::fs::write(&file, source).unwrap();
    let user_code = UserCode::load(realms(), &file, BTreeMap::new()).await.unwrap();
    let journal = Arc::new(Mutex::new(Journal::new("run", json!({}))));
    user_code.open(&journal).await.unwrap();
    (Arc::new(user_code), journal)
}

pub(crate) fn request() -> Value {
    json!({
        "runId": "run", "sandboxId": "box", "rootDir": "/project",
        "requestBundlePath": "/project/request", "resultBundlePath": "/project/result",
        "allowNetwork": false, "maxOutputBytes": 200_000, "toolTimeoutMs": 60_000,
        "egress": { "httpProxy": "http://127.0.0.1:8080" }, "config": { "image": "x" },
    })
}

/// A host that records its calls, and renders children.
pub(crate) struct RecordingHost {
    user_code: Arc<UserCode>,
    pub(crate) heartbeats: Mutex<Vec<Value>>,
    pub(crate) children: Mutex<Vec<ChildRequest>>,
}

#[async_trait]
impl ProviderHost for RecordingHost {
    async fn heartbeat(&self, data: Value) {
        lock(&self.heartbeats).push(data);
    }

    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildResult, TaskError> {
        let id = format!("run:child:box:0:{}", lock(&self.children).len());
        lock(&self.children).push(request.clone());
        if request.input["n"] == "never" {
            std::future::pending::<()>().await;
        }
        if request.input["n"] == "late" {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        }
        if request.input["n"] == "wrong" {
            return Err(TaskError::new("INVALID_INPUT", "it has no such input"));
        }
        let parent_run = Some(("run".to_owned(), workflow));
        let journal = Journal { parent: parent_run, ..Journal::new(&id, request.input) };
        self.user_code.open(&Arc::new(Mutex::new(journal))).await?;
        let view = self.user_code.render(&id).await?;
        let Work::Static(output) = view.graph.tasks()[0].work.clone() else { panic!("{view:?}") };
        Ok(ChildResult { run_id: id, status: "finished", output, error: None })
    }
}

pub(crate) fn recording_host(user_code: &Arc<UserCode>) -> RecordingHost {
    RecordingHost {
        user_code: Arc::clone(user_code),
        heartbeats: Mutex::default(),
        children: Mutex::default(),
    }
}
