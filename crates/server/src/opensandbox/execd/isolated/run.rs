//! Commands in a session. They share the working directory and the exported variables of a shell.

use std::collections::BTreeMap;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{CommandLine, Ending, Execute, OperationStatus};

use super::super::super::request::{JsonBody, Query};
use super::super::super::target::{PortState, Target};
use super::super::{command, pty_output, session as shell, variables};
use super::session::{self, Session};
use crate::failure::{Failure, invalid};

/// The header with the cursor for the next part of the output.
const CURSOR: &str = "execd-isolated-tail-cursor";

/// Runs a command with the state of the session's shell. Arguments: the directory with the state, the
/// directory in which the first command begins, the command, variables for this command.
const RUN: &str = r#"__session=$1; __cwd=$2; __command=$3; shift 3
[ ! -r "$__session/env" ] || . "$__session/env"
if [ -r "$__session/cwd" ]; then __cwd=$(cat "$__session/cwd"); fi
cd -- "$__cwd" || exit 1
__given=
for __pair; do export "$__pair"; __given="$__given ${__pair%%=*}"; done
set --
trap '__code=$?; [ -z "$__given" ] || unset $__given; unset __given __pair; export -p > "$__session/new" && mv "$__session/new" "$__session/env"; pwd > "$__session/cwd"; exit $__code' EXIT
eval "$__command""#;

/// The request for a command.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    code: String,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    background: bool,
}

impl Run {
    fn execute(self, session: &Session) -> Result<Execute, Failure> {
        if self.code.trim().is_empty() {
            return Err(invalid("`code` is empty"));
        }
        if let Some(name) = self.envs.keys().find(|name| !variables::is_name(name)) {
            return Err(invalid(format!("{name:?} is not a valid variable name")));
        }
        let mut words: Vec<String> = ["/bin/sh", "-c", shell::SHELL, RUN].map(str::to_owned).into();
        let begin = session.request.roots().into_iter().next().map(|root| root.path);
        words.extend([session.request.state_directory()?, begin.unwrap_or_default(), self.code]);
        words.extend(self.envs.iter().map(|(name, value)| format!("{name}={value}")));
        let id = session.target.sandbox.id.clone();
        let mut execute = Execute::new(id, CommandLine::Program(words));
        (execute.uid, execute.gid) = (session.request.uid, session.request.gid);
        execute.timeout_seconds = self
            .timeout_seconds
            .filter(|seconds| *seconds > 0)
            .map(|seconds| std::time::Duration::from_secs(seconds).as_secs_f64());
        Ok(execute)
    }
}

/// `POST /v1/isolated/session/{session}/run`.
pub(super) async fn run(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<Run>,
) -> Result<Response, Failure> {
    let session = session::find(&state, &outer, &id).await?;
    let background = request.background;
    let mut execute = request.execute(&session)?;
    variables::add(&state, &session.target, &mut execute).await?;
    if !background {
        return command::open(state, session.target, execute).await;
    }
    let started = state.sandboxes.execute_stream(&outer.caller, execute).await?;
    let started = command::find(&state, &session.target, &started.workflow_id.0).await?;
    let body = json!({
        "session_id": session.id,
        "run_id": started.workflow_id,
        "started_at": started.created_at,
    });
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

/// `GET /v1/isolated/session/{session}/runs/{run}`.
pub(super) async fn status(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path((id, run)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let session = session::find(&state, &outer, &id).await?;
    let command = command::find(&state, &session.target, &run).await?;
    let is_running = matches!(command.status, OperationStatus::Running | OperationStatus::Waiting);
    let exited = command.ending == Some(Ending::Exited);
    let error = (!is_running && !exited).then(|| match command.ending {
        Some(ending) => json!(ending),
        None => json!("notStarted"),
    });
    Ok(Json(json!({
        "session_id": session.id,
        "run_id": command.workflow_id,
        "running": is_running,
        "started_at": command.created_at,
        "exit_code": command.exit_code,
        "error": error,
        "finished_at": command.ended_at,
    })))
}

/// `GET /v1/isolated/session/{session}/runs/{run}/logs?cursor=`: the output from a byte on.
pub(super) async fn logs(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path((id, run)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["cursor"])?;
    let since = query.number("cursor")?.unwrap_or(0);
    let session = session::find(&state, &outer, &id).await?;
    let command = command::find(&state, &session.target, &run).await?;
    if !command.detached {
        return Err(invalid("only a command in the background has logs"));
    }
    let output = pty_output::read(&state, &session.target, &command.workflow_id, since).await?;
    let headers = [
        (header::CONTENT_TYPE.as_str(), "text/plain; charset=utf-8".to_owned()),
        (CURSOR, output.end().to_string()),
    ];
    Ok((headers, String::from_utf8_lossy(&output.bytes).into_owned()).into_response())
}
