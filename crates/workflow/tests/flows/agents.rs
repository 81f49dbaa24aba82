//! Agents that are commands: their input, where they are executed, and which of them are rejected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{
    AttachCommand, Bytes, Caller, CommandLine, Connect, DiffBundle, Duplex, Ending, Execute,
    FileContent, HttpRequest, HttpStream, Items, OpenSession, OpenWebSocket, OperationId,
    OperationInfo, OperationStatus, OutputChunk, OutputEnd, OutputItem, PathDiff, Problem,
    ReadEvents, ReadFile, ReadOutput, ReceiveFiles, RecordedEvent, Remote, Result, RunStatus,
    Sandbox, SandboxList, SendFiles, SentFiles, Session, Transport, WebSocket, WriteFile,
    WriteResult,
};
use stockade_core::{Code, State};
use stockade_workflow::engine::OuterSandbox;

use tokio::io::AsyncReadExt as _;

use crate::world::World;

/// Sandboxes that only record their requests. The output of their commands is the result of `answer`
/// for their input.
#[derive(Debug)]
pub(crate) struct FakeSandboxes {
    requests: Mutex<Vec<(String, String, Value)>>,
    answer: fn(u32, &str) -> (i32, String),
    executions: Mutex<u32>,
    /// The content that was last written into a file.
    file_text: Mutex<String>,
    /// The results of commands; none of one that was never started.
    results: Mutex<BTreeMap<String, Option<(i32, String)>>>,
    /// Whether commands change no file of the project.
    is_pure: bool,
}

impl FakeSandboxes {
    pub(crate) fn new(answer: fn(u32, &str) -> (i32, String)) -> Arc<Self> {
        Self::with_changes(answer, true)
    }

    pub(crate) fn with_changes(
        answer: fn(u32, &str) -> (i32, String),
        has_changes: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            is_pure: !has_changes,
            requests: Mutex::default(),
            answer,
            executions: Mutex::default(),
            file_text: Mutex::default(),
            results: Mutex::default(),
        })
    }

    /// The operations that were requested, with their requests.
    fn requests(&self) -> Vec<(String, Value)> {
        let asked = self.requests.lock().unwrap();
        asked.iter().map(|(operation, _, request)| (operation.clone(), request.clone())).collect()
    }

    /// The sandboxes that were created and not killed.
    fn list(&self, caller: &Caller) -> SandboxList {
        let asked = self.requests();
        let ids = |name: &str| {
            let asked = asked.iter().filter(|(operation, _)| operation == name);
            asked.map(|(_, request)| request["id"].clone()).collect::<Vec<_>>()
        };
        let killed = ids("kill");
        let mut left = ids("create");
        left.retain(|id| !killed.contains(id));
        left.dedup();
        let sandboxes = left.iter().map(|id| sandbox(caller, id)).collect();
        SandboxList { sandboxes, ..SandboxList::default() }
    }

    fn keys(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(_, key, _)| key.clone()).collect()
    }

    fn execute(&self, request: Value) -> Result<Value> {
        let execute = serde_json::from_value::<Execute>(request).unwrap();
        assert!(execute.unrecorded, "the output may contain values of variables");
        let number = {
            let mut executions = self.executions.lock().unwrap();
            *executions += 1;
            *executions
        };
        let read = self.file_text.lock().unwrap().clone();
        let (exit_code, written) = (self.answer)(number, &read);
        let (id, result) = (number.to_string(), (exit_code >= 0).then_some((exit_code, written)));
        self.results.lock().unwrap().insert(id.clone(), result);
        Ok(operation(&id, OperationStatus::Running, None))
    }

    fn wait(&self, id: &str) -> Value {
        let is_there = self.results.lock().unwrap()[id].is_some();
        let cancelled = Problem::new(Code::Cancelled, "the server ended");
        match is_there {
            true => operation(id, OperationStatus::Succeeded, None),
            false => operation(id, OperationStatus::Failed, Some(cancelled)),
        }
    }

    fn output(&self, request: &ReadOutput) -> Items<OutputItem> {
        assert!(request.from_sandbox, "nothing is recorded");
        let result = self.results.lock().unwrap()[&request.workflow_id.0].clone();
        let (exit_code, written) = result.unwrap();
        let end = OutputEnd {
            ending: Ending::Exited,
            exit_code: Some(exit_code),
            signal: None,
            reason: None,
            duration_ms: 1,
            stdout_bytes: written.len() as u64,
            stderr_bytes: written.len() as u64,
            refused_calls: Vec::new(),
        };
        let (sender, receiver) = tokio::sync::mpsc::channel(3);
        for (sequence, chunk) in [
            (0, OutputChunk::Stdout { data: written.clone().into() }),
            (1, OutputChunk::Stderr { data: Bytes::from(written) }),
            (2, OutputChunk::Exit(end)),
        ] {
            sender.try_send(Ok(OutputItem { sequence, chunk })).unwrap();
        }
        Items::new(receiver)
    }
}

fn operation(id: &str, status: OperationStatus, error: Option<Problem>) -> Value {
    let (workflow_id, name) = (OperationId(id.to_owned()), "sandbox.execute_stream".to_owned());
    serde_json::to_value(OperationInfo { workflow_id, name, status, result: None, error }).unwrap()
}

fn sandbox(caller: &Caller, id: &Value) -> Sandbox {
    serde_json::from_value(json!({
        "id": id, "ownerId": caller.owner, "state": State::Running, "image": "host",
        "visibility": "private", "runtime": "native", "metadata": {}, "accessRules": [],
        "users": [], "limits": {}, "createdAt": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

fn bundle() -> Value {
    json!({
        "id": "b1", "project": "/p", "createdAt": "2026-01-02T03:04:05.006Z", "command": [], "exitCode": 0,
        "baseRef": null, "state": "open", "changes": { "total": 1, "applied": 0, "refused": 0, "ignored": 0, "executed": 0, "conflicting": 0 },
    })
}

#[derive(Debug)]
pub(crate) struct FakeTransport(pub(crate) Arc<FakeSandboxes>);

macro_rules! unimplemented_calls {
    ($( $name:ident($($kind:ty),*) -> $answer:ty; )*) => {
        #[async_trait]
        impl Transport for FakeTransport {
            async fn read_output(
                &self,
                _: &Caller,
                request: ReadOutput,
            ) -> Result<Items<OutputItem>> {
                Ok(self.0.output(&request))
            }
            async fn call(&self, caller: &Caller, operation: &str, request: Value) -> Result<Value> {
                if operation == "wait_operation" {
                    return Ok(self.0.wait(request.as_str().unwrap()));
                }
                if operation == "select_runtime" {
                    return Ok(json!({ "requestedRuntime": null, "runtime": request["runtime"] }));
                }
                let key = caller.idempotency_key.clone().unwrap_or_default();
                let asked = (operation.to_owned(), key, request.clone());
                self.0.requests.lock().unwrap().push(asked);
                match operation {
                    "execute_stream" => self.0.execute(request),
                    "collect_changes" => {
                        let bundle = (!self.0.is_pure).then(bundle);
                        Ok(json!({ "bundle": bundle, "notes": [] }))
                    }
                    "list" => Ok(serde_json::to_value(self.0.list(caller)).unwrap()),
                    _ => Ok(serde_json::to_value(sandbox(caller, &request["id"])).unwrap()),
                }
            }
            async fn write_file(
                &self,
                caller: &Caller,
                request: WriteFile,
                mut content: FileContent,
            ) -> Result<WriteResult> {
                let mut text = String::new();
                content.0.read_to_string(&mut text).await.unwrap();
                let key = caller.idempotency_key.clone().unwrap_or_default();
                let asked = ("write_file".to_owned(), key, serde_json::to_value(request).unwrap());
                self.0.requests.lock().unwrap().push(asked);
                let size_bytes = text.len() as u64;
                *self.0.file_text.lock().unwrap() = text;
                Ok(WriteResult { size_bytes })
            }
            $(async fn $name(&self, _: &Caller $(, _: $kind)*) -> $answer {
                unimplemented!()
            })*
        }
    };
}

unimplemented_calls! {
    open_session(OpenSession) -> Result<Session>;
    attach_command(AttachCommand) -> Result<Session>;
    read_events(ReadEvents) -> Result<Items<RecordedEvent>>;
    read_file(ReadFile) -> Result<FileContent>;
    send_files(SendFiles, FileContent) -> Result<SentFiles>;
    receive_files(ReceiveFiles) -> Result<FileContent>;
    connect(Connect) -> Result<Box<dyn Duplex>>;
    http_stream(HttpRequest) -> Result<HttpStream>;
    web_socket(WebSocket) -> Result<OpenWebSocket>;
    diff_bundle(DiffBundle) -> Result<Items<PathDiff>>;
}

pub(crate) async fn world(fake: &Arc<FakeSandboxes>) -> World {
    World::with_sandboxes(Some(Arc::new(Remote(FakeTransport(Arc::clone(fake)))))).await
}

/// A workflow file with one task that calls an agent.
fn flow(agent: &str, rest: &str) -> String {
    format!(
        "import {{ ClaudeCodeAgent, createSmithers }} from \"smithers-orchestrator\";\n\
         const schema = {{ type: \"object\", required: [\"said\"] }};\n\
         const {{ Workflow, Task, smithers, outputs }} = createSmithers({{ output: schema }});\n\
         export default smithers((ctx) => (<Workflow name=\"w\">\n\
         <Task id=\"t\" output={{outputs.output}} agent={{{agent}}} {rest}>Say {{ctx.input.word}}</Task>\n\
         </Workflow>));\n"
    )
}

/// The prompt of the task of `flow` for an input: the text of the task, then what its schema requires.
fn prompt(word: &str) -> String {
    format!(
        "Say {word}\n\nEnd the answer with JSON that is valid by this JSON Schema:\n\
         {{\"required\":[\"said\"],\"type\":\"object\"}}"
    )
}

fn answer(_: u32, read: &str) -> (i32, String) {
    (0, format!("Of course:\n```json\n{}\n```\n", json!({ "said": read })))
}

#[tokio::test]
async fn a_command_is_given_its_prompt_in_a_sandbox_of_its_own() {
    let fake = FakeSandboxes::new(answer);
    let world = world(&fake).await;
    let source =
        flow("{ command: [\"agent\", \"-x\"], env: { TOKEN: \"hush\" }, timeoutMs: 5000 }", "");
    let run = world.run(&source, json!({ "word": "hi" })).await;
    assert_eq!(run.output, Some(json!({ "said": prompt("hi") })), "{run:?}");
    let asked = fake.requests();
    let operations: Vec<_> = asked.iter().map(|(operation, _)| operation.as_str()).collect();
    // The sandbox is that of all agents of the run, and ends with the run.
    let expected = ["create", "write_file", "execute_stream", "collect_changes", "list", "kill"];
    assert_eq!(operations, expected);
    let (create, execute) = (&asked[0].1, &asked[2].1);
    assert_eq!(create["workspace"]["inside"], "/workspace");
    assert_eq!(create["workspace"]["host"], world.path().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(create["metadata"]["stockade.run"], run.id.as_str());
    // The stored request of a sandbox must not contain secrets.
    assert!(!create.to_string().contains("hush"));
    assert_eq!(execute["environment"]["TOKEN"], "hush");
    assert_eq!(execute["timeoutSeconds"], 5.0);
    assert_eq!(execute["sandboxId"], create["id"]);
    assert_eq!(asked[5].1["id"], create["id"]);
    assert_eq!(world.tasks(&run).await[0].bundle.as_deref(), Some("b1"));
}

#[tokio::test]
async fn a_try_that_goes_on_elsewhere_has_the_same_name_and_another_try_has_not() {
    // The input of the first command is lost, the second command fails, the third answers.
    let fake = FakeSandboxes::new(|number, read| match number {
        1 => (-1, String::new()),
        2 => (1, "hush is what I was told".to_owned()),
        _ => answer(number, read),
    });
    let world = world(&fake).await;
    let source = flow(
        "{ command: \"agent\", env: { TOKEN: \"hush\" } }",
        "retryPolicy={{ initialDelayMs: 1 }}",
    );
    let run = world.run(&source, json!({ "word": "hi" })).await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    let keys = fake.keys();
    let name = |at: usize| keys[at].split(':').next().unwrap().to_owned();
    assert_eq!(keys[1], format!("{}:input:1", name(1)));
    assert_eq!(keys[2], format!("{}:execute:1", name(1)));
    assert_eq!(keys[3], format!("{}:execute:2", name(1)));
    assert_eq!(keys[4], format!("{}:changes:1", name(1)));
    // The sandbox is that of the run, so another try has it too.
    assert_eq!(keys[5], keys[0]);
    assert_ne!(name(1), name(6));
    let follow =
        stockade_api::Follow { id: run.id.clone(), from: 0, wait_ms: 0, known_status: None };
    let events = stockade_api::Workflows::follow(&world.workflows, &world.caller, follow).await;
    let events = Value::Array(events.unwrap().events).to_string();
    assert!(
        events.contains("[redacted] is what I was told") && !events.contains("hush"),
        "{events}"
    );
}

#[tokio::test]
async fn what_is_no_answer_is_asked_for_again() {
    let fake = FakeSandboxes::new(|number, read| match number {
        1 => (0, "I would rather not.".to_owned()),
        2 => (0, "{\"other\": 1}".to_owned()),
        _ => answer(number, read),
    });
    let world = world(&fake).await;
    let source = flow("{ command: \"agent\" }", "retryPolicy={{ initialDelayMs: 1 }}");
    let run = world.run(&source, json!({ "word": "hi" })).await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    assert_eq!(world.tasks(&run).await[0].attempts, 3);
    // A missing program is not looked up again.
    let missing = FakeSandboxes::new(|_, _| (127, "agent: not found".to_owned()));
    let world = self::world(&missing).await;
    let run = world.run(&source, json!({})).await;
    let error = run.error.clone().unwrap();
    assert_eq!(error["code"], "AGENT_CONFIG_INVALID", "{error}");
    assert_eq!(world.tasks(&run).await[0].attempts, 1);
}

#[tokio::test]
async fn answers_of_commands_are_kept_by_what_they_are_asked() {
    let fake = FakeSandboxes::with_changes(answer, false);
    let world = world(&fake).await;
    let count =
        || fake.requests().iter().filter(|(operation, _)| operation == "execute_stream").count();
    let first = flow("{ command: \"agent\" }", "cache");
    let mut expected = 0;
    for (source, word, is_new) in [
        (first.clone(), "hi", true),
        (first.clone(), "hi", false),
        (first.clone() + "// more\n", "hi", false),
        (first, "ho", true),
        (flow("{ command: \"agent -v\" }", "cache"), "hi", true),
        (flow("{ command: \"agent\", image: \"/other\" }", "cache"), "hi", true),
        (flow("{ command: \"agent\", env: { A: \"1\" } }", "cache"), "hi", true),
        (flow("{ command: \"agent\", env: { A: \"2\" } }", "cache"), "hi", true),
        (flow("{ command: \"agent\", env: { A: \"1\" } }", "cache"), "hi", false),
    ] {
        // Files of the project are a part of the key, those in this directory are not.
        let file = world.write("project/.smithers/flow.tsx", &source);
        let run = world.up(&file, json!({ "word": word })).await.unwrap();
        let run = world.ended(&run.id).await;
        assert_eq!(run.status, RunStatus::Finished, "{run:?}");
        expected += usize::from(is_new);
        assert_eq!(count(), expected, "{source}");
    }
    // What a command sees of the project has changed.
    world.write("project/a.txt", "more");
    let file = world.path().join("project/.smithers/flow.tsx");
    let run = world.up(&file, json!({ "word": "hi" })).await.unwrap();
    world.ended(&run.id).await;
    assert_eq!(count(), expected + 1);
}

#[tokio::test]
async fn an_answer_with_changes_of_files_is_not_kept() {
    let fake = FakeSandboxes::new(answer);
    let world = world(&fake).await;
    let file = world.write("project/.smithers/flow.tsx", &flow("{ command: \"agent\" }", "cache"));
    for expected in [1, 2] {
        let run = world.up(&file, json!({ "word": "hi" })).await.unwrap();
        let run = world.ended(&run.id).await;
        assert_eq!(run.status, RunStatus::Finished, "{run:?}");
        let requests = fake.requests();
        let executed = requests.iter().filter(|(operation, _)| operation == "execute_stream");
        assert_eq!(executed.count(), expected);
    }
}

#[tokio::test]
async fn adapters_of_a_file_are_used_and_ours_need_a_network() {
    let fake = FakeSandboxes::new(|_, read| {
        (0, json!({ "text": json!({ "said": read }).to_string() }).to_string())
    });
    let world = world(&fake).await;
    world.write(
        "agents.json",
        "{\"mine\": {\"command\": [\"mine\", \"{model}\", \"--\"], \"model\": [\"-m\"], \"answer\": \"/text\"}}",
    );
    let source = flow("{ adapter: \"mine\", model: \"small\" }", "");
    let run = world.run(&source, json!({ "word": "hi" })).await;
    assert_eq!(run.output, Some(json!({ "said": prompt("hi") })), "{run:?}");
    let command: CommandLine =
        serde_json::from_value(fake.requests()[2].1["command"].clone()).unwrap();
    let CommandLine::Program(words) = command else { panic!("{command:?}") };
    assert_eq!(words[words.len() - 4..], ["mine", "-m", "small", "--"]);
    for agent in ["\"codex\"", "new ClaudeCodeAgent({ model: \"opus\" })"] {
        let file = world.write("flow.tsx", &flow(agent, ""));
        let refused = world.up(&file, json!({})).await.unwrap_err();
        assert_eq!(refused.code, Code::Unsupported, "{refused:?}");
        assert!(refused.message.contains("needs the network"), "{refused:?}");
        assert!(refused.message.contains("<Sandbox allowNetwork>"), "{refused:?}");
    }
    for (agent, told) in [
        ("\"clade\"", "did you mean \"claude\"?"),
        ("{ command: \"x\", timeout: 5 }", "`agent` has no `timeout` — did you mean `timeoutMs`?"),
        ("{ command: [], }", "`agent.command` must be a shell command line"),
        ("{ command: \"x\", adapter: \"mine\" }", "not both"),
        ("{ adapter: \"mine\", env: { A: 1 } }", "`agent.env` must be an object"),
    ] {
        let file = world.write("flow.tsx", &flow(agent, ""));
        let refused = world.up(&file, json!({})).await.unwrap_err();
        let text = format!("{} {}", refused.message, refused.cause.unwrap_or_default());
        assert!(text.contains(told), "{text}");
    }
}

#[tokio::test]
async fn commands_are_executed_nowhere_but_in_sandboxes() {
    let world = World::new().await;
    let file = world.write("flow.tsx", &flow("{ command: \"touch /tmp/stockade-never\" }", ""));
    let refused = world.up(&file, json!({})).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported, "{refused:?}");
    assert!(refused.message.contains("no sandbox can be created here"), "{refused:?}");
}

/// A world whose engine is configured to be inside a sandbox.
async fn inside() -> World {
    World::with_options(|options| options.outer_sandbox = Some(OuterSandbox::default())).await
}

#[tokio::test]
async fn inside_a_sandbox_commands_are_executed_in_the_same() {
    let world = inside().await;
    let agent = "{ command: \"read p; printf '{\\\"said\\\": \\\"%s %s\\\"}' \\\"$p\\\" \\\"$WORD\\\"\", \
                 env: { WORD: \"there\" } }";
    let run = world.run(&flow(agent, ""), json!({ "word": "hi" })).await;
    assert_eq!(run.output, Some(json!({ "said": "Say hi there" })), "{run:?}");
    let image = flow("{ command: \"agent\", image: \"/other\" }", "noRetry");
    let run = world.run(&image, json!({})).await;
    assert_eq!(run.error.unwrap()["code"], "UNSUPPORTED");
    let missing = flow("{ command: [\"/nowhere/agent\"] }", "");
    let run = world.run(&missing, json!({})).await;
    assert_eq!(run.error.unwrap()["code"], "AGENT_CONFIG_INVALID");
}

#[tokio::test]
async fn what_a_command_leaves_behind_inside_is_ended_with_it() {
    let world = inside().await;
    // A grandchild in a session of its own, which would keep running.
    let agent = "{ timeoutMs: 2000, command: \"cat > /dev/null; (setsid sh -c 'echo $$ > left; exec sleep 600' &); \
                 while [ ! -s left ]; do sleep 0.01; done; LATE\" }";
    for (late, code) in [("echo '{\\\"said\\\": 1}'", None), ("sleep 600", Some("TASK_TIMEOUT"))] {
        let run = world.run(&flow(&agent.replace("LATE", late), "noRetry"), json!({})).await;
        let error = run.error.as_ref().and_then(|error| error["code"].as_str());
        assert_eq!(error, code, "{run:?}");
        let path = world.path().join("left");
        let left = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let left = format!("/proc/{}/stat", left.trim());
        let state = std::fs::read_to_string(&left).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}

#[tokio::test]
async fn what_a_command_writes_inside_has_a_bound() {
    let world = inside().await;
    let run = world.run(&flow("{ command: \"yes\" }", "noRetry"), json!({})).await;
    let error = run.error.unwrap();
    assert!(error["message"].as_str().unwrap().contains("exceeded its output limit"), "{error}");
}
