//! `/command`: runs commands with a stream of their output, or in the background.

use std::collections::BTreeMap;

use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{
    CommandInfo, CommandLine, Execute, KillCommand, OpenSession, OperationId, OperationStatus,
    OutputChunk, Problem, ReadOutput,
};
use stockade_core::{Code, Time};

use super::super::request::{JsonBody, Query};
use super::super::target::{PortState, Target};
use super::{events, variables};
use crate::failure::{Failure, invalid};

/// Runs its first argument with `bash`, or with `sh` where there is none.
const SHELL: &str =
    "command -v bash >/dev/null 2>&1 && exec bash -c \"$0\"; exec /bin/sh -c \"$0\"";

/// The header with the cursor for the next part of the output.
const CURSOR: &str = "execd-commands-tail-cursor";

/// The request for a command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    argv: Option<Vec<String>>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    background: bool,
    /// In milliseconds.
    #[serde(default)]
    timeout: Option<u64>,
    #[serde(default)]
    uid: Option<u32>,
    #[serde(default)]
    gid: Option<u32>,
    #[serde(default)]
    envs: Option<BTreeMap<String, String>>,
}

/// The command line for a shell.
pub(super) fn shell(command: String) -> CommandLine {
    CommandLine::Program(vec!["/bin/sh".to_owned(), "-c".to_owned(), SHELL.to_owned(), command])
}

/// A timeout in milliseconds. 0 is none, as for the clients.
pub(super) fn seconds(timeout: Option<u64>) -> Option<f64> {
    let timeout = timeout.filter(|millis| *millis > 0)?;
    Some(std::time::Duration::from_millis(timeout).as_secs_f64())
}

/// `POST /command`.
pub(super) async fn run(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Request>,
) -> Result<Response, Failure> {
    let line = match (request.command, request.argv) {
        (Some(command), None) if !command.trim().is_empty() => shell(command),
        (None, Some(argv)) if !argv.is_empty() => CommandLine::Program(argv),
        _ => return Err(invalid("either `command` or `argv` is required, and not empty")),
    };
    let mut execute = Execute::new(target.sandbox.id.clone(), line);
    execute.working_directory = request.cwd.filter(|cwd| !cwd.is_empty()).map(bytes);
    execute.timeout_seconds = seconds(request.timeout);
    (execute.uid, execute.gid) = (request.uid, request.gid);
    let envs = request.envs.unwrap_or_default();
    execute.environment = envs.into_iter().map(|(name, value)| (name, bytes(value))).collect();
    variables::add(&state, &target, &mut execute).await?;
    if request.background {
        let started = state.sandboxes.execute_stream(&target.caller, execute).await?;
        return Ok(events::detached(&started.workflow_id.0));
    }
    open(state, target, execute).await
}

/// Runs a command, and streams its output.
pub(super) async fn open(
    state: PortState,
    target: Target,
    execute: Execute,
) -> Result<Response, Failure> {
    let request = OpenSession { execute, terminal: None, input: false, survives: false };
    let session = state.sandboxes.open_session(&target.caller, request).await?;
    Ok(events::stream(state, target, session))
}

fn bytes(text: String) -> stockade_api::Bytes {
    text.into_bytes().into()
}

/// A command of this sandbox.
pub(super) async fn find(
    state: &PortState,
    target: &Target,
    id: &str,
) -> Result<CommandInfo, Failure> {
    let unknown = || Failure(Problem::new(Code::NotFound, format!("there is no command {id:?}")));
    let found = state.sandboxes.get_command(&target.caller, OperationId(id.to_owned())).await;
    let command = found.map_err(|problem| match problem.code {
        Code::NotFound | Code::InvalidInput => unknown(),
        _ => Failure(problem),
    })?;
    if command.sandbox_id == target.sandbox.id { Ok(command) } else { Err(unknown()) }
}

/// `DELETE /command?id=`: ends a command with everything that it has started.
pub(super) async fn interrupt(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<(), Failure> {
    let query = Query::parse(query.as_deref(), &["id"])?;
    let command = find(&state, &target, query.required("id")?).await?;
    let kill = KillCommand { workflow_id: command.workflow_id, signal: None };
    state.sandboxes.kill_command(&target.caller, kill).await?;
    Ok(())
}

/// The status of a command.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    id: String,
    content: String,
    running: bool,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    started_at: Time,
    finished_at: Option<Time>,
}

/// `GET /command/status/{id}`.
pub(super) async fn status(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Status>, Failure> {
    let command = find(&state, &target, &id).await?;
    let running = matches!(command.status, OperationStatus::Running | OperationStatus::Waiting);
    let mut error = None;
    if !running && command.exit_code != Some(0) {
        let operation = state.sandboxes.operation(&target.caller, command.workflow_id.clone());
        let record = operation.await?;
        let reason = record.result.as_ref().and_then(|result| result["reason"].as_str());
        error = record.error.map(|problem| problem.message).or_else(|| reason.map(str::to_owned));
    }
    Ok(Json(Status {
        id: command.workflow_id.0,
        content: text(command.command),
        running,
        exit_code: command.exit_code,
        error,
        started_at: command.created_at,
        finished_at: command.ended_at,
    }))
}

/// The text of a command line, as the client has sent it.
fn text(line: CommandLine) -> String {
    match line {
        CommandLine::Shell(line) => line,
        CommandLine::Program(mut words) if words.get(2).is_some_and(|word| word == SHELL) => {
            words.pop().unwrap_or_default()
        }
        CommandLine::Program(words) => words.join(" "),
        CommandLine::Words(words) => {
            let words = words.iter().map(|word| String::from_utf8_lossy(&word.0).into_owned());
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

/// `GET /command/{id}/logs?cursor=`: the output of a command in the background from a cursor on. A
/// cursor is the number of a part of the output.
pub(super) async fn logs(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["cursor"])?;
    let command = find(&state, &target, &id).await?;
    if !command.detached {
        return Err(invalid("only a command in the background has logs"));
    }
    let mut cursor = query.number("cursor")?.unwrap_or(0);
    let workflow_id = command.workflow_id;
    let request = ReadOutput { workflow_id, from: cursor, follow: false, from_sandbox: false };
    let mut items = state.sandboxes.read_output(&target.caller, request).await?;
    let mut text = Vec::new();
    while let Some(item) = items.next().await {
        let item = item?;
        match item.chunk {
            OutputChunk::Stdout { data } | OutputChunk::Stderr { data } => text.extend(data.0),
            OutputChunk::Truncated { bytes } => {
                text.extend(format!("[{bytes} bytes of output are not stored]\n").into_bytes());
            }
            // The cursor stays before the end, so that it is valid again.
            OutputChunk::Exit(_) => break,
        }
        cursor = item.sequence + 1;
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, [(CURSOR, cursor.to_string())], text).into_response())
}
