//! The interface for commands and files of a sandbox (`execd`), which the server has on one port of
//! each sandbox. No program for it runs inside.
//!
//! `command` runs commands, `events` is the stream of their output, `variables` the file with
//! variables for later commands, `session` runs commands that share a shell's state; `files`,
//! `content`, `lines`, `write` and `directories` are about files, `metrics` about resource usage. `pty`, `pty_socket` and `pty_output` are shells with a
//! terminal; `isolated` are sessions that change a copy of the files; `identity` has the rights of one user.

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
mod stat;
mod upload;
mod variables;
mod write;

use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use stockade_api::Problem;
use stockade_core::{Code, State};

use super::target::{PortState, Target};
use super::unavailable;
use crate::failure::Failure;

/// The paths of the interface.
pub(super) fn routes(state: &PortState) -> Router<PortState> {
    Router::new()
        .route("/ping", get(ping))
        .route("/command", post(command::run).delete(command::interrupt))
        .route("/command/status/{id}", get(command::status))
        .route("/command/{id}/logs", get(command::logs))
        .route("/session", post(session::create))
        .route("/session/{session}", delete(session::remove))
        .route("/session/{session}/run", post(session::run))
        .route("/metrics", get(metrics::current))
        .route("/metrics/watch", get(metrics::watch))
        .route("/pty", post(pty::create))
        .route("/pty/{pty}", get(pty::status).delete(pty::remove))
        .route("/pty/{pty}/ws", get(pty_join::join))
        .merge(file_routes())
        .merge(isolated::routes(state))
        .merge(identity::routes(state))
        .merge(unavailable::execd())
        .fallback(unavailable::unknown)
        .method_not_allowed_fallback(unavailable::unknown)
}

/// The paths for files.
fn file_routes() -> Router<PortState> {
    Router::new()
        .route("/files", delete(files::remove))
        .route("/files/info", get(files::info))
        .route("/files/permissions", post(files::set_permissions))
        .route("/files/mv", post(files::rename))
        .route("/files/search", get(files::search))
        .route("/files/replace", post(files::replace))
        .route("/files/download", get(content::download))
        .route("/files/upload", post(upload::upload).layer(DefaultBodyLimit::disable()))
        .route("/directories", post(directories::create).delete(directories::remove))
        .route("/directories/list", get(directories::list))
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
