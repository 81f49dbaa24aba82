//! `/pty`: shells with a terminal, which one client at a time joins over a WebSocket. A shell starts
//! when the first client joins it, and continues without one. What the interface knows of it is a
//! directory inside the sandbox, as for sessions.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stockade_api::{
    Bytes, CommandLine, Execute, FileContent, KillCommand, MakeDirectory, OperationId,
    OperationStatus, Problem, ReadFile, RemoveFile, StatFile, Terminal, WriteFile,
};
use stockade_core::Code;
use tokio::io::AsyncReadExt as _;

use super::super::request::JsonBody;
use super::super::target::{PortState, Target};
use super::{command, pty_output, variables};
use crate::failure::{Failure, invalid};

/// The directory of all shells.
const DIRECTORY: &str = "/tmp/.opensandbox/pty";
/// The most bytes of a record of a shell.
const RECORD_BYTES: u64 = 1 << 20;
/// The size of a terminal until the client sends its own.
const SIZE: Terminal = Terminal { rows: 24, columns: 80 };
/// Starts `bash`, or `sh` where there is none.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec /bin/sh";

/// The request for a shell.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// A command line instead of an interactive shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// What is known of a shell that was started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) operation: OperationId,
    pub(super) is_terminal: bool,
}

/// `POST /pty`.
pub(super) async fn create(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Create>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let sandbox_id = target.sandbox.id.clone();
    if let Some(cwd) = request.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        let stat = StatFile { sandbox_id: sandbox_id.clone(), path: cwd.into(), follow: true };
        state.sandboxes.stat_file(&target.caller, stat).await?;
    }
    let path = format!("{DIRECTORY}/{id}").into_bytes().into();
    let make = MakeDirectory { sandbox_id, path, mode: Some(0o700), uid: None, gid: None };
    state.sandboxes.make_directory(&target.caller, make).await?;
    write(&state, &target, &format!("{DIRECTORY}/{id}/request"), &request).await?;
    Ok((StatusCode::CREATED, Json(json!({ "session_id": id }))))
}

/// A shell of a sandbox.
pub(super) struct Pty {
    pub(super) id: String,
    request: Create,
    pub(super) started: Option<Started>,
}

impl Pty {
    pub(super) async fn find(
        state: &PortState,
        target: &Target,
        id: &str,
    ) -> Result<Self, Failure> {
        let unknown =
            || Failure(Problem::new(Code::NotFound, format!("there is no terminal {id:?}")));
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let request = read(state, target, &format!("{DIRECTORY}/{id}/request")).await?;
        let request = request.ok_or_else(unknown)?;
        let started = read(state, target, &format!("{DIRECTORY}/{id}/started")).await?;
        Ok(Self { id: id.to_owned(), request, started })
    }

    /// Starts the shell, with a terminal or with three pipes.
    pub(super) async fn start(
        self,
        state: &PortState,
        target: &Target,
        is_terminal: bool,
    ) -> Result<Started, Failure> {
        let line = match self.request.command.filter(|line| !line.trim().is_empty()) {
            Some(line) => command::shell(line),
            None => CommandLine::Shell(SHELL.to_owned()),
        };
        let mut execute = Execute::new(target.sandbox.id.clone(), line);
        execute.working_directory =
            self.request.cwd.filter(|cwd| !cwd.is_empty()).map(|cwd| Bytes(cwd.into_bytes()));
        execute.terminal = is_terminal.then_some(SIZE);
        execute.input = true;
        if is_terminal {
            execute.environment.insert("TERM".to_owned(), "xterm-256color".into());
        }
        variables::add(state, target, &mut execute).await?;
        let mut caller = target.caller.clone();
        // Two clients start it once.
        caller.idempotency_key = Some(format!("terminal {}", self.id));
        let started = state.sandboxes.execute_stream(&caller, execute).await?;
        let started = Started { operation: started.workflow_id, is_terminal };
        write(state, target, &format!("{DIRECTORY}/{}/started", self.id), &started).await?;
        Ok(started)
    }
}

/// `GET /pty/{pty}`.
pub(super) async fn status(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let pty = Pty::find(&state, &target, &id).await?;
    let (mut is_running, mut offset) = (false, 0);
    if let Some(started) = &pty.started {
        let command = command::find(&state, &target, &started.operation.0).await?;
        is_running = matches!(command.status, OperationStatus::Running | OperationStatus::Waiting);
        offset = pty_output::read(&state, &target, &started.operation, u64::MAX).await?.end();
    }
    Ok(Json(json!({
        "session_id": pty.id,
        "running": is_running,
        "output_offset": offset,
        "launch_attempted": pty.started.is_some(),
        "launch_failed": false,
    })))
}

/// `DELETE /pty/{pty}`: ends the shell with everything that it has started.
pub(super) async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    let pty = Pty::find(&state, &target, &id).await?;
    if let Some(started) = pty.started {
        // The record is inside, so the command may be one of another sandbox.
        let command = command::find(&state, &target, &started.operation.0).await?;
        let kill = KillCommand { workflow_id: command.workflow_id, signal: None };
        state.sandboxes.kill_command(&target.caller, kill).await?;
    }
    let path = format!("{DIRECTORY}/{id}").into_bytes().into();
    let remove = RemoveFile { sandbox_id: target.sandbox.id.clone(), path };
    state.sandboxes.remove_file(&target.caller, remove).await?;
    Ok(())
}

/// Writes a record.
async fn write(
    state: &PortState,
    target: &Target,
    path: &str,
    record: &impl Serialize,
) -> Result<(), Failure> {
    let text = serde_json::to_vec(record).map_err(|error| invalid(error.to_string()))?;
    let write = WriteFile {
        sandbox_id: target.sandbox.id.clone(),
        path: path.into(),
        mode: Some(0o600),
        uid: None,
        gid: None,
    };
    let content = FileContent(Box::pin(std::io::Cursor::new(text)));
    state.sandboxes.write_file(&target.caller, write, content).await?;
    Ok(())
}

/// Reads a record, if there is one.
async fn read<T: serde::de::DeserializeOwned>(
    state: &PortState,
    target: &Target,
    path: &str,
) -> Result<Option<T>, Failure> {
    let sandbox_id = target.sandbox.id.clone();
    let length = Some(RECORD_BYTES);
    let request = ReadFile { sandbox_id, path: path.into(), offset: 0, length };
    let mut text = Vec::new();
    match state.sandboxes.read_file(&target.caller, request).await {
        Ok(mut content) => content.0.read_to_end(&mut text).await.map_err(|error| {
            Problem::new(Code::Io, "the record of the terminal cannot be read")
                .because(error.to_string())
        })?,
        Err(problem) if problem.code == Code::FileNotFound => return Ok(None),
        Err(problem) => return Err(problem.into()),
    };
    let record = serde_json::from_slice(&text).map_err(|error| {
        Problem::new(Code::InvalidState, "the record of the terminal is damaged")
            .because(error.to_string())
    })?;
    Ok(Some(record))
}
