//! Agents that are models over HTTP, with a double of their servers on the loopback: a request is sent only to the
//! host that the user has bound the secret to, and the secret is in no file and in no message.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::harness::World;
use crate::sandbox::inspect;

const KEY: &str = "9f1c7e0ab4d2835f6617c0e9d8a4b3525e0f71c8";

/// A server that gives these answers, one after the other, and keeps the requests.
struct Double {
    port: u16,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Double {
    fn start(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for (status, body) in answers {
                let Ok((stream, _)) = listener.accept() else { return };
                let request = read(&stream);
                kept.lock().unwrap().push(request);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nlocation: http://127.0.0.1:1/\r\n\r\n"
                );
                // The client may have gone.
                let _ = { &stream }.write_all(format!("{head}{body}").as_bytes());
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// The head of a request, in lower case, and its body.
fn read(stream: &TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap() > 2 {}
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

/// A run of a workflow whose only task asks an agent; the key is bound to a port of this host.
fn ask(
    world: &World,
    run: &str,
    agent: &str,
    bound: Option<(&str, u16)>,
    more: &[&str],
) -> Outcome {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ AnthropicAgent, OpenAIAgent, bash, createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         const agent = new {agent};\n\
         export default smithers((ctx) => (<Workflow name=\"w\">\
           <Task id=\"t\" output={{outputs.output}} retries={{0}} agent={{agent}}>How much is it?</Task>\
         </Workflow>));\n"
    );
    let file = world.write(&format!("{run}.tsx"), source);
    let secret = bound.map(|(name, port)| format!("{name}@host.stockade.internal:{port}"));
    let mut words = vec!["up", file.to_str().unwrap(), "--run-id", run];
    words.extend(secret.iter().flat_map(|secret| ["--secret", secret]));
    words.extend(more);
    let call = world.stockade(&words).env("OPENAI_API_KEY", KEY).env("OTHER_KEY", KEY);
    let outcome = call.finish();
    assert!(
        !format!("{outcome}").replace(&format!("_KEY=\"{KEY}\""), "").contains(KEY),
        "{outcome}"
    );
    outcome
}

fn a_model_is_asked_with_its_tools_and_its_key_is_nowhere(world: &World) {
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1,\"b\":2}" } });
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 4 });
    let answer =
        |message: Value| json!({ "choices": [{ "message": message }], "usage": usage }).to_string();
    let double = Double::start(vec![
        (200, answer(json!({ "role": "assistant", "content": null, "tool_calls": [call] }))),
        (200, answer(json!({ "role": "assistant", "content": "It is {\"n\": 3}." }))),
    ]);
    let agent = format!(
        "OpenAIAgent({{ model: \"m\", api: \"chat\", baseURL: \"http://127.0.0.1:{}/v1\", instructions: \"Be short.\", \
           tools: {{ add: {{ description: \"adds\", inputSchema: {{ type: \"object\" }}, execute: ({{ a, b }}) => a + b }} }} }})",
        double.port
    );
    ask(world, "tools", &agent, Some(("OPENAI_API_KEY", double.port)), &[]).succeeds();
    assert_eq!(inspect(world, "tools")["run"]["output"], json!({ "n": 3 }));
    let requests = double.requests();
    let (head, first) = &requests[0];
    assert!(
        head.starts_with("post /v1/chat/completions ")
            && head.contains(&format!("authorization: bearer {KEY}")),
        "{head}"
    );
    assert_eq!(first["messages"][0], json!({ "role": "system", "content": "Be short." }));
    assert!(
        first["messages"][1]["content"].as_str().unwrap().starts_with("How much is it?"),
        "{first}"
    );
    assert_eq!(first["tools"][0]["function"]["name"], "add");
    assert_eq!(
        requests[1].1["messages"][3],
        json!({ "role": "tool", "tool_call_id": "c1", "content": "3" })
    );
    let events = world.stockade(&["events", "tools", "--json"]).finish();
    assert!(
        events.stdout.contains("TokenUsageReported") && events.stdout.contains("20"),
        "{events}"
    );
    assert!(world.files_with(&world.data(), KEY).is_empty());
    assert!(world.files_with(&world.project, KEY).is_empty());

    let call =
        json!({ "type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}" });
    let text = json!({ "type": "output_text", "text": "{\"n\": 5}" });
    let message = json!({ "type": "message", "role": "assistant", "content": [text] });
    let answers = [json!({ "output": [call] }), json!({ "output": [message] })];
    let double = Double::start(answers.iter().map(|answer| (200, answer.to_string())).collect());
    let agent = format!(
        "OpenAIAgent({{ model: \"m\", baseURL: \"http://localhost:{}/v1/\", system: \"Be short.\", \
           tools: {{ now: {{ description: \"\", execute: () => {{ throw new Error(\"no clock\"); }} }} }} }})",
        double.port
    );
    ask(world, "responses", &agent, Some(("OPENAI_API_KEY", double.port)), &[]).succeeds();
    assert_eq!(inspect(world, "responses")["run"]["output"], json!({ "n": 5 }));
    let requests = double.requests();
    assert!(requests[0].0.starts_with("post /v1/responses "), "{}", requests[0].0);
    assert_eq!(requests[0].1["instructions"], "Be short.");
    let told =
        json!({ "type": "function_call_output", "call_id": "c1", "output": "error: no clock" });
    assert_eq!(requests[1].1["input"][2], told);

    let content = json!([{ "type": "text", "text": "{\"n\": 4}" }]);
    let double = Double::start(vec![(200, json!({ "content": content }).to_string())]);
    let base = format!("ANTHROPIC_BASE_URL=http://127.0.0.1:{}", double.port);
    let bound = Some(("OTHER_KEY", double.port));
    ask(world, "messages", "AnthropicAgent({ model: \"m\" })", bound, &["--env", &base]).succeeds();
    assert_eq!(inspect(world, "messages")["run"]["output"], json!({ "n": 4 }));
    let (head, body) = &double.requests()[0];
    assert!(
        head.starts_with("post /messages ") && head.contains(&format!("x-api-key: {KEY}")),
        "{head}"
    );
    assert_eq!(body["max_tokens"], 4096);
}

/// A file cannot send a key anywhere that the user has not named, also not by a redirect.
fn a_key_is_sent_only_where_the_user_says(world: &World) {
    let double = Double::start(vec![
        (307, String::new()),
        (401, json!({ "error": { "message": format!("bad key {KEY}") } }).to_string()),
    ]);
    let other = Double::start(vec![(200, String::new())]);
    let agent = |port: u16| {
        format!("OpenAIAgent({{ model: \"m\", baseURL: \"http://127.0.0.1:{port}/v1\" }})")
    };
    let bound = Some(("OPENAI_API_KEY", double.port));
    for (name, bound) in [("none", None), ("elsewhere", bound)] {
        let refused = ask(world, name, &agent(other.port), bound, &[]);
        refused.ends_with(1);
        let remedy = format!("up --secret OPENAI_API_KEY@host.stockade.internal:{}", other.port);
        assert!(refused.stderr.contains(&remedy), "{refused}");
    }
    assert!(other.requests().is_empty());
    let redirected = ask(world, "redirect", &agent(double.port), bound, &[]);
    redirected.ends_with(1);
    assert!(redirected.stderr.contains("got the answer 307"), "{redirected}");
    let echoed = ask(world, "echo", &agent(double.port), bound, &[]);
    assert!(echoed.stderr.contains("bad key [redacted]"), "{echoed}");
    assert_eq!(double.requests().len(), 2);
    assert!(world.files_with(&world.data(), KEY).is_empty());
    let tools = ask(world, "bash", "OpenAIAgent({ model: \"m\", tools: { bash } })", bound, &[]);
    assert!(
        tools.stderr.contains("tool `bash` works on files") && tools.stderr.contains("bash.tsx:5"),
        "{tools}"
    );
}

as_root_and_as_user![
    a_model_is_asked_with_its_tools_and_its_key_is_nowhere,
    a_key_is_sent_only_where_the_user_says,
];
