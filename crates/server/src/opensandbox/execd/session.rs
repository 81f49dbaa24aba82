//! `/session`: commands that share the working directory and the exported variables of a shell. The
//! state of a session is a directory inside the sandbox, so that it lives as long as the sandbox.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{
    CommandLine, Execute, FileContent, MakeDirectory, Problem, RemoveFile, StatFile, WriteFile,
};
use stockade_core::Code;

use super::super::request::JsonBody;
use super::super::target::{PortState, Target};
use super::{command, variables};
use crate::failure::{Failure, invalid};

/// The directory of all sessions.
const DIRECTORY: &str = "/tmp/.opensandbox/sessions";

/// Runs its first argument with `bash`, or with `sh` where there is none.
pub(super) const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -c \"$0\" bash \"$@\"; \
                     else exec /bin/sh -c \"$0\" sh \"$@\"; fi";

/// Runs a command in a session. Arguments: the session's directory, a working directory or nothing,
/// the command.
const RUN: &str = r#"__session=$1; __cwd=$2; __command=$3; shift 3
[ ! -r "$__session/env" ] || . "$__session/env"
if [ -z "$__cwd" ] && [ -r "$__session/cwd" ]; then __cwd=$(cat "$__session/cwd"); fi
if [ -n "$__cwd" ]; then cd -- "$__cwd" || exit 1; fi
trap '__code=$?; export -p > "$__session/new" && mv "$__session/new" "$__session/env"; pwd > "$__session/cwd"; exit $__code' EXIT
eval "$__command""#;

/// The request for a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default)]
    cwd: Option<String>,
}

/// `POST /session`.
pub(super) async fn create(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Create>,
) -> Result<Json<Value>, Failure> {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let sandbox_id = target.sandbox.id.clone();
    if let Some(cwd) = &request.cwd {
        let path = cwd.as_bytes().to_vec().into();
        let stat = StatFile { sandbox_id: sandbox_id.clone(), path, follow: true };
        state.sandboxes.stat_file(&target.caller, stat).await?;
    }
    let path = format!("{DIRECTORY}/{id}").into_bytes().into();
    let make = MakeDirectory {
        sandbox_id: sandbox_id.clone(),
        path,
        mode: Some(0o700),
        uid: None,
        gid: None,
    };
    state.sandboxes.make_directory(&target.caller, make).await?;
    if let Some(cwd) = request.cwd {
        let path = format!("{DIRECTORY}/{id}/cwd").into_bytes().into();
        let write = WriteFile { sandbox_id, path, mode: None, uid: None, gid: None };
        let content = FileContent(Box::pin(std::io::Cursor::new(cwd.into_bytes())));
        state.sandboxes.write_file(&target.caller, write, content).await?;
    }
    Ok(Json(json!({ "session_id": id })))
}

/// The directory of a session of the sandbox.
async fn find(state: &PortState, target: &Target, id: &str) -> Result<String, Failure> {
    let unknown = || Failure(Problem::new(Code::NotFound, format!("there is no session {id:?}")));
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    let directory = format!("{DIRECTORY}/{id}");
    let stat = StatFile {
        sandbox_id: target.sandbox.id.clone(),
        path: directory.as_bytes().to_vec().into(),
        follow: false,
    };
    match state.sandboxes.stat_file(&target.caller, stat).await {
        Ok(_) => Ok(directory),
        Err(problem) if problem.code == Code::FileNotFound => Err(unknown()),
        Err(problem) => Err(problem.into()),
    }
}

/// The request for a command in a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    command: String,
    #[serde(default)]
    cwd: Option<String>,
    /// In milliseconds.
    #[serde(default)]
    timeout: Option<u64>,
}

/// `POST /session/{session}/run`.
pub(super) async fn run(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<Run>,
) -> Result<Response, Failure> {
    if request.command.trim().is_empty() {
        return Err(invalid("`command` is empty"));
    }
    let directory = find(&state, &target, &id).await?;
    let words = ["/bin/sh", "-c", SHELL, RUN].map(str::to_owned);
    let arguments = [directory, request.cwd.unwrap_or_default(), request.command];
    let line = CommandLine::Program(words.into_iter().chain(arguments).collect());
    let mut execute = Execute::new(target.sandbox.id.clone(), line);
    execute.timeout_seconds = command::seconds(request.timeout);
    variables::add(&state, &target, &mut execute).await?;
    command::open(state, target, execute).await
}

/// `DELETE /session/{session}`.
pub(super) async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    let path = find(&state, &target, &id).await?.into_bytes().into();
    let remove = RemoveFile { sandbox_id: target.sandbox.id.clone(), path };
    state.sandboxes.remove_file(&target.caller, remove).await?;
    Ok(())
}
