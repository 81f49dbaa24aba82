//! Orbiter's tools, each in a sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stockade_api::{CreateSandbox, Result as Answer, RunTool, Sandboxes as _};
use stockade_core::{Code, SandboxId};
use stockade_runtime::{Ending, Error, Stream};
use stockade_service::orbiter::{ScopedSandbox, Settings};
use stockade_service::{AllowlistTool, CodeTool, FilesystemTool, Handler, TerminalTool, ToolCall};

use crate::harness::{Harness, caller};
use crate::support::{Case, no_driver, same};

pub(crate) async fn case(case: Case) -> Result<(), String> {
    match case.name.as_str() {
        "fs: no restriction list" => {
            let refused = FilesystemTool::new(&[]).unwrap_err();
            same("a file tool needs at least one root", refused.message.as_str())
        }
        name if name.starts_with("fs: ") => files(name).await,
        name if name.starts_with("term: ") => terminal(name).await,
        "shell: allowlist default" => {
            let tool = Tool::new(Arc::new(AllowlistTool::default())).await;
            let listed: Vec<_> = case.when.as_array().unwrap().iter().collect();
            for name in listed {
                let name = name.as_str().unwrap();
                tool.harness.fake.program(name, |_| async { Ending::Exited(0) });
                let line = format!("{name} x");
                same("ok".to_owned(), tool.call(json!({"command": line})).await.0)?;
            }
            let calls = tool.harness.fake.calls("execute");
            for line in ["rm x", "sh -c ls", "python3 x", "ls; rm x", "find . -exec rm"] {
                same("error".to_owned(), tool.call(json!({"command": line})).await.0)?;
            }
            same(calls, tool.harness.fake.calls("execute"))
        }
        "shell: basename spoof" => {
            let tool = Tool::new(Arc::new(AllowlistTool::default())).await;
            let (status, result) = tool.call(json!({"command": "/tmp/x/ls"})).await;
            same(("error", true), (&*status, result_text(&result).contains("is not allowed")))
        }
        "code: local escape" => {
            let tool = Tool::new(Arc::new(CodeTool)).await;
            let runs = |process: stockade_runtime::fake::Process| async move {
                // What the program sees is the sandbox's interpreter and its text.
                let words: Vec<_> =
                    process.arguments.iter().map(|word| word.to_string_lossy()).collect();
                process.write(Stream::Output, words[..2].join(" ").as_bytes());
                Ending::Exited(0)
            };
            tool.harness.fake.program("python3", runs);
            let code = "().__class__.__base__.__subclasses__()[0]; import os; os.system('id')";
            let (status, result) = tool.call(json!({"code": code})).await;
            same(("ok", Some("python3 -c")), (&*status, result["stdout"].as_str()))?;
            same(1, tool.harness.fake.calls("execute"))
        }
        "remote backend: start error" => {
            let harness = Harness::new().await;
            harness.fake.fail_next("create", Error::Exhausted("no room".to_owned()));
            let scoped = scoped(&harness);
            let started = scoped.clone();
            harness.run(|_| async move { started.start().await }).await.unwrap_err();
            same("error", scoped.status().as_str())
        }
        "remote backend: unregister missing" => {
            let harness = Harness::new().await;
            let refused = harness.service.unregister_tool("no_such").unwrap_err();
            same(
                (Code::ToolUnknown, true),
                (refused.code, refused.message.contains("not registered")),
            )
        }
        "remote backend: registered beats built-in" => {
            let tool = Tool::named("shell", Arc::new(Own)).await;
            same(("ok".to_owned(), json!("own")), tool.call(json!({"command": "true"})).await)?;
            same(0, tool.harness.fake.calls("execute"))?;
            tool.harness.service.unregister_tool("shell").unwrap();
            tool.call(json!({"command": "true"})).await;
            same(1, tool.harness.fake.calls("execute"))
        }
        _ => no_driver(),
    }
}

fn scoped(harness: &Harness) -> Arc<ScopedSandbox> {
    let service = Arc::new(harness.service.clone());
    Arc::new(ScopedSandbox::new(service, caller("u1"), Settings::default()).unwrap())
}

#[derive(Debug)]
struct Own;

#[async_trait]
impl Handler for Own {
    async fn call(&self, _: ToolCall) -> Answer<Value> {
        Ok(json!("own"))
    }
}

/// A tool that is registered, and a sandbox to call it in.
struct Tool {
    harness: Harness,
    id: SandboxId,
    name: &'static str,
}

impl Tool {
    async fn new(handler: Arc<dyn Handler>) -> Self {
        Self::named("tool", handler).await
    }

    async fn named(name: &'static str, handler: Arc<dyn Handler>) -> Self {
        let harness = Harness::new().await;
        // A tree with a link out of the directory that a file tool may use.
        let root = tempfile::tempdir().unwrap();
        for path in ["allowed/b.txt", "secret.txt", "etc/hostname", "allowed/a/c.txt"] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "text").unwrap();
        }
        std::os::unix::fs::symlink("/etc", root.path().join("allowed/lnk")).unwrap();
        let image = Some(root.path().to_str().unwrap().to_owned());
        let request = CreateSandbox { image, ..CreateSandbox::default() };
        let id = harness.create(request).await.unwrap().id;
        harness.service.register_tool(name, "of the test", handler);
        Self { harness, id, name }
    }

    /// The status and the result of a call.
    async fn call(&self, arguments: Value) -> (String, Value) {
        let answer = self.ask(arguments, None).await.unwrap();
        (answer.status, answer.result)
    }

    async fn ask(
        &self,
        arguments: Value,
        timeout_seconds: Option<f64>,
    ) -> Answer<stockade_api::ToolResult> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let sandbox_id = self.id.clone();
        let request =
            RunTool { sandbox_id, tool: self.name.to_owned(), arguments, timeout_seconds };
        self.harness.run(|s| async move { s.run_tool(&caller("u1"), request).await }).await
    }
}

/// What a tool says that failed.
fn result_text(result: &Value) -> &str {
    result["error"]["message"].as_str().unwrap_or_default()
}

async fn files(name: &str) -> Result<(), String> {
    let tool = Tool::new(Arc::new(FilesystemTool::new(&["/allowed"]).unwrap())).await;
    let call = async |action: &str, path: &str| {
        let mut arguments = Map::new();
        arguments.insert("action".to_owned(), json!(action));
        arguments.insert("path".to_owned(), json!(path));
        arguments.insert("content".to_owned(), json!("new"));
        tool.call(Value::Object(arguments)).await
    };
    let fails = async |action: &str, path: &str, words: &str| {
        let (status, result) = call(action, path).await;
        same("error", &*status)?;
        same((words, true), (words, result_text(&result).contains(words)))
    };
    match name {
        "fs: inside allowed" => {
            same(json!("text"), call("read", "/allowed/b.txt").await.1["content"].clone())?;
            same("ok".to_owned(), call("write", "b.txt").await.0)?;
            same(json!("new"), call("read", "b.txt").await.1["content"].clone())
        }
        "fs: traversal" => {
            fails("read", "/allowed/../secret.txt", "outside allowed directories").await?;
            fails("read", "../secret.txt", "outside allowed directories").await?;
            fails("write", "/allowedx", "outside allowed directories").await
        }
        "fs: symlink out" => {
            fails("read", "/allowed/lnk/hostname", "outside allowed directories").await?;
            fails("write", "lnk/new", "outside allowed directories").await
        }
        "fs: read missing" => fails("read", "nope.txt", "File not found").await,
        "fs: write makes parents" => {
            same("ok".to_owned(), call("write", "x/y/c.txt").await.0)?;
            same(json!("new"), call("read", "x/y/c.txt").await.1["content"].clone())
        }
        "fs: list" => {
            let entries = call("list", ".").await.1["entries"].clone();
            let expected = json!([
                {"name": "a", "type": "dir"},
                {"name": "b.txt", "type": "file"},
                {"name": "lnk", "type": "file"},
            ]);
            same(expected, entries)
        }
        "fs: list missing" => fails("list", "nope", "Directory not found").await,
        "fs: unknown action" => fails("delete", "b.txt", "Unknown filesystem action").await,
        _ => no_driver(),
    }
}

async fn terminal(name: &str) -> Result<(), String> {
    let tool = match name {
        "term: custom list replaces default" => TerminalTool::new(vec!["curl".to_owned()]),
        _ => TerminalTool::default(),
    };
    let tool = Tool::new(Arc::new(tool)).await;
    tool.harness.fake.program("rm", |_| async { Ending::Exited(0) });
    tool.harness.fake.program("complain", |process| async move {
        process.write(Stream::Error, b"e\n");
        Ending::Exited(0)
    });
    let blocked = async |line: &str| {
        let (status, result) = tool.call(json!({"command": line})).await;
        status == "error" && result_text(&result).contains("blocked by sandbox policy")
    };
    match name {
        "term: dangerous first word" => same(true, blocked("rm -rf /").await),
        "term: path stripped" => same(true, blocked("/usr/bin/rm x").await),
        "term: custom list replaces default" => {
            same((true, false), (blocked("curl x").await, blocked("rm x").await))
        }
        "term: echo" => {
            let (status, result) = tool.call(json!({"command": "echo hello"})).await;
            let expected = json!({"exitCode": 0, "stdout": "hello\n", "platform": "linux"});
            let got = json!({"exitCode": result["exitCode"], "stdout": result["stdout"], "platform": result["platform"]});
            same(("ok".to_owned(), expected), (status, got))
        }
        // There is no shell in a runtime in memory: a program of the test writes there.
        "term: stderr" => {
            same(json!("e\n"), tool.call(json!({"command": "complain"})).await.1["stderr"].clone())
        }
        "term: timeout" => {
            let late = tool.ask(json!({"command": "sleep 10"}), Some(0.1)).await.unwrap_err();
            same((Code::TimedOut, true), (late.code, late.message.contains("timed out")))
        }
        _ => no_driver(),
    }
}
