//! The process of a provider that is a module, and the messages to and from it: one JSON object per
//! line (`bridge.mjs` is the other side).

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::authoring::ChildRequest;
use crate::engine::commands::HelperGuard;
use crate::engine::task_error::TaskError;
use crate::engine::user_code::ProviderHost;
use crate::journal::WorkflowRef;

/// The program that runs the module.
pub(super) const BRIDGE: &str = include_str!("bridge.mjs");
/// The longest line that is read.
pub(super) const MAX_LINE_BYTES: u64 = 64 << 20;
/// How much of the standard error is retained for messages.
pub(super) const MAX_ERROR_BYTES: u64 = 16 << 10;
/// The longest data of a heartbeat that the library accepts.
const MAX_HEARTBEAT_BYTES: usize = 1_000_000;
/// How many child runs one call may request.
const MAX_CHILDREN: usize = 16;
/// The time limit for the process to end, or to acknowledge that its work is aborted.
pub(super) const RESPONSE_LIMIT: Duration = Duration::from_secs(5);
/// The error code for a process that has ended.
pub(super) const ENDED: &str = "PROVIDER_ENDED";

/// A module in its process.
pub(super) struct ModuleProcess {
    child: Child,
    guard: HelperGuard,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The start of a line whose end was not read yet.
    line: Vec<u8>,
    /// Collects the start of its standard error.
    errors: Option<JoinHandle<Vec<u8>>>,
}

/// A message from a module.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Message {
    Heartbeat(Value),
    Child { ask: usize, request: ChildRequest },
    Done(Value),
    Failed(ModuleError),
    Aborted(()),
    Cleaned(()),
    Uncleaned(ModuleError),
}

/// The error that a module threw.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleError {
    message: String,
    code: Option<String>,
}

impl From<ModuleError> for TaskError {
    fn from(ModuleError { message, code }: ModuleError) -> Self {
        let code = code.unwrap_or_else(|| "SANDBOX_EXECUTION_FAILED".to_owned());
        let is_final = code == "INVALID_INPUT";
        let error = Self::new(&code, message);
        if is_final { error } else { error.retryable() }
    }
}

/// A request to a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Work,
    Abort,
    Cleanup,
}

impl ModuleProcess {
    /// Starts the process. The command has pipes for all three streams.
    pub(super) fn start(mut command: Command) -> std::io::Result<Self> {
        let mut child = command.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| std::io::Error::other("it has no output"))?;
        let stderr = child.stderr.take();
        let errors = tokio::spawn(async move {
            let mut errors = Vec::new();
            // A part that cannot be read is omitted from messages.
            let _ = read(stderr, MAX_ERROR_BYTES, &mut errors).await;
            errors
        });
        let (output, line) = (BufReader::new(output), Vec::new());
        let guard = HelperGuard::new(&child);
        Ok(Self { child, guard, input, output, line, errors: Some(errors) })
    }

    /// Makes the module do its work; returns its output. `workflow` is the one that it may run as a
    /// child.
    pub(super) async fn work(
        &mut self,
        request: &Value,
        workflow: Option<WorkflowRef>,
        host: &dyn ProviderHost,
    ) -> Result<Value, TaskError> {
        self.send(&json!({ "run": request })).await?;
        self.receive(Request::Work, workflow, Some(host)).await
    }

    /// Aborts the work of the module, and makes it clean up.
    pub(super) async fn clean_up(&mut self, request: &Value) -> Result<(), TaskError> {
        self.send(&json!({ "abort": true })).await?;
        let aborted = self.receive(Request::Abort, None, None);
        // A function that never returns does not notice that it was aborted.
        tokio::time::timeout(RESPONSE_LIMIT, aborted).await.map_err(|_| exited_error())??;
        self.send(&json!({ "cleanup": request })).await?;
        self.receive(Request::Cleanup, None, None).await.map(drop)
    }

    /// Receives messages until the request is finished.
    async fn receive(
        &mut self,
        request: Request,
        workflow: Option<WorkflowRef>,
        host: Option<&dyn ProviderHost>,
    ) -> Result<Value, TaskError> {
        let Self { child, guard, input, output, line, errors } = self;
        let mut children = FuturesUnordered::new();
        let mut count = 0;
        loop {
            let mut limited = (&mut *output).take(MAX_LINE_BYTES.saturating_sub(line.len() as u64));
            let read = tokio::select! {
                Some((ask, outcome)) = children.next(), if !children.is_empty() => {
                    let outcome: Result<_, TaskError> = outcome;
                    let answer = match outcome {
                        Ok(value) => json!({ "ask": ask, "value": value }),
                        Err(task_error) => json!({ "ask": ask, "failure":
                            { "code": task_error.code, "message": task_error.message } }),
                    };
                    send(input, &json!({ "answer": answer })).await?;
                    continue;
                }
                // Bytes that were read before the other branch was ready stay in the line.
                read = limited.read_until(b'\n', line) => read,
            };
            if !matches!(read, Ok(length) if length > 0) || line.last() != Some(&b'\n') {
                return Err(ended_error(child, guard, errors.take()).await);
            }
            let message = serde_json::from_slice(line);
            line.clear();
            let odd = |error| failed(format!("it sent an invalid message: {error}"));
            match message.map_err(odd)? {
                Message::Heartbeat(data) if data.to_string().len() > MAX_HEARTBEAT_BYTES => {
                    let message = "Heartbeat payload exceeds 1000000 bytes.";
                    return Err(TaskError::new("HEARTBEAT_PAYLOAD_TOO_LARGE", message));
                }
                Message::Heartbeat(data) => {
                    if let Some(host) = host {
                        host.heartbeat(data).await;
                    }
                }
                Message::Child { ask, request } => {
                    let is_next = ask == count && count < MAX_CHILDREN;
                    let (Some(workflow), Some(host), true) = (workflow, host, is_next) else {
                        let message = "a provider requested a child run that is not permitted";
                        return Err(TaskError::new("INVALID_INPUT", message));
                    };
                    count += 1;
                    children.push(async move { (ask, host.child(workflow, request).await) });
                }
                Message::Done(value) if request == Request::Work => return Ok(value),
                Message::Failed(error) if request == Request::Work => return Err(error.into()),
                Message::Aborted(()) if request == Request::Abort => return Ok(Value::Null),
                Message::Cleaned(()) if request == Request::Cleanup => return Ok(Value::Null),
                Message::Uncleaned(error) if request == Request::Cleanup => {
                    return Err(error.into());
                }
                // The end of aborted work.
                _ => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), TaskError> {
        send(&mut self.input, message).await
    }
}

async fn send(input: &mut Option<ChildStdin>, message: &Value) -> Result<(), TaskError> {
    let input = input.as_mut().ok_or_else(exited_error)?;
    let line = format!("{message}\n");
    input.write_all(line.as_bytes()).await.map_err(|_| exited_error())?;
    input.flush().await.map_err(|_| exited_error())
}

/// Reads a stream to its end, and retains the first part.
pub(super) async fn read(
    from: Option<impl tokio::io::AsyncRead + Unpin>,
    most: u64,
    into: &mut Vec<u8>,
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    (&mut from).take(most).read_to_end(into).await?;
    // The rest is read as well, so that the writer is not blocked.
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(drop)
}

/// The failure of a module whose output has ended.
async fn ended_error(
    child: &mut Child,
    guard: &mut HelperGuard,
    errors: Option<JoinHandle<Vec<u8>>>,
) -> TaskError {
    guard.terminate();
    let status = tokio::time::timeout(RESPONSE_LIMIT, child.wait()).await;
    if matches!(status, Ok(Ok(_))) {
        guard.disarm();
    }
    let Some(errors) = errors else { return exited_error() };
    let text = tokio::time::timeout(Duration::from_secs(1), errors).await;
    let text = text.ok().and_then(Result::ok).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    // The exit codes of a shell for a program that does not exist, or cannot be executed.
    if let Ok(Ok(status)) = status
        && matches!(status.code(), Some(126 | 127))
    {
        return failed(format!("the program of the provider cannot be started: {text}"));
    }
    let message = format!("the process of the provider exited: {text}");
    TaskError::new(ENDED, message).retryable()
}

fn exited_error() -> TaskError {
    TaskError::new(ENDED, "the process of the provider exited").retryable()
}

fn failed(message: impl Into<String>) -> TaskError {
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}
