//! A session with a server of the Model Context Protocol on standard streams, as a host program has one.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::call::{Call, Outcome, Running};
use crate::harness::World;

/// How long a message may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host program.
pub(super) struct Session {
    pub(super) running: Running,
    next_id: u64,
    /// How many messages were read.
    seen: usize,
    /// The answer to questions for the user; without one the program cannot ask.
    answer: Option<Value>,
    /// The questions that were asked.
    pub(super) questions: Vec<String>,
    /// What the server said about itself.
    pub(super) server: Value,
}

impl Session {
    /// Starts a server and greets it.
    pub(super) fn start(world: &World, words: &[&str]) -> Self {
        Self::answering(world, words, None)
    }

    /// The same, for a program that can ask its user, who gives this answer.
    pub(super) fn answering(world: &World, words: &[&str], answer: Option<Value>) -> Self {
        let capabilities = match &answer {
            Some(_) => json!({"elicitation": {}}),
            None => json!({}),
        };
        Self::capable(world, words, answer, &capabilities)
    }

    /// The same, for a program with these capabilities.
    pub(super) fn capable(
        world: &World,
        words: &[&str],
        answer: Option<Value>,
        capabilities: &Value,
    ) -> Self {
        Self::with(world.stockade(words), answer, capabilities)
    }

    /// The same for a command that is ready to start, for a program that cannot ask.
    pub(super) fn of(call: Call) -> Self {
        Self::with(call, None, &json!({}))
    }

    fn with(call: Call, answer: Option<Value>, capabilities: &Value) -> Self {
        let running = call.deadline(300).start();
        let mut session = Self {
            running,
            next_id: 1,
            seen: 0,
            answer,
            questions: Vec::new(),
            server: Value::Null,
        };
        session.server = session.request(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "clientInfo": {"name": "test", "version": "1"}}),
        );
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.running.send(format!("{message}\n").as_bytes());
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Value {
        let since = Instant::now();
        loop {
            let text = self.running.stdout();
            let lines: Vec<_> =
                text.split_inclusive('\n').filter(|it| it.ends_with('\n')).collect();
            if let Some(line) = lines.get(self.seen) {
                self.seen += 1;
                return serde_json::from_str(line).unwrap();
            }
            assert!(since.elapsed() < PATIENCE, "no message: {}", self.running.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request, and answers questions until its response arrives.
    pub(super) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.start_request(method, params);
        self.response(id)
    }

    /// Sends a request.
    pub(super) fn start_request(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The result or error of a request.
    pub(super) fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["method"] == "elicitation/create" {
                self.questions.push(message["params"]["message"].as_str().unwrap().to_owned());
                let answer = self.answer.clone().unwrap();
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": answer}));
                continue;
            }
            if message["id"] == id && message.get("method").is_none() {
                let result = message.get("result").unwrap_or(&message);
                return result.clone();
            }
        }
    }

    /// The result of a tool.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The structured result of a tool that succeeds.
    #[track_caller]
    pub(super) fn value(&mut self, tool: &str, arguments: &Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The text of a tool that fails.
    #[track_caller]
    pub(super) fn failure(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], json!(true), "{tool}: {result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The names of the tools.
    pub(super) fn tools(&mut self) -> Vec<String> {
        let tools = self.request("tools/list", &json!({}))["tools"].clone();
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.as_array().unwrap().iter().map(name).collect()
    }

    /// Ends the session.
    pub(super) fn end(self) -> Outcome {
        let outcome = self.running.finish();
        outcome.succeeds();
        for line in outcome.stdout.lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["jsonrpc"], "2.0", "only the protocol is printed: {outcome}");
        }
        outcome
    }
}
