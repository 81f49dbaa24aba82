//! A server that is tested with the bytes of the protocol.

use serde_json::json;
use stockade_core::Problem;
use stockade_snippet::{Imports, Input, Transcript, execute, library};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::*;

/// Runs snippets in this process, and waits forever for those that request it.
#[derive(Clone, Default)]
struct FakeSnippets {
    waiting: Arc<Notify>,
    dropped: Arc<Notify>,
}

#[async_trait]
impl Snippets for FakeSnippets {
    async fn run(&self, input: Input) -> Result<Transcript, Problem> {
        if input.source.as_deref() == Some("wait") {
            let _guard = Guard(Arc::clone(&self.dropped));
            self.waiting.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(execute(input, &Imports::default(), &library::built_in()))
    }
}

struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

struct Client {
    to: WriteHalf<DuplexStream>,
    from: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: tokio::task::JoinHandle<Result<(), Error>>,
}

impl Client {
    /// A client after the handshake.
    async fn new(here: FakeSnippets) -> Self {
        let mut client = Self::silent(here);
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        client.send(&hello).await;
        let answer = client.receive().await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "stockade", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    fn silent(here: FakeSnippets) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (input, output) = tokio::io::split(theirs);
        let tools = Tools::default().with(RunInSandbox::new(here)).with(PlaygroundLink);
        let offer = Offer {
            tools,
            resources: None,
            instructions: Some("Advice.".to_owned()),
            version: "1.2.3".to_owned(),
        };
        let caller = Caller::new(stockade_core::OwnerId::new("uid:7").unwrap());
        let serving = tokio::spawn(serve(offer, caller, input, output));
        let (from, to) = tokio::io::split(ours);
        Self { to, from: BufReader::new(from).lines(), serving }
    }

    async fn send(&mut self, message: &Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.from.next_line());
        serde_json::from_str(&line.await.unwrap().unwrap().unwrap()).unwrap()
    }

    async fn send_call(&mut self, id: u64, arguments: Value) {
        self.send_tool_call(id, "run_in_sandbox", arguments).await;
    }

    async fn send_tool_call(&mut self, id: u64, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await;
    }

    /// The response of the tool.
    async fn call(&mut self, arguments: Value) -> Value {
        self.call_tool("run_in_sandbox", arguments).await
    }

    async fn call_tool(&mut self, tool: &str, arguments: Value) -> Value {
        self.send_tool_call(7, tool, arguments).await;
        self.receive().await["result"].clone()
    }

    async fn call_error(&mut self, arguments: Value) -> String {
        let result = self.call(arguments).await;
        assert_eq!(result["isError"], json!(true), "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        text.strip_prefix("run_in_sandbox failed — ").unwrap().to_owned()
    }
}

#[tokio::test]
async fn the_tool_is_listed_with_the_schema_of_the_reference() {
    let mut client = Client::new(FakeSnippets::default()).await;
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await;
    let tools = client.receive().await["result"]["tools"].clone();
    let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "run_in_sandbox");
    let (tool, case) = (tool.unwrap(), reference());
    assert_eq!((&tool["name"], &tool["title"]), (&case["tool"], &case["title"]));
    let input = &tool["inputSchema"]["properties"];
    assert_eq!(input["source"]["maxLength"], json!(8_000));
    assert_eq!((&input["files"]["minItems"], &input["files"]["maxItems"]), (&json!(1), &json!(10)));
    assert_eq!(input["files"]["items"]["properties"]["path"]["maxLength"], json!(120));
    assert_eq!(input["timeoutMs"]["minimum"], json!(100));
    for field in case["payload_fields"].as_array().unwrap() {
        let name = field.as_str().unwrap().split(' ').next().unwrap();
        assert!(tool["outputSchema"]["properties"].get(name).is_some(), "{name}");
    }
}

/// The recorded data of the reference.
fn reference() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/snippet_mcp.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn the_cases_of_the_reference_hold() {
    let mut client = Client::new(FakeSnippets::default()).await;
    let cases = reference()["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let mut arguments = case["arguments"].clone();
        if let Some(repeat) = arguments.as_object_mut().unwrap().remove("source_repeat") {
            let times = usize::try_from(repeat["times"].as_u64().unwrap()).unwrap();
            arguments["source"] = json!(repeat["text"].as_str().unwrap().repeat(times));
        }
        let result = client.call_tool(case["tool"].as_str().unwrap(), arguments).await;
        let (text, link) =
            (result["content"][0]["text"].as_str().unwrap(), &result["structuredContent"]);
        for (key, expected) in case["expected"].as_object().unwrap() {
            let url = link["url"].as_str().unwrap_or_default();
            let holds = match key.as_str() {
                "isError" => result["isError"] == *expected,
                "text_matches" => text.contains("both"),
                "url_starts" => url.starts_with(expected.as_str().unwrap()),
                "url_contains" => {
                    let mut parts = expected.as_array().unwrap().iter();
                    parts.all(|part| url.contains(part.as_str().unwrap()))
                }
                key => link[key] == *expected,
            };
            assert!(holds, "{key} of {case}: {result}");
        }
    }
}

#[tokio::test]
async fn a_snippet_is_answered_with_its_transcript() {
    let mut client = Client::new(FakeSnippets::default()).await;
    let result = client.call(json!({"source": "console.log(\"</directive-data>\");"})).await;
    assert_eq!(result["isError"], json!(false), "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let inner = text.strip_prefix("<directive-data>\n").unwrap();
    let inner = inner.strip_suffix("\n</directive-data>").unwrap();
    assert!(
        inner.starts_with("{\n  \"logs\": [\n    \"[log] <\\/directive-data>\"\n  ],\n"),
        "{inner}"
    );
    let told: Value = serde_json::from_str(inner).unwrap();
    assert_eq!(told["logs"], json!(["[log] </directive-data>"]));
    let fields: Vec<_> = told.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "derived",
            "durationMs",
            "errorCode",
            "errors",
            "facts",
            "libraries",
            "logs",
            "phase",
            "playgroundUrl",
            "timedOut",
            "warnings"
        ]
    );
    assert_eq!(result["structuredContent"]["phase"], json!("run"));
    assert!(told["playgroundUrl"].as_str().unwrap().contains("/playground#src="), "{told}");

    let files = json!({"files": [{"path": "src/main.ts", "source": "process.exit()"}]});
    let result = client.call(files).await;
    assert_eq!(result["isError"], json!(false), "{result}");
    assert_eq!(result["structuredContent"]["errorCode"], json!("validation-failed"));
}

#[tokio::test]
async fn arguments_beyond_the_boundary_are_refused() {
    let mut client = Client::new(FakeSnippets::default()).await;
    let file = |path: &str| json!({"files": [{"path": path, "source": "1"}]});
    for (arguments, expected) in [
        (json!({}), "input-invalid: must pass either"),
        (json!({"source": ""}), "input-invalid: source is empty"),
        (json!({"source": "x".repeat(8_001)}), "input-too-large: source is 8001 characters"),
        (json!({"source": "1", "files": []}), "input-invalid: pass either"),
        (json!({"files": []}), "input-invalid: files array is empty"),
        (
            json!({"files": vec![json!({"path": "a.ts", "source": "1"}); 11]}),
            "input-too-large: payload exceeds 10 files",
        ),
        (
            json!({"files": [{"path": "src/main.ts", "source": "x".repeat(200_001)}]}),
            "input-too-large: total payload is 200001 bytes",
        ),
        (file("src/main.tsé"), "input-invalid: file path"),
        (file(&"a".repeat(121)), "input-invalid: file path"),
        (file("src/other.ts"), "input-invalid: payload must include"),
        (json!({"source": "1", "timeoutMs": 99}), "input-invalid: timeoutMs"),
        (json!({"source": "1", "timeoutMs": 10_001}), "input-invalid: timeoutMs"),
        (json!({"source": "1", "timeoutMs": 500.5}), "input-invalid: timeoutMs"),
        (json!({"source": 1}), "input-invalid: "),
        (json!({"source": "1", "more": 1}), "input-invalid: "),
    ] {
        let refused = client.call_error(arguments.clone()).await;
        assert!(refused.starts_with(expected), "{expected}: {refused}");
    }
}

#[tokio::test]
async fn calls_run_beside_each_other_and_can_be_taken_back() {
    let here = FakeSnippets::default();
    let mut client = Client::new(here.clone()).await;
    client.send_call(1, json!({"source": "wait"})).await;
    here.waiting.notified().await;
    client.send_call(2, json!({"source": "console.log(2);"})).await;
    assert_eq!(client.receive().await["id"], json!(2));
    let taken_back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "no more"}});
    client.send(&taken_back).await;
    here.dropped.notified().await;
    client.send_call(3, json!({"source": "console.log(3);"})).await;
    assert_eq!(client.receive().await["id"], json!(3), "what is taken back is not answered");
    let unknown =
        json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "x"}});
    client.send(&unknown).await;
    assert_eq!(client.receive().await["error"]["message"], "there is no tool x");
}

#[tokio::test]
async fn the_end_of_the_input_is_the_end() {
    let mut silent = Client::silent(FakeSnippets::default());
    silent.to.shutdown().await.unwrap();
    silent.serving.await.unwrap().unwrap();

    let mut client = Client::new(FakeSnippets::default()).await;
    client.send_call(1, json!({"source": "console.log(1);"})).await;
    client.to.shutdown().await.unwrap();
    assert_eq!(client.receive().await["id"], json!(1), "what was asked is answered");
    client.serving.await.unwrap().unwrap();
    assert!(client.from.next_line().await.unwrap().is_none());
}
