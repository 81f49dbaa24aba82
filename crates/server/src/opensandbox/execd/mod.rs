//! The interface for commands and files of a sandbox (`execd`), which the server has on one port of
//! each sandbox. No program for it runs inside.
//!
//! `command` runs commands, `events` is the stream of their output, `variables` the file with
//! variables for later commands, `session` runs commands that share a shell's state; `files`,
//! `content`, `lines`, `write` and `directories` are about files, `metrics` about resource usage. `pty`, `pty_socket` and `pty_output` are shells with a
//! terminal; `code` runs code;
//! `isolated` are sessions that change a copy of the files; `identity` has the rights of one user.

mod code;
mod command;
mod content;
mod directories;
mod events;
mod files;
mod identity;
pub(super) mod isolated;
mod lines;
mod metrics;
pub(super) mod pty;
mod pty_join;
mod pty_output;
mod pty_socket;
mod session;
mod upload;
mod variables;

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::DefaultBodyLimit;
use serde_json::json;
use stockade_api::Problem;
use stockade_core::{Code, State};

use super::target::{EXECD_TOKEN, PortState, Target};
use super::unavailable;
use crate::failure::Failure;
use crate::openapi::{Api, Security, delete, get, post};

/// The paths of the interface; without a state only for the document.
pub(super) fn routes(state: Option<&PortState>) -> Api<PortState> {
    Api::new(Security::Token(EXECD_TOKEN))
        .route("/ping", get(ping))
        .route(
            "/command",
            post(command::run)
                .body::<command::Request>(&json!({ "command": "true" }))
                .delete(command::interrupt)
                .query(&["id!"]),
        )
        .route("/command/status/{command}", get(command::status))
        .route("/command/{command}/logs", get(command::logs).query(&["cursor"]))
        .route("/session", post(session::create).body::<session::Create>(&json!({})))
        .route("/session/{session}", delete(session::remove))
        .route(
            "/session/{session}/run",
            post(session::run).body::<session::Run>(&json!({ "command": "true" })),
        )
        .route("/metrics", get(metrics::current))
        .route("/metrics/watch", get(metrics::watch))
        .route("/pty", post(pty::create).body::<pty::Create>(&json!({})))
        .route("/pty/{pty}", get(pty::status).delete(pty::remove))
        .route("/pty/{pty}/ws", get(pty_join::join).query(&["pty", "since", "takeover"]))
        .merge(file_routes())
        .merge(isolated::routes(state))
        .merge(identity::routes(state))
        .merge(code::routes())
        .fallback(unavailable::unknown)
        .method_not_allowed_fallback(unavailable::unknown)
}

/// The paths for files.
fn file_routes() -> Api<PortState> {
    let files = json!({ "/tmp/a": { "mode": 644 } });
    Api::new(Security::Token(EXECD_TOKEN))
        .route("/files", delete(files::remove).query(&["path!"]))
        .route("/files/info", get(files::info).query(&["path!"]))
        .route(
            "/files/permissions",
            post(files::set_permissions).body::<BTreeMap<String, files::Permissions>>(&files),
        )
        .route(
            "/files/mv",
            post(files::rename)
                .body::<Vec<files::Rename>>(&json!([{ "src": "/tmp/a", "dest": "/tmp/b" }])),
        )
        .route("/files/search", get(files::search).query(&["path!", "pattern"]))
        .route(
            "/files/replace",
            post(files::replace).body::<BTreeMap<String, files::Replacement>>(
                &json!({ "/tmp/a": { "old": "a", "new": "b" } }),
            ),
        )
        .route("/files/download", get(content::download).query(&["path!", "offset", "limit"]))
        .route("/files/upload", post(upload::upload).layer(DefaultBodyLimit::disable()))
        .route(
            "/directories",
            post(directories::create)
                .body::<BTreeMap<String, files::Permissions>>(&files)
                .delete(directories::remove)
                .query(&["path!"]),
        )
        .route("/directories/list", get(directories::list).query(&["path!", "depth"]))
}

/// Succeeds while commands can run.
async fn ping(Extension(target): Extension<Target>) -> Result<(), Failure> {
    let sandbox = &target.sandbox;
    if sandbox.state == State::Running {
        return Ok(());
    }
    let message = format!("the sandbox {} is {}", sandbox.id, sandbox.state);
    Err(Failure(Problem::new(Code::Unreachable, message)))
}
