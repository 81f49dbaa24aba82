//! The tools of every service. Each consists of one or two operations, and does nothing on the
//! host.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{
    CommandLine, Ending, Execute, ExecuteResult, FileContent, FileKind, ListDirectory, ReadFile,
    Result, WriteFile,
};
use stockade_core::{Code, Problem};
use tokio::io::AsyncReadExt as _;

use super::{Handler, ToolCall};

/// The largest file that a tool reads.
pub(super) const FILE_BYTES: u64 = 10 << 20;

/// Each with its name and its description.
pub(super) fn all() -> Vec<(&'static str, &'static str, Arc<dyn Handler>)> {
    vec![
        ("echo", "Returns its arguments", Arc::new(Echo)),
        ("shell", "Runs `command` in a shell", Arc::new(Shell)),
        ("code", "Runs `code` in `language`: python, javascript or bash", Arc::new(CodeTool)),
        ("file_read", "Reads the file `path`", Arc::new(Read)),
        ("file_write", "Writes `content` to the file `path`", Arc::new(Write)),
        ("file_list", "Lists the directory `path`", Arc::new(List)),
    ]
}

#[derive(Debug)]
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn call(&self, call: ToolCall) -> Result<Value> {
        Ok(Value::Object(call.arguments))
    }
}

#[derive(Debug)]
struct Shell;

#[async_trait]
impl Handler for Shell {
    async fn call(&self, call: ToolCall) -> Result<Value> {
        let line = CommandLine::Shell(call.text("command")?.to_owned());
        run(&call, line).await
    }
}

/// Runs a program text in the sandbox (Orbiter's `CodeTool`).
#[derive(Debug)]
pub struct CodeTool;

#[async_trait]
impl Handler for CodeTool {
    async fn call(&self, call: ToolCall) -> Result<Value> {
        let code = call.text("code")?.to_owned();
        let language = call.arguments.get("language").and_then(Value::as_str).unwrap_or("python");
        let (program, flag) = match language {
            "python" => ("python3", "-c"),
            "javascript" => ("node", "-e"),
            "bash" => ("bash", "-c"),
            other => {
                let message = format!("the language {other:?} is not supported");
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by("use python, javascript or bash"));
            }
        };
        run(&call, CommandLine::Program(vec![program.into(), flag.into(), code])).await
    }
}

/// Runs a command within the time of the call.
pub(super) async fn run(call: &ToolCall, line: CommandLine) -> Result<Value> {
    run_with(call, line, BTreeMap::new()).await
}

/// The same, with additional environment variables.
pub(super) async fn run_with(
    call: &ToolCall,
    line: CommandLine,
    environment: BTreeMap<String, String>,
) -> Result<Value> {
    let mut execute = Execute::new(call.sandbox_id.clone(), line);
    execute.environment = stockade_core::bytes::values(environment);
    execute.timeout_seconds = Some(call.timeout.as_secs_f64());
    let ExecuteResult { end, stdout, stderr, stdout_truncated, stderr_truncated, .. } =
        call.service.execute(&call.caller, execute).await?;
    if end.ending == Ending::TimedOut {
        return Err(Problem::new(Code::TimedOut, "the command timed out"));
    }
    Ok(json!({
        "exitCode": end.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "truncated": stdout_truncated || stderr_truncated,
    }))
}

#[derive(Debug)]
struct Read;

#[async_trait]
impl Handler for Read {
    fn is_recorded(&self) -> bool {
        false
    }

    async fn call(&self, call: ToolCall) -> Result<Value> {
        let path = call.text("path")?.into();
        let sandbox_id = call.sandbox_id.clone();
        let request = ReadFile { sandbox_id, path, offset: 0, length: Some(FILE_BYTES) };
        let FileContent(mut content) = call.service.read_file(&call.caller, request).await?;
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).await.map_err(|error| {
            Problem::new(Code::Io, "the file cannot be read").because(error.to_string())
        })?;
        Ok(json!({ "content": stockade_api::Bytes(bytes) }))
    }
}

#[derive(Debug)]
struct Write;

#[async_trait]
impl Handler for Write {
    fn is_recorded(&self) -> bool {
        false
    }

    async fn call(&self, call: ToolCall) -> Result<Value> {
        let path = call.text("path")?.into();
        let content = call.text("content")?.as_bytes().to_vec();
        let sandbox_id = call.sandbox_id.clone();
        let request = WriteFile { sandbox_id, path, mode: None, uid: None, gid: None };
        let content = FileContent(Box::pin(std::io::Cursor::new(content)));
        let written = call.service.write_file(&call.caller, request, content).await?;
        Ok(json!({ "sizeBytes": written.size_bytes }))
    }
}

#[derive(Debug)]
struct List;

#[async_trait]
impl Handler for List {
    fn is_recorded(&self) -> bool {
        false
    }

    async fn call(&self, call: ToolCall) -> Result<Value> {
        let path = call.text("path")?.into();
        let request = ListDirectory { sandbox_id: call.sandbox_id.clone(), path, depth: None };
        let listing = call.service.list_directory(&call.caller, request).await?;
        let entries = listing.entries.iter().map(|entry| {
            let name = entry.path.lossy();
            let name = name.rsplit('/').next().unwrap_or_default().to_owned();
            let kind = if entry.kind == FileKind::Directory { "dir" } else { "file" };
            json!({ "name": name, "type": kind, "sizeBytes": entry.size_bytes })
        });
        Ok(json!({ "entries": entries.collect::<Vec<_>>() }))
    }
}
